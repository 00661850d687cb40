//! Every descendant of a command, however it was started, found by the tag it inherited.

use std::{
    collections::HashSet,
    os::fd::{AsFd, BorrowedFd},
};

use rustix::fs::Dir;

use crate::sys::process::{signal, tag_of};

/// Rounds of looking for processes that were started while others were being stopped.
const ROUNDS: usize = 64;

/// Sends a signal to everything with this tag. Killing is thorough: all are stopped first, so that none can start another
/// while it is being killed.
pub(crate) fn signal_tree(proc: BorrowedFd<'_>, is_member: impl Fn(u64) -> bool, number: i32) {
    if number != libc::SIGKILL {
        for pid in members(proc, &is_member) {
            signal(pid, number);
        }
        return;
    }
    let mut known = HashSet::new();
    for _ in 0..ROUNDS {
        let before = known.len();
        for pid in members(proc, &is_member) {
            if known.insert(pid) {
                signal(pid, libc::SIGSTOP);
            }
        }
        if known.len() == before {
            break;
        }
    }
    for pid in known {
        // Looked at again: the number may belong to someone else by now.
        if tag_of(pid).is_some_and(&is_member) {
            signal(pid, libc::SIGKILL);
        }
    }
}

fn members(proc: BorrowedFd<'_>, is_member: &impl Fn(u64) -> bool) -> Vec<i32> {
    let Ok(fresh) = rustix::fs::openat(
        proc,
        ".",
        rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    )
    .or_else(|_| rustix::io::dup(proc)) else {
        return Vec::new();
    };
    // Under the Landlock level `/proc` cannot be opened again; the handle from before it is rewound instead.
    let _rewound = rustix::fs::seek(&fresh, rustix::fs::SeekFrom::Start(0));
    let Ok(mut dir) = Dir::new(fresh) else { return Vec::new() };
    let mut found = Vec::new();
    while let Some(Ok(entry)) = dir.read() {
        let Some(pid) = entry.file_name().to_str().ok().and_then(|name| name.parse::<i32>().ok()) else { continue };
        if tag_of(pid).is_some_and(is_member) {
            found.push(pid);
        }
    }
    found
}

/// Numbers for tagging commands: unlike any other machine's on this host, so that without a PID namespace one machine
/// cannot take another's processes for its own.
pub(crate) struct Tags {
    base: u64,
    next: u32,
}

const BASE: u64 = 0x3FFF_FFFF_0000_0000;

impl Tags {
    pub(crate) fn new(random: u64) -> Self {
        Self { base: (random & BASE) | 1 << 61, next: 0 }
    }

    pub(crate) fn take(&mut self) -> u64 {
        self.next = self.next.wrapping_add(1);
        self.base | u64::from(self.next)
    }

    /// Kills everything this machine ever started.
    pub(crate) fn kill_all(&self, proc: &impl AsFd) {
        let base = self.base;
        signal_tree(proc.as_fd(), |tag| tag & !u64::from(u32::MAX) == base, libc::SIGKILL);
    }
}
