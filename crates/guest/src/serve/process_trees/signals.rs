//! Finds and signals every descendant of a command by its inherited tag, despite processes that are just being forked.

use std::{
    collections::HashSet,
    io::{self, ErrorKind},
    os::fd::BorrowedFd,
    time::Duration,
};

use rustix::{
    fs::RawDir,
    io::Errno,
    process::{Pid, test_kill_process},
};

use super::forks::UnfinishedForks;
use crate::sys::process::{signal, tag_of};

/// Most scans of a process tree.
const LOOKS: usize = 1000;
/// Scans after which a tree that still grows is stopped by other means.
const PATIENT_LOOKS: usize = 3;
/// Most checks whether everything stands still, and the pause between them.
const SETTLING: usize = 50;
const A_MOMENT: Duration = Duration::from_millis(1);

/// Signals that end a process by default, and that a stopped process receives only after it is resumed.
const ENDING: [i32; 4] = [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM];

/// Sends a signal to every process with this tag, and resumes stopped ones for a signal that asks them to end. SIGKILL
/// is thorough: it is repeated until no member is left. Returns processes outside the tree that may still fork a
/// stopped child.
pub(crate) fn signal_tree(proc: BorrowedFd<'_>, is_member: impl Fn(u64) -> bool, number: i32) -> UnfinishedForks {
    let mut unfinished = UnfinishedForks::default();
    if number == libc::SIGKILL {
        kill_tree(proc, &is_member, &mut unfinished);
        return unfinished;
    }
    let members = members(proc, &is_member);
    for pid in &members {
        signal(*pid, number);
    }
    if ENDING.contains(&number) {
        // If `/proc` is not readable, running processes get SIGCONT too, which most programs do not notice.
        for pid in members.into_iter().filter(|pid| state(*pid).map_or(true, |state| state == Some(b'T'))) {
            signal(pid, libc::SIGCONT);
        }
    }
    unfinished
}

/// Kills until a scan that began when all known members were dead finds no new one. Stopping earlier would miss
/// children: a process that was in the middle of a fork during a scan leaves a child that the scan did not see.
fn kill_tree(proc: BorrowedFd<'_>, is_member: &impl Fn(u64) -> bool, unfinished: &mut UnfinishedForks) {
    let mut known = HashSet::new();
    let mut all_dead = false;
    for look in 0..LOOKS {
        let new = match look > PATIENT_LOOKS {
            true => freeze(proc, is_member, &mut known, unfinished),
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

/// Stops unknown members; returns whether there were any. Newest first: in a chain of processes that each start the
/// next and exit, the last one matters.
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

/// The same for a tree that grows faster than it can be scanned: one call stops everything in the namespace, including
/// processes that are just being forked, and processes outside the tree are resumed.
fn freeze(
    proc: BorrowedFd<'_>,
    is_member: &impl Fn(u64) -> bool,
    known: &mut HashSet<i32>,
    unfinished: &mut UnfinishedForks,
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
                unfinished.tags.extend(tag.filter(|_| !is_stopped(pid)));
                unfinished.seen.insert(pid);
                signal(pid, libc::SIGCONT);
            }
        }
    }
    new
}

/// All processes, once all that were signalled have stopped, within a short time: then a process in the middle of a
/// fork has a stopped child that is listed too.
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

/// Whether a process does nothing until it is resumed: it is stopped, dead, or in uninterruptible sleep.
fn stands_still(pid: i32) -> bool {
    state(pid).ok().flatten().is_none_or(|state| matches!(state, b'T' | b't' | b'Z' | b'X' | b'D'))
}

/// Whether a process is stopped or dead.
pub(crate) fn is_stopped(pid: i32) -> bool {
    state(pid).ok().flatten().is_none_or(|state| matches!(state, b'T' | b't' | b'Z' | b'X'))
}

/// Whether the guest may not signal a process: one that an engine executes beside a guest that is not root.
fn is_beyond_reach(pid: i32) -> bool {
    Pid::from_raw(pid).is_some_and(|pid| test_kill_process(pid) == Err(Errno::PERM))
}

/// State of a process as one letter.
fn state(pid: i32) -> io::Result<Option<u8>> {
    let stat = std::fs::read(format!("/proc/{pid}/stat"))?;
    Ok(stat.iter().rposition(|byte| *byte == b')').and_then(|end| stat.get(end + 2)).copied())
}

/// Whether a process has ended and only waits to be reaped. If `/proc` is not readable, a process that was killed
/// counts as dead.
fn is_dead(pid: i32) -> bool {
    match state(pid) {
        Ok(state) => state.is_none_or(|state| matches!(state, b'Z' | b'X')),
        Err(error) => matches!(error.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied),
    }
}

fn members(proc: BorrowedFd<'_>, is_member: &impl Fn(u64) -> bool) -> Vec<i32> {
    listed(proc).into_iter().filter(|pid| tag_of(*pid).is_some_and(is_member)).collect()
}

/// Stops every member, including those that are just being forked; returns their pids.
pub(crate) fn stop(proc: BorrowedFd<'_>, is_member: impl Fn(u64) -> bool) -> Vec<i32> {
    let mut known = HashSet::new();
    for _ in 0..LOOKS {
        if !find(proc, &is_member, &mut known) {
            break;
        }
    }
    known.into_iter().collect()
}

/// Resumes stopped processes, children first, so that no shell sees its job stopped.
pub(crate) fn resume(stopped: &[i32]) {
    let mut stopped = stopped.to_vec();
    stopped.sort_unstable_by(|a, b| b.cmp(a));
    for pid in stopped {
        signal(pid, libc::SIGCONT);
    }
}

/// The pids of all processes.
pub(crate) fn listed(proc: BorrowedFd<'_>) -> Vec<i32> {
    // Through the handle that is always open: listing must not fail for lack of descriptors, or because Landlock
    // refuses to open `/proc` again.
    let _rewound = rustix::fs::seek(proc, rustix::fs::SeekFrom::Start(0));
    let mut buffer = Vec::with_capacity(16 * 1024);
    let mut entries = RawDir::new(proc, buffer.spare_capacity_mut());
    let mut found = Vec::new();
    while let Some(Ok(entry)) = entries.next() {
        found.extend(entry.file_name().to_str().ok().and_then(|name| name.parse::<i32>().ok()));
    }
    found
}
