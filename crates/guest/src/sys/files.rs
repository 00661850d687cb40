//! Raw system calls on files: confined path resolution, mount attributes, the identity for file access.

#![allow(unsafe_code)]

use std::{
    ffi::CStr,
    io,
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
};

use super::{check, security::Token};

/// Resolution flags of openat2(2): do not enter another mount.
pub(crate) const NO_XDEV: u64 = 0x01;
/// Follow no magic link.
pub(crate) const NO_MAGICLINKS: u64 = 0x02;
/// Follow no symbolic link.
pub(crate) const NO_SYMLINKS: u64 = 0x04;
/// Never leave the start directory.
pub(crate) const BENEATH: u64 = 0x08;

/// How often a lookup is retried after a concurrent rename.
const TRIES: u32 = 200;

/// `openat2` with the token by which the seccomp filter recognizes the guest's own calls.
///
/// A confined lookup that contains `..` fails if anything on the host is renamed meanwhile: the kernel cannot tell
/// whether the path left the directory, and returns EAGAIN.
pub(crate) fn open_how(
    dir: BorrowedFd<'_>,
    path: &CStr,
    flags: i32,
    resolve: u64,
    token: Token,
) -> io::Result<OwnedFd> {
    let flags = flags | libc::O_CLOEXEC;
    let how = [flags as u64, 0, resolve];
    for _ in 0..TRIES {
        match open_once(dir, path, &how, token) {
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => std::thread::yield_now(),
            other => return other,
        }
    }
    open_once(dir, path, &how, token)
}

fn open_once(dir: BorrowedFd<'_>, path: &CStr, how: &[u64; 3], token: Token) -> io::Result<OwnedFd> {
    // SAFETY: `how` is the three words of `struct open_how` and `path` is NUL-terminated; both outlive the call.
    let fd = check(unsafe {
        libc::syscall(
            libc::SYS_openat2,
            dir.as_raw_fd(),
            path.as_ptr(),
            how.as_ptr(),
            size_of_val(how),
            token.0[0],
            token.0[1],
        )
    })?;
    // SAFETY: the kernel just returned this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Sets the user and group for file access.
pub(crate) fn set_fs_identity(uid: u32, gid: u32) {
    // SAFETY: neither call touches memory; they cannot fail with CAP_SETUID and CAP_SETGID, and are verified by callers.
    unsafe {
        libc::syscall(libc::SYS_setfsgid, gid);
        libc::syscall(libc::SYS_setfsuid, uid);
    }
}

/// Sets the group for file access.
pub(crate) fn set_fs_group(gid: u32) {
    // SAFETY: as above.
    unsafe {
        libc::syscall(libc::SYS_setfsgid, gid);
    }
}

/// Attributes of mounts; see `mount_setattr(2)`.
pub(crate) mod attr {
    pub(crate) const RDONLY: u64 = 0x1;
    pub(crate) const NOSUID: u64 = 0x2;
    pub(crate) const NODEV: u64 = 0x4;
    pub(crate) const NOEXEC: u64 = 0x8;
    pub(crate) const IDMAP: u64 = 0x0010_0000;
}

/// Whether a change of mount attributes includes the mounts below.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Depth {
    This,
    Recursive,
}

/// Sets attributes of a mount; with `idmap`, also the user namespace that maps its owners.
pub(crate) fn set_mount_attr(
    mount: BorrowedFd<'_>,
    set: u64,
    idmap: Option<BorrowedFd<'_>>,
    depth: Depth,
) -> io::Result<()> {
    const AT_EMPTY_PATH: i32 = 0x1000;
    const AT_RECURSIVE: i32 = 0x8000;
    let userns = idmap.map_or(0, |fd| fd.as_raw_fd() as u64);
    let set = if idmap.is_some() { set | attr::IDMAP } else { set };
    let attributes: [u64; 4] = [set, 0, 0, userns];
    let flags = AT_EMPTY_PATH | if depth == Depth::Recursive { AT_RECURSIVE } else { 0 };
    // SAFETY: `attributes` is the four words of `struct mount_attr` and outlives the call.
    check(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            flags,
            attributes.as_ptr(),
            size_of_val(&attributes),
        )
    })?;
    Ok(())
}

/// Makes the current directory the root and stacks the old root on top, to be detached.
pub(crate) fn pivot_here() -> io::Result<()> {
    // SAFETY: both arguments are the same static string.
    check(unsafe { libc::syscall(libc::SYS_pivot_root, c".".as_ptr(), c".".as_ptr()) })?;
    Ok(())
}

/// Brings up the loopback interface of this network namespace.
pub(crate) fn loopback_up(socket: BorrowedFd<'_>) -> io::Result<()> {
    let mut request = [0u8; 40];
    request[..2].copy_from_slice(b"lo");
    let up = (libc::IFF_UP | libc::IFF_RUNNING) as u16;
    request[16..18].copy_from_slice(&up.to_ne_bytes());
    // SAFETY: `request` is a `struct ifreq`: sixteen bytes of name, then the flags; the kernel only reads it.
    check(libc::c_long::from(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, request.as_ptr()) }))?;
    Ok(())
}
