//! Every descendant of a command, however it was started, found by the tag it inherited.

use std::{
    collections::HashSet,
    io::{self, ErrorKind},
    os::fd::{AsFd, BorrowedFd},
    time::Duration,
};

use rustix::{
    fs::RawDir,
    io::Errno,
    process::{Pid, test_kill_process},
};

use super::late::Unsettled;
use crate::sys::process::{signal, tag_of};

/// Looks at the whole tree before giving up on it.
const LOOKS: usize = 1000;
/// Looks after which a tree that still grows is stopped by other means.
const PATIENT_LOOKS: usize = 3;
/// How often it is looked whether everything stands still, and how long apart.
const SETTLING: usize = 50;
const A_MOMENT: Duration = Duration::from_millis(1);

/// What ends a process that does not handle it, and what one that is stopped does not hear before it goes on.
const ENDING: [i32; 4] = [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM];

/// Sends a signal to everything with this tag, and lets go on what is stopped if it is asked to end. Killing is thorough: it
/// ends when no member is left, not when all known ones have been sent a signal. Returns the processes beside the tree that
/// may still have a child to come that is stopped.
pub(crate) fn signal_tree(proc: BorrowedFd<'_>, is_member: impl Fn(u64) -> bool, number: i32) -> Unsettled {
    let mut unsettled = Unsettled::default();
    if number == libc::SIGKILL {
        kill_tree(proc, &is_member, &mut unsettled);
        return unsettled;
    }
    let members = members(proc, &is_member);
    for pid in &members {
        signal(*pid, number);
    }
    if ENDING.contains(&number) {
        // Where `/proc` may not be read, what runs gets it too, which most programs do not notice.
        for pid in members.into_iter().filter(|pid| state(*pid).map_or(true, |state| state == Some(b'T'))) {
            signal(pid, libc::SIGCONT);
        }
    }
    unsettled
}

/// Kills until a look that began when all known members were dead finds no new one. Earlier would be too early: a process
/// in the middle of a fork when it was looked at leaves a child that the look has missed.
fn kill_tree(proc: BorrowedFd<'_>, is_member: &impl Fn(u64) -> bool, unsettled: &mut Unsettled) {
    let mut known = HashSet::new();
    let mut all_dead = false;
    for look in 0..LOOKS {
        let new = match look > PATIENT_LOOKS {
            true => freeze(proc, is_member, &mut known, unsettled),
            false => find(proc, is_member, &mut known),
        };
        if !new && all_dead {
            return;
        }
        all_dead = true;
        for pid in &known {
            if tag_of(*pid).is_some_and(is_member) {
                all_dead &= is_dead(*pid);
                signal(*pid, libc::SIGKILL);
            }
        }
        if !all_dead {
            rustix::thread::sched_yield();
        }
    }
}

/// Stops members that were not known; whether there were any. Newest first: of a chain of processes that each start the
/// next and end, the last is the one that counts.
fn find(proc: BorrowedFd<'_>, is_member: &impl Fn(u64) -> bool, known: &mut HashSet<i32>) -> bool {
    let mut new = false;
    for pid in listed(proc).into_iter().rev() {
        if !known.contains(&pid) && tag_of(pid).is_some_and(is_member) {
            signal(pid, libc::SIGSTOP);
            known.insert(pid);
            new = true;
        }
    }
    new
}

/// The same for a tree that grows faster than it can be looked at: everything in the namespace is stopped by one call,
/// which the kernel also delivers to what is just being forked, and what is not a member goes on.
fn freeze(
    proc: BorrowedFd<'_>,
    is_member: &impl Fn(u64) -> bool,
    known: &mut HashSet<i32>,
    unsettled: &mut Unsettled,
) -> bool {
    if !rustix::process::getpid().is_init() {
        return find(proc, is_member, known);
    }
    signal(-1, libc::SIGSTOP);
    let mut new = false;
    // Children before parents, so that no shell sees its job stopped.
    for pid in settled(proc).into_iter().rev() {
        match tag_of(pid) {
            Some(tag) if is_member(tag) => new |= known.insert(pid),
            tag => {
                unsettled.tags.extend(tag.filter(|_| !is_stopped(pid)));
                unsettled.seen.insert(pid);
                signal(pid, libc::SIGCONT);
            }
        }
    }
    new
}

