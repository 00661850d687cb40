//! Every descendant of a command, however it was started, found by the tag it inherited.

use std::{
    collections::HashSet,
    os::fd::{AsFd, BorrowedFd},
};

use rustix::fs::RawDir;

use crate::sys::process::{signal, tag_of};

/// Rounds of looking for processes that were started while others were being stopped.
const ROUNDS: usize = 16;
/// Tries at killing everything.
const LOOKS: usize = 200;

/// Sends a signal to everything with this tag. Killing is thorough: all are stopped first, so that none can start another
/// while it is being killed.
pub(crate) fn signal_tree(proc: BorrowedFd<'_>, is_member: impl Fn(u64) -> bool, number: i32) {
    if number != libc::SIGKILL {
        for pid in members(proc, &is_member) {
            signal(pid, number);
        }
        return;
    }
    // Looked for again until a look finds nobody alive: a link may have been missed between two looks.
    for _ in 0..LOOKS {
        if !kill_once(proc, &is_member) {
            return;
        }
    }
}

/// One try; `false` when there was nobody left to kill.
fn kill_once(proc: BorrowedFd<'_>, is_member: &impl Fn(u64) -> bool) -> bool {
    let (mut known, mut caught) = (HashSet::new(), false);
    for _ in 0..ROUNDS {
        let mut quiet = true;
        // Newest first and each stopped at once: a chain of processes that each start the next and end must be caught
        // before its next link, and its dead links, which stay listed until they are reaped, must cost nothing.
        for pid in listed(proc).into_iter().rev().filter(|pid| !known.contains(pid)).collect::<Vec<_>>() {
            match tag_of(pid) {
                Some(tag) if is_member(tag) => {
                    signal(pid, libc::SIGSTOP);
                    known.insert(pid);
                    quiet = false;
                }
                Some(_) => {}
                // It ended since it was listed, and may have started another.
                None => quiet = false,
            }
        }
        if quiet {
            caught = true;
            break;
        }
    }
    // A chain too quick to be caught link by link: everything in the namespace is stopped by one call, which the kernel
    // also delivers to processes being forked, and what is not ours goes on.
    if !caught && rustix::process::getpid().is_init() {
        signal(-1, libc::SIGSTOP);
        for pid in listed(proc) {
            match tag_of(pid) {
                Some(tag) if is_member(tag) => drop(known.insert(pid)),
                _ => signal(pid, libc::SIGCONT),
            }
        }
    }
    let mut alive = false;
    for pid in known {
        // Looked at again: the number may belong to someone else by now.
        if tag_of(pid).is_some_and(is_member) {
            signal(pid, libc::SIGKILL);
            alive |= !is_dead(pid);
        }
    }
    alive
}

/// Whether a process has ended and only waits to be reaped.
fn is_dead(pid: i32) -> bool {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.iter().rposition(|byte| *byte == b')').and_then(|end| stat.get(end + 2));
    state.is_none_or(|state| matches!(state, b'Z' | b'X'))
}

fn members(proc: BorrowedFd<'_>, is_member: &impl Fn(u64) -> bool) -> Vec<i32> {
    listed(proc).into_iter().filter(|pid| tag_of(*pid).is_some_and(is_member)).collect()
}

/// Every process there is, by number.
fn listed(proc: BorrowedFd<'_>) -> Vec<i32> {
    // Through the handle that is always open: looking must not fail because descriptors have run out, nor because
    // Landlock would not let `/proc` be opened again.
    let _rewound = rustix::fs::seek(proc, rustix::fs::SeekFrom::Start(0));
    let mut buffer = Vec::with_capacity(16 * 1024);
    let mut entries = RawDir::new(proc, buffer.spare_capacity_mut());
    let mut found = Vec::new();
    while let Some(Ok(entry)) = entries.next() {
        found.extend(entry.file_name().to_str().ok().and_then(|name| name.parse::<i32>().ok()));
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
