//! The memory of commands, where only the guest holds them to a limit: how much each of them uses, and which one has to end.

use std::{
    collections::HashMap,
    os::fd::{AsFd, BorrowedFd},
    time::Duration,
};

use rustix::fs::{AtFlags, Mode, OFlags};
use sandbar_guest::protocol::ExitKind;

use super::{
    Server,
    bounds::{ALERT, CALM},
    descriptors::Descriptors,
    tree::{self, listed},
};
use crate::sys::process::{page_size, tag_of};

/// Bytes in memory.
#[derive(Clone, Copy, Default)]
struct Bytes {
    all: u64,
    /// Those among them that can be of a file in memory.
    of_files: u64,
}

impl Bytes {
    fn add(&mut self, other: Self) {
        self.all = self.all.saturating_add(other.all);
        self.of_files = self.of_files.saturating_add(other.of_files);
    }

    /// With what is in descriptors. Nobody says which of it is mapped, and counted already: as much as can be. Whoever maps
    /// other shared memory to hide some counts for that, and can have twice the limit at most.
    fn with(self, in_descriptors: u64) -> u64 {
        self.all.saturating_add(in_descriptors.saturating_sub(self.of_files))
    }
}

/// What each command and everything it started has in memory, by its tag.
struct Memory(HashMap<u64, Bytes>);

impl Memory {
    /// Over all commands at once: what one of them has open may be mapped by another.
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

impl Server {
    /// Kills the tree that uses most, until the machine is below its limit; when to look again.
    pub(super) fn keep_memory(&mut self, limit: u64) -> Duration {
        let mut highest = 0;
        // Each look ends one command at least; there are only so many.
        for _ in 0..64 {
            let sum = self.memory(resident).sum(&self.settings.bounds.descriptors);
            highest = highest.max(sum);
            // Pages that several processes share were counted for each of them: now more exactly.
            if sum <= limit || self.exact_memory().sum(&self.settings.bounds.descriptors) <= limit {
                break;
            }
            // What was in a descriptor a moment ago may be elsewhere by now: nobody moves while it is decided.
            let stopped = self.stop_all();
            self.look_into_descriptors();
            let exactly = self.exact_memory();
            let descriptors = &self.settings.bounds.descriptors;
            let largest = exactly.largest(descriptors).filter(|_| exactly.sum(descriptors) > limit);
            if let Some(tag) = largest {
                self.end_trees(|other| other == tag, ExitKind::Memory);
            }
            tree::resume(&stopped);
            if largest.is_none() {
                break;
            }
        }
        if highest > limit / 2 { ALERT } else { CALM }
    }

    fn exact_memory(&self) -> Memory {
        let looker = self.settings.bounds.descriptors.looker();
        let memory = self.memory(|proc, process| {
            looker.become_owner(owner_of(proc, process)?);
            proportional(proc, process).or_else(|| resident(proc, process))
        });
        looker.be_oneself();
        memory
    }

    fn memory(&self, measure: impl Fn(BorrowedFd<'_>, &str) -> Option<Bytes>) -> Memory {
        let proc = self.settings.proc.as_fd();
        let mut trees: HashMap<u64, Bytes> = HashMap::new();
        for pid in listed(proc) {
            let Some(tag) = tag_of(pid).filter(|tag| self.tags.has(*tag)) else { continue };
            let bytes = measure(proc, &pid.to_string()).filter(|bytes| bytes.all > 0);
            let bytes = bytes.or_else(|| measure(proc, &other_thread(proc, pid)?));
            trees.entry(tag).or_default().add(bytes.unwrap_or_default());
        }
        Memory(trees)
    }
}

/// A thread to ask instead of a process whose first one has ended, which has no memory and no descriptors any more.
pub(super) fn other_thread(proc: BorrowedFd<'_>, pid: i32) -> Option<String> {
    if resident(proc, &pid.to_string())?.all > 0 {
        return None;
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let threads = rustix::fs::openat(proc, format!("{pid}/task"), flags, Mode::empty()).ok()?;
    let mut threads = listed(threads.as_fd()).into_iter().map(|thread| format!("{pid}/task/{thread}"));
    threads.find(|thread| resident(proc, thread).is_some_and(|bytes| bytes.all > 0))
}

/// Whoever may look closely at a process.
pub(super) fn owner_of(proc: BorrowedFd<'_>, process: &str) -> Option<(u32, u32)> {
    let stat = rustix::fs::statat(proc, process, AtFlags::empty()).ok()?;
    Some((stat.st_uid, stat.st_gid))
}

/// Bytes of a process that are in memory, shared ones included.
fn resident(proc: BorrowedFd<'_>, process: &str) -> Option<Bytes> {
    let text = read_of(proc, process, "statm")?;
    let mut pages = text.split(' ').skip(1).map(|field| field.parse::<u64>().ok());
    let mut bytes = || Some(pages.next()??.saturating_mul(page_size()));
    Some(Bytes { all: bytes()?, of_files: bytes()? })
}

/// Bytes of a process that are in memory and nowhere else, shared ones divided among those who share them. What is only read
/// from a file on disk takes nothing that the kernel could not take back.
fn proportional(proc: BorrowedFd<'_>, process: &str) -> Option<Bytes> {
    let text = read_of(proc, process, "smaps_rollup")?;
    let bytes = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        Some(line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()?.saturating_mul(1024))
    };
    let whole = bytes("Pss")?;
    let Some((own, shared)) = bytes("Pss_Anon").zip(bytes("Pss_Shmem")) else {
        // An older kernel.
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