/// Every process, once all have stopped that were told to, as far as that happens soon: a process in the middle of a fork
/// then has a child that is stopped, and listed as well.
fn settled(proc: BorrowedFd<'_>) -> Vec<i32> {
    let mut all = listed(proc);
    for _ in 0..SETTLING {
        let stopped = all.iter().all(|pid| *pid == 1 || stands_still(*pid) || is_beyond_reach(*pid));
        rustix::thread::sched_yield();
        let again = listed(proc);
        if stopped && again == all {
            break;
        }
        if !stopped {
            std::thread::sleep(A_MOMENT);
        }
        all = again;
    }
    all
}

/// Whether a process does nothing before it is told to: it is stopped, dead, or waits for something in the kernel.
fn stands_still(pid: i32) -> bool {
    state(pid).ok().flatten().is_none_or(|state| matches!(state, b'T' | b't' | b'Z' | b'X' | b'D'))
}

/// Whether a process is stopped, or will never do anything again.
pub(super) fn is_stopped(pid: i32) -> bool {
    state(pid).ok().flatten().is_none_or(|state| matches!(state, b'T' | b't' | b'Z' | b'X'))
}

/// Whether a process is not the guest's to stop: one that an engine executes beside a guest that is not root.
fn is_beyond_reach(pid: i32) -> bool {
    Pid::from_raw(pid).is_some_and(|pid| test_kill_process(pid) == Err(Errno::PERM))
}

/// What a process does, in one letter.
fn state(pid: i32) -> io::Result<Option<u8>> {
    let stat = std::fs::read(format!("/proc/{pid}/stat"))?;
    Ok(stat.iter().rposition(|byte| *byte == b')').and_then(|end| stat.get(end + 2)).copied())
}

/// Whether a process has ended and only waits to be reaped. Where `/proc` may not be read, one that was killed counts as
/// dead.
fn is_dead(pid: i32) -> bool {
    match state(pid) {
        Ok(state) => state.is_none_or(|state| matches!(state, b'Z' | b'X')),
        Err(error) => matches!(error.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied),
    }
}

fn members(proc: BorrowedFd<'_>, is_member: &impl Fn(u64) -> bool) -> Vec<i32> {
    listed(proc).into_iter().filter(|pid| tag_of(*pid).is_some_and(is_member)).collect()
}

/// Stops every member, and all that are just being made; which ones.
pub(crate) fn stop(proc: BorrowedFd<'_>, is_member: impl Fn(u64) -> bool) -> Vec<i32> {
    let mut known = HashSet::new();
    for _ in 0..LOOKS {
        if !find(proc, &is_member, &mut known) {
            break;
        }
    }
    known.into_iter().collect()
}

/// Lets processes go on that were stopped: children first, so that no shell sees its job stopped.
pub(crate) fn resume(stopped: &[i32]) {
    let mut stopped = stopped.to_vec();
    stopped.sort_unstable_by(|a, b| b.cmp(a));
    for pid in stopped {
        signal(pid, libc::SIGCONT);
    }
}

/// Every process there is, by number.
pub(crate) fn listed(proc: BorrowedFd<'_>) -> Vec<i32> {
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

    /// Whether a tag is one of these.
    pub(crate) fn has(&self, tag: u64) -> bool {
        tag & !u64::from(u32::MAX) == self.base
    }

    /// Kills everything this machine ever started.
    pub(crate) fn kill_all(&self, proc: &impl AsFd) {
        // Nothing beside them is left to have children.
        let _none = signal_tree(proc.as_fd(), |tag| self.has(tag), libc::SIGKILL);
    }
}
