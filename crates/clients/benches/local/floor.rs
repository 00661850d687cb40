//! The floor: each workload by bare system calls, as a C program would do it.

#![allow(unsafe_code, reason = "the floor is what a C program does")]

use std::{
    ffi::{CString, c_char},
    fs::File,
    io::{Read, Write},
    os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
    path::Path,
    ptr,
    time::{Duration, Instant},
};

fn spawn(argv: &[&str], stdio: &[(RawFd, RawFd)]) -> libc::pid_t {
    let argv: Vec<CString> = argv.iter().map(|arg| CString::new(*arg).unwrap()).collect();
    let mut pointers: Vec<*mut c_char> = argv.iter().map(|arg| arg.as_ptr().cast_mut()).collect();
    pointers.push(ptr::null_mut());
    let mut env = [ptr::null_mut::<c_char>()];
    let mut pid = 0;
    // SAFETY: all arrays end with null and live through the call; the actions are initialised before and destroyed after.
    unsafe {
        let mut actions = std::mem::zeroed();
        libc::posix_spawn_file_actions_init(&raw mut actions);
        for (from, to) in stdio {
            libc::posix_spawn_file_actions_adddup2(&raw mut actions, *from, *to);
        }
        // Rust ignores SIGPIPE and children inherit that; the children of a C program would not.
        let mut attributes = std::mem::zeroed();
        libc::posix_spawnattr_init(&raw mut attributes);
        let mut broken_pipe = std::mem::zeroed();
        libc::sigemptyset(&raw mut broken_pipe);
        libc::sigaddset(&raw mut broken_pipe, libc::SIGPIPE);
        libc::posix_spawnattr_setsigdefault(&raw mut attributes, &raw const broken_pipe);
        libc::posix_spawnattr_setflags(&raw mut attributes, libc::POSIX_SPAWN_SETSIGDEF as _);
        let code = libc::posix_spawn(
            &raw mut pid,
            pointers[0],
            &raw const actions,
            &raw const attributes,
            pointers.as_ptr(),
            env.as_mut_ptr(),
        );
        assert_eq!(code, 0, "posix_spawn");
        libc::posix_spawn_file_actions_destroy(&raw mut actions);
        libc::posix_spawnattr_destroy(&raw mut attributes);
    }
    pid
}

fn wait(pid: libc::pid_t) {
    let mut status = 0;
    // SAFETY: the kernel fills `status`.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
}

fn pipe() -> (OwnedFd, OwnedFd) {
    let mut fds = [0; 2];
    // SAFETY: the kernel fills `fds` with two new descriptors, which have no other owner.
    unsafe {
        assert_eq!(libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC), 0);
        (OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1]))
    }
}

/// `posix_spawn` of `true`, and waiting for it.
pub(crate) fn spawn_true() -> Duration {
    let start = Instant::now();
    wait(spawn(&["/usr/bin/true"], &[]));
    start.elapsed()
}

/// A hundred processes at once.
pub(crate) fn spawn_100() -> Duration {
    let start = Instant::now();
    let pids: Vec<_> = (0..100).map(|_| spawn(&["/usr/bin/true"], &[])).collect();
    pids.into_iter().for_each(wait);
    start.elapsed()
}

/// A program's standard output through one pipe.
pub(crate) fn stdout_of(argv: &[&str]) -> (Duration, usize) {
    let start = Instant::now();
    let (read, write) = pipe();
    let pid = spawn(argv, &[(write.as_raw_fd(), 1)]);
    drop(write);
    let mut file = File::from(read);
    let mut buffer = vec![0; 1 << 20];
    let mut total = 0;
    loop {
        match file.read(&mut buffer).unwrap() {
            0 => break,
            count => total += count,
        }
    }
    wait(pid);
    (start.elapsed(), total)
}

fn terminal() -> (OwnedFd, OwnedFd) {
    let (mut master, mut slave) = (0, 0);
    // SAFETY: the call fills both with new descriptors, which have no other owner; the other arguments are optional.
    unsafe {
        let code = libc::openpty(&raw mut master, &raw mut slave, ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        assert_eq!(code, 0, "openpty");
        (OwnedFd::from_raw_fd(master), OwnedFd::from_raw_fd(slave))
    }
}

/// A program's output through a terminal.
pub(crate) fn terminal_output_of(argv: &[&str]) -> (Duration, usize) {
    let start = Instant::now();
    let (master, slave) = terminal();
    let slave_fd = slave.as_raw_fd();
    let pid = spawn(argv, &[(slave_fd, 0), (slave_fd, 1), (slave_fd, 2)]);
    drop(slave);
    let mut file = File::from(master);
    let mut buffer = vec![0; 1 << 16];
    let mut total = 0;
    // When the last writer of a terminal closes it, a read fails.
    while let Ok(count @ 1..) = file.read(&mut buffer) {
        total += count;
    }
    wait(pid);
    (start.elapsed(), total)
}

/// Replaces a small file as an editor does: write a temporary file, then rename it.
pub(crate) fn replace(dir: &Path, bytes: &[u8]) -> Duration {
    let start = Instant::now();
    let temporary = dir.join("floor.tmp");
    File::create(&temporary).unwrap().write_all(bytes).unwrap();
    std::fs::rename(&temporary, dir.join("floor")).unwrap();
    start.elapsed()
}

/// Reads a file to its end.
pub(crate) fn read(dir: &Path) -> Duration {
    let start = Instant::now();
    let mut file = File::open(dir.join("floor")).unwrap();
    let mut buffer = vec![0; 1 << 20];
    while file.read(&mut buffer).unwrap() > 0 {}
    start.elapsed()
}
