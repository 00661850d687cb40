//! Raw system calls on processes: forking into namespaces, tags, signals, waiting.

#![allow(unsafe_code)]

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
};

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

use super::{check, security::Token};

/// Which side of a fork this is.
pub(crate) enum Fork {
    Child,
    Parent(i32),
}

/// Forks, with new namespaces for the child where `flags` asks for them. This program has one thread.
pub(crate) fn fork_into(flags: libc::c_int) -> io::Result<Fork> {
    let flags = libc::c_long::from(flags | libc::SIGCHLD);
    // SAFETY: without CLONE_VM and with a null stack this is fork(); the process has a single thread.
    match check(unsafe { libc::syscall(libc::SYS_clone, flags, 0usize, 0usize, 0usize, 0usize) })? {
        0 => Ok(Fork::Child),
        pid => Ok(Fork::Parent(pid as i32)),
    }
}

/// Bytes in a page of memory.
pub(crate) fn page_size() -> u64 {
    // SAFETY: no pointers.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// Makes the current control group the root of what this process can see.
pub(crate) fn hide_groups_above() -> io::Result<()> {
    // SAFETY: no pointers.
    check(libc::c_long::from(unsafe { libc::unshare(libc::CLONE_NEWCGROUP) }))?;
    Ok(())
}

/// Lets the kernel kill this process when its parent dies.
pub(crate) fn die_with_parent() -> io::Result<()> {
    // SAFETY: no pointers.
    check(libc::c_long::from(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) }))?;
    Ok(())
}

/// Makes orphaned descendants children of this process.
pub(crate) fn adopt_orphans() -> io::Result<()> {
    // SAFETY: no pointers.
    check(libc::c_long::from(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }))?;
    Ok(())
}

/// Switches to this user, group and supplementary groups for good.
pub(crate) fn become_user(uid: u32, gid: u32, groups: &[u32]) -> io::Result<()> {
    set_groups(groups)?;
    // SAFETY: no pointers; the process has a single thread, so the raw calls cover all of it.
    unsafe {
        check(libc::syscall(libc::SYS_setresgid, gid, gid, gid))?;
        check(libc::syscall(libc::SYS_setresuid, uid, uid, uid))?;
    }
    Ok(())
}

/// Sets the supplementary groups.
pub(crate) fn set_groups(groups: &[u32]) -> io::Result<()> {
    // SAFETY: the kernel reads `groups`, which outlives the call; this process has a single thread.
    check(unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) })?;
    Ok(())
}

/// The resource limit that stores a command's tag. The kernel has not enforced it since 2003, children inherit it, it
/// can never be raised, and the filter lets only the guest set it: so it marks every descendant, however it was
/// started.
const TAG: u32 = libc::RLIMIT_LOCKS;

/// Tags this process and all its descendants.
pub(crate) fn set_tag(tag: u64, token: Token) -> io::Result<()> {
    let limit = [tag, tag];
    // SAFETY: `limit` is a `struct rlimit64` and outlives the call.
    check(unsafe { libc::syscall(libc::SYS_prlimit64, 0, TAG, limit.as_ptr(), 0usize, token.0[0], token.0[1]) })?;
    Ok(())
}

/// Hard limit of this process; `None` if unlimited.
pub(crate) fn hard_limit(resource: u32) -> Option<u64> {
    let mut limit = [0u64; 2];
    // SAFETY: the kernel fills `limit`, a `struct rlimit64`.
    let asked = unsafe { libc::syscall(libc::SYS_prlimit64, 0, resource, 0usize, limit.as_mut_ptr()) };
    let [_, most] = limit;
    (asked == 0 && most != libc::RLIM_INFINITY).then_some(most)
}

/// Tag of a process; `None` if the process is gone or may not be inspected.
pub(crate) fn tag_of(pid: i32) -> Option<u64> {
    let mut limit = [0u64; 2];
    // SAFETY: the kernel fills `limit`, a `struct rlimit64`.
    match check(unsafe { libc::syscall(libc::SYS_prlimit64, pid, TAG, 0usize, limit.as_mut_ptr()) }) {
        Ok(_) => Some(limit[1]),
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => shown_tag(pid),
        Err(_) => None,
    }
}

/// Reads the tag from `/proc`, which is readable for every user: PID 1 of a container lacks the capability to query
/// processes of other users.
fn shown_tag(pid: i32) -> Option<u64> {
    if !rustix::process::getpid().is_init() {
        return None;
    }
    let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).ok()?;
    let numbers = limits.lines().find_map(|line| line.strip_prefix("Max file locks"))?;
    numbers.split_whitespace().nth(1)?.parse().ok()
}

/// Sends a signal; a process that is gone is fine.
pub(crate) fn signal(pid: i32, number: i32) {
    // SAFETY: no pointers.
    unsafe { libc::kill(pid, number) };
}

