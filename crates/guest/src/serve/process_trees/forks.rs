//! Resumes children that were born stopped: forks that were in progress when everything was stopped.

use std::{
    collections::HashSet,
    os::fd::BorrowedFd,
    time::{Duration, Instant},
};

use super::signals::{is_stopped, listed};
use crate::sys::process::{signal, tag_of};

/// Delay of the first check; each further delay is twice as long.
const FIRST: Duration = Duration::from_millis(5);
/// Longest delay before the search ends: no fork should take that long.
const LONGEST: Duration = Duration::from_secs(8);

/// Processes that had not stopped yet when the others were resumed. Each may have been in the middle of a fork.
#[derive(Debug, Default)]
#[must_use]
pub(crate) struct UnfinishedForks {
    /// Tags of these processes, which their children inherit.
    pub(crate) tags: HashSet<u64>,
    /// Every process that existed then, and was resumed.
    pub(crate) seen: HashSet<i32>,
}

/// The children to look for. The kernel stops them at birth, and a SIGCONT sent before that has no effect.
#[derive(Debug, Default)]
pub(crate) struct ForkWatch {
    sought: UnfinishedForks,
    next: Option<(Instant, Duration)>,
}

impl ForkWatch {
    /// Adds processes whose children to look for.
    pub(crate) fn add(&mut self, unfinished: UnfinishedForks) {
        if unfinished.tags.is_empty() {
            return;
        }
        self.sought.tags.extend(unfinished.tags);
        self.sought.seen.extend(unfinished.seen);
        self.next = Some((Instant::now() + FIRST, FIRST));
    }

    /// Time of the next check.
    pub(crate) fn wakes_at(&self) -> Option<Instant> {
        self.next.map(|(at, _)| at)
    }

    /// Checks, if it is time.
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
            self.sought = UnfinishedForks::default();
        }
    }
}
