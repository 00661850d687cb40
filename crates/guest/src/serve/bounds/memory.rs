//! Memory usage of commands, if only the guest limits it: how much each uses, and which one is killed.

use std::{
    collections::HashMap,
    os::fd::{AsFd, BorrowedFd},
    time::Duration,
};

use rustix::fs::{AtFlags, Mode, OFlags};
use sandbar_guest::protocol::ExitKind;

use super::{ALERT, Bounds, CALM, descriptors::Descriptors};
use crate::serve::{
    channels::Channels,
    process_trees::{
        ProcessTrees,
        signals::{self, listed},
    },
};
use crate::sys::process::page_size;

/// Memory usage in bytes.
#[derive(Clone, Copy, Default)]
struct Bytes {
    all: u64,
    /// Part of it that may belong to files in memory.
    of_files: u64,
}

impl Bytes {
    fn add(&mut self, other: Self) {
        self.all = self.all.saturating_add(other.all);
        self.of_files = self.of_files.saturating_add(other.of_files);
    }

    /// Adds memory that descriptors hold. How much of that is also mapped, and so already counted, is unknown: the most
    /// possible is assumed. A command that maps other shared memory to hide some is charged for that memory, and can
    /// reach at most twice the limit.
    fn with(self, in_descriptors: u64) -> u64 {
        self.all.saturating_add(in_descriptors.saturating_sub(self.of_files))
    }
}

/// Memory usage of each command's process tree, by tag.
struct Memory(HashMap<u64, Bytes>);

impl Memory {
    fn of(trees: &ProcessTrees, measure: impl Fn(BorrowedFd<'_>, &str) -> Option<Bytes>) -> Self {
        let proc = trees.proc();
        let mut by_tag: HashMap<u64, Bytes> = HashMap::new();
        for (pid, tag) in trees.members() {
            let bytes = measure(proc, &pid.to_string()).filter(|bytes| bytes.all > 0);
            let bytes = bytes.or_else(|| measure(proc, &other_thread(proc, pid)?));
            by_tag.entry(tag).or_default().add(bytes.unwrap_or_default());
        }
        Self(by_tag)
    }

    /// Summed over all commands first: one command may map what another has open.
    fn sum(&self, descriptors: &Descriptors) -> u64 {
        let mut sum = Bytes::default();
        self.0.values().for_each(|bytes| sum.add(*bytes));
        sum.with(descriptors.memory())
    }

    fn largest(&self, descriptors: &Descriptors) -> Option<u64> {
        let largest = self.0.iter().max_by_key(|(tag, bytes)| bytes.with(descriptors.memory_of(**tag)));
        largest.map(|(tag, _)| *tag)
    }
}

impl Bounds {
    /// Kills the largest process tree until the machine is below its limit; returns when to check again.
    pub(super) fn keep_memory(&mut self, limit: u64, trees: &mut ProcessTrees, channels: &mut Channels) -> Duration {
        let mut highest = 0;
        // Each round kills at least one command.
        for _ in 0..64 {
            let sum = Memory::of(trees, resident).sum(&self.descriptors);
            highest = highest.max(sum);
            // Shared pages were counted for each process: now measure precisely.
            if sum <= limit || self.exact_memory(trees).sum(&self.descriptors) <= limit {
                break;
            }
            // Memory may move between descriptors meanwhile: stop all commands until the decision is made.
            let stopped = trees.stop_all();
            self.look_into_descriptors(trees);
            let exactly = self.exact_memory(trees);
            let largest = exactly.largest(&self.descriptors).filter(|_| exactly.sum(&self.descriptors) > limit);
            if let Some(tag) = largest {
                channels.note_cause(|other| other == tag, ExitKind::Memory);
                trees.kill(|other| other == tag);
            }
            signals::resume(&stopped);
            if largest.is_none() {
                break;
            }
        }
        if highest > limit / 2 { ALERT } else { CALM }
    }

    fn exact_memory(&self, trees: &ProcessTrees) -> Memory {
        let looker = self.descriptors.looker();
        let memory = Memory::of(trees, |proc, process| {
            looker.become_owner(owner_of(proc, process)?);
            proportional(proc, process).or_else(|| resident(proc, process))
        });
        looker.be_oneself();
        memory
    }
}

/// Another thread of a process whose first thread has ended: that one shows no memory and no descriptors any more.
pub(crate) fn other_thread(proc: BorrowedFd<'_>, pid: i32) -> Option<String> {
    if resident(proc, &pid.to_string())?.all > 0 {
        return None;
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let threads = rustix::fs::openat(proc, format!("{pid}/task"), flags, Mode::empty()).ok()?;
    let mut threads = listed(threads.as_fd()).into_iter().map(|thread| format!("{pid}/task/{thread}"));
    threads.find(|thread| resident(proc, thread).is_some_and(|bytes| bytes.all > 0))
}

/// Owner of a process, who may inspect it.
pub(crate) fn owner_of(proc: BorrowedFd<'_>, process: &str) -> Option<(u32, u32)> {
    let stat = rustix::fs::statat(proc, process, AtFlags::empty()).ok()?;
    Some((stat.st_uid, stat.st_gid))
}

/// Resident memory of a process, shared pages included.
fn resident(proc: BorrowedFd<'_>, process: &str) -> Option<Bytes> {
    let text = read_of(proc, process, "statm")?;
    let mut pages = text.split(' ').skip(1).map(|field| field.parse::<u64>().ok());
    let mut bytes = || Some(pages.next()??.saturating_mul(page_size()));
    Some(Bytes { all: bytes()?, of_files: bytes()? })
}

/// Memory of a process that is not backed by disk; shared pages are divided among their users. Pages that were only
/// read from disk do not count: the kernel can reclaim them.
fn proportional(proc: BorrowedFd<'_>, process: &str) -> Option<Bytes> {
    let text = read_of(proc, process, "smaps_rollup")?;
    let bytes = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        Some(line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()?.saturating_mul(1024))
    };
    let whole = bytes("Pss")?;
    let Some((own, shared)) = bytes("Pss_Anon").zip(bytes("Pss_Shmem")) else {
        // Older kernels lack these two fields.
        return Some(Bytes { all: whole, of_files: whole });
    };
    Some(Bytes { all: own.saturating_add(shared), of_files: shared })
}

fn read_of(proc: BorrowedFd<'_>, process: &str, name: &str) -> Option<String> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(proc, format!("{process}/{name}"), flags, Mode::empty()).ok()?;
    let mut text = vec![0; 4096];
    let length = rustix::io::read(&file, &mut text).ok()?;
    text.truncate(length);
    String::from_utf8(text).ok()
}
