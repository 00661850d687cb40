//! Children that are born stopped: forks that were under way when everything was stopped, found and let go on.

use std::{
    collections::HashSet,
    os::fd::BorrowedFd,
    time::{Duration, Instant},
};

use super::tree::{is_stopped, listed};
use crate::sys::process::{signal, tag_of};

/// How soon it is looked for the first time; each look after it waits twice as long as the one before.
const FIRST: Duration = Duration::from_millis(5);
/// No look waits longer: a fork that takes a quarter of a minute is not expected.
const LONGEST: Duration = Duration::from_secs(8);

/// Processes that had not stopped when the others were let go on. Each may have been in the middle of a fork.
#[derive(Debug, Default)]
#[must_use]
pub(crate) struct Unsettled {
    /// The tags of these processes, which their children have too.
    pub(crate) tags: HashSet<u64>,
    /// Every process that was there, and was let go on.
    pub(crate) seen: HashSet<i32>,
}

/// The children to look for. The kernel stops them at their birth, and takes that back for no signal sent before it.
#[derive(Debug, Default)]
pub(crate) struct Late {
    sought: Unsettled,
    next: Option<(Instant, Duration)>,
}

impl Late {
    /// Looks for the children of these as well.
    pub(crate) fn add(&mut self, unsettled: Unsettled) {
        if unsettled.tags.is_empty() {
            return;
        }
        self.sought.tags.extend(unsettled.tags);
        self.sought.seen.extend(unsettled.seen);
        self.next = Some((Instant::now() + FIRST, FIRST));
    }

    /// When to look next.
    pub(crate) fn wakes_at(&self) -> Option<Instant> {
        self.next.map(|(at, _)| at)
    }

    /// Looks, if it is time.
    pub(crate) fn look(&mut self, proc: BorrowedFd<'_>) {
        let Some((_, pause)) = self.next.filter(|(at, _)| *at <= Instant::now()) else { return };
        for pid in listed(proc).into_iter().rev() {
            let is_child =
                !self.sought.seen.contains(&pid) && tag_of(pid).is_some_and(|tag| self.sought.tags.contains(&tag));
            if is_child && is_stopped(pid) {
                signal(pid, libc::SIGCONT);
            }
        }
        let pause = pause * 2;
        self.next = (pause <= LONGEST).then(|| (Instant::now() + pause, pause));
        if self.next.is_none() {
            self.sought = Unsettled::default();
        }
    }
}
