//! Raw system calls for attackers: numbers in, a value or an errno out.

#![allow(unsafe_code, reason = "attacks talk to the kernel by hand")]

use std::ffi::{CStr, CString};

/// A system call with up to six words; pointers are passed as addresses of memory that outlives the call.
///
/// # Errors
/// The kernel's errno.
pub fn call<const N: usize>(number: libc::c_long, words: [u64; N]) -> Result<i64, i32> {
    let mut all = [0u64; 6];
    for (place, word) in all.iter_mut().zip(words) {
        *place = word;
    }
    let [a, b, c, d, e, f] = all;
    // SAFETY: the kernel checks every word; callers pass addresses of memory they own, of the size the call expects.
    let value = unsafe { libc::syscall(number, a, b, c, d, e, f) };
    if value == -1 { Err(errno()) } else { Ok(value) }
}

/// This thread's last error.
#[must_use]
pub fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// An error's words, without blanks.
#[must_use]
pub fn name_of(errno: i32) -> String {
    std::io::Error::from_raw_os_error(errno).to_string().replace(' ', "-")
}

/// A string for the kernel.
#[must_use]
pub fn text(path: &str) -> CString {
    CString::new(path).unwrap_or_default()
}

/// The address of a string.
#[must_use]
pub fn at(path: &CStr) -> u64 {
    path.as_ptr() as u64
}

/// The address of any value.
pub fn addr<T: ?Sized>(value: &T) -> u64 {
    std::ptr::from_ref(value).cast::<u8>() as u64
}

/// The address of a value the kernel may write to.
pub fn addr_mut<T: ?Sized>(value: &mut T) -> u64 {
    std::ptr::from_mut(value).cast::<u8>() as u64
}

/// `open(2)`.
///
/// # Errors
/// The kernel's errno.
pub fn open(path: &str, flags: i32, mode: u32) -> Result<i32, i32> {
    let path = text(path);
    call(libc::SYS_openat, [libc::AT_FDCWD as u64, at(&path), flags as u64, u64::from(mode)]).map(|fd| fd as i32)
}

/// `close(2)`.
pub fn close(fd: i32) {
    let _nothing_to_do = call(libc::SYS_close, [fd as u64]);
}

/// How a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// With this code.
    Exited(i32),
    /// By this signal.
    Signaled(i32),
}

/// Forks; 0 in the child.
///
/// # Errors
/// The kernel's errno.
pub fn fork() -> Result<i32, i32> {
    // SAFETY: the probe has one thread.
    let pid = unsafe { libc::fork() };
    if pid < 0 { Err(errno()) } else { Ok(pid) }
}

/// Ends this process at once.
pub fn exit(code: i32) -> ! {
    // SAFETY: does not return.
    unsafe { libc::_exit(code) }
}

/// Waits for a child.
#[must_use]
pub fn wait(pid: i32) -> Ended {
    let mut status = 0;
    // SAFETY: the kernel fills `status`.
    while unsafe { libc::waitpid(pid, &raw mut status, 0) } < 0 && errno() == libc::EINTR {}
    if libc::WIFSIGNALED(status) {
        Ended::Signaled(libc::WTERMSIG(status))
    } else {
        Ended::Exited(libc::WEXITSTATUS(status))
    }
}

/// Runs something in a child.
///
/// # Errors
/// The fork's errno.
pub fn in_child(work: impl FnOnce() -> i32) -> Result<Ended, i32> {
    match fork()? {
        0 => exit(work()),
        pid => Ok(wait(pid)),
    }
}

/// `kill(2)`.
///
/// # Errors
/// The kernel's errno.
pub fn kill(pid: i32, signal: i32) -> Result<i64, i32> {
    call(libc::SYS_kill, [pid as u64, signal as u64])
}

/// Sleeps.
pub fn pause_ms(milliseconds: u64) {
    std::thread::sleep(std::time::Duration::from_millis(milliseconds));
}

/// An address of a unix socket: a path, or an abstract name after `@`.
#[must_use]
pub fn unix_address(name: &str) -> (Vec<u8>, u64) {
    let mut address = (libc::AF_UNIX as u16).to_ne_bytes().to_vec();
    match name.strip_prefix('@') {
        Some(abstract_name) => {
            address.push(0);
            address.extend_from_slice(abstract_name.as_bytes());
        }
        None => {
            address.extend_from_slice(name.as_bytes());
            address.push(0);
        }
    }
    let length = address.len() as u64;
    (address, length)
}

/// An address of an IPv4 socket.
#[must_use]
pub fn inet_address(ip: [u8; 4], port: u16) -> [u8; 16] {
    let mut address = [0; 16];
    address[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
    address[2..4].copy_from_slice(&port.to_be_bytes());
    address[4..8].copy_from_slice(&ip);
    address
}

/// Runs this process's own 32-bit system call entry: `getpid` by `int 0x80`.
#[cfg(target_arch = "x86_64")]
#[must_use]
pub fn ia32_getpid() -> i64 {
    let value: i64;
    // SAFETY: call 20 of the 32-bit table is getpid, which takes nothing and touches no memory.
    unsafe {
        std::arch::asm!("int 0x80", inlateout("rax") 20i64 => value, out("r8") _, out("r9") _, out("r10") _, out("r11") _);
    }
    value
}