/// Resets signals that the parent set to ignored, as `nohup` and shells with background jobs do: commands would inherit
/// that and could not be interrupted. SIGPIPE stays ignored for the guest itself.
pub(crate) fn forget_ignored_signals() {
    for number in (1..=64).filter(|number| *number != libc::SIGPIPE) {
        // SAFETY: no handler is set. The two signals that cannot be changed, and those of the C library, stay as they are.
        unsafe { libc::signal(number, libc::SIG_DFL) };
    }
}

/// How a child ended.
pub(crate) struct Ended {
    pub(crate) pid: i32,
    pub(crate) code: i32,
    pub(crate) signaled: bool,
}

/// Reaps one child that has ended, if there is one.
pub(crate) fn reap() -> Option<Ended> {
    let mut status = 0;
    // SAFETY: the kernel fills `status`.
    let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) };
    (pid > 0).then(|| ended(pid, status))
}

/// Whether this child was stopped since the last check.
pub(crate) fn was_stopped(pid: i32) -> bool {
    let Some(pid) = Pid::from_raw(pid) else { return false };
    let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
    matches!(waitid(WaitId::Pid(pid), options), Ok(Some(_)))
}

/// Waits for one child to end.
pub(crate) fn wait_for(pid: i32) -> io::Result<Ended> {
    let mut status = 0;
    loop {
        // SAFETY: the kernel fills `status`.
        match check(libc::c_long::from(unsafe { libc::waitpid(pid, &raw mut status, 0) })) {
            Ok(_) => return Ok(ended(pid, status)),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn ended(pid: i32, status: i32) -> Ended {
    if libc::WIFSIGNALED(status) {
        Ended { pid, code: 128 + libc::WTERMSIG(status), signaled: true }
    } else {
        Ended { pid, code: libc::WEXITSTATUS(status), signaled: false }
    }
}

/// Ends this process immediately, without running destructors.
pub(crate) fn exit_now(code: i32) -> ! {
    // SAFETY: does not return.
    unsafe { libc::_exit(code) }
}

/// Blocks every signal that can be blocked; returns a descriptor that becomes readable when a child ends.
pub(crate) fn watch_children() -> io::Result<OwnedFd> {
    // SAFETY: the sets are initialised by the calls that fill them and outlive their use.
    let fd = unsafe {
        let mut set = std::mem::zeroed::<libc::sigset_t>();
        libc::sigfillset(&raw mut set);
        check(libc::c_long::from(libc::sigprocmask(libc::SIG_SETMASK, &raw const set, std::ptr::null_mut())))?;
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGCHLD);
        check(libc::c_long::from(libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)))?
    };
    // SAFETY: the kernel just returned this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Closes every descriptor except the standard ones and these. Owners of the closed ones in this process must never run
/// again.
pub(crate) fn close_all_but(keep: &mut [RawFd]) -> io::Result<()> {
    keep.sort_unstable();
    let mut first = 3;
    for fd in keep.iter().filter_map(|fd| u32::try_from(*fd).ok()).chain([u32::MAX]) {
        if fd > first {
            // SAFETY: closes only descriptors this process will not use again; see above.
            check(unsafe { libc::syscall(libc::SYS_close_range, first, fd - 1, 0u32) })?;
        }
        first = first.max(fd.saturating_add(1));
    }
    Ok(())
}

/// Closes every descriptor from `first` on.
pub(crate) fn close_from(first: u32) -> io::Result<()> {
    // SAFETY: only called before this program has opened anything it keeps.
    check(unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0u32) })?;
    Ok(())
}

/// Opens the other end of a pseudo-terminal.
pub(crate) fn terminal_peer(master: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    const TIOCGPTPEER: libc::c_ulong = 0x5441;
    let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
    // SAFETY: the argument is a number, not a pointer.
    let fd = check(libc::c_long::from(unsafe { libc::ioctl(master.as_raw_fd(), TIOCGPTPEER as _, flags) }))?;
    // SAFETY: the kernel just returned this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Releases the pages of code that only the setup needed; pages that are used again are reloaded from the page cache.
/// That matters with a thousand machines on a host.
pub(crate) fn forget_code() {
    extern "C" fn each(info: *mut libc::dl_phdr_info, _: libc::size_t, _: *mut libc::c_void) -> libc::c_int {
        // SAFETY: the linker passes its own description of this program, whose headers stay where they are.
        let (base, headers) = unsafe {
            let info = &*info;
            (info.dlpi_addr, std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)))
        };
        for header in headers {
            if header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_W == 0 {
                let start = (base + header.p_vaddr) & !4095;
                let end = (base + header.p_vaddr + header.p_memsz) & !4095;
                // SAFETY: the range holds only unwritten pages of the program's file, which are read again on use.
                unsafe { libc::madvise(start as *mut _, (end - start) as usize, libc::MADV_DONTNEED) };
            }
        }
        0
    }
    // SAFETY: `each` keeps nothing it is shown.
    unsafe { libc::dl_iterate_phdr(Some(each), std::ptr::null_mut()) };
}
