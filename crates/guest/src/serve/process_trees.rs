//! The process trees of a machine's commands. Each tree has a tag, which all its processes inherit.

mod forks;
pub(super) mod signals;

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::Instant,
};

use self::forks::ForkWatch;
use super::Scope;
use crate::sys::{
    process::{signal, tag_of},
    security::Token,
};

/// The process trees of a machine.
pub(super) struct ProcessTrees {
    /// `/proc`, always open: no shortage of descriptors can keep the guest from finding processes.
    proc: OwnedFd,
    scope: Scope,
    tags: Tags,
    forks: ForkWatch,
}

impl ProcessTrees {
    pub(super) fn new(proc: OwnedFd, scope: Scope) -> io::Result<Self> {
        Ok(Self { proc, scope, tags: Tags::new(Token::random()?.0[0]), forks: ForkWatch::default() })
    }

    pub(super) fn proc(&self) -> BorrowedFd<'_> {
        self.proc.as_fd()
    }

    /// A tag for the tree of another command.
    pub(super) fn take_tag(&mut self) -> u64 {
        self.tags.take()
    }

    /// Sends a signal to every process of a tree.
    pub(super) fn signal(&mut self, tag: u64, number: i32) {
        self.forks.add(signals::signal_tree(self.proc.as_fd(), |other| other == tag, number));
    }

    /// Kills the trees with these tags.
    pub(super) fn kill(&mut self, which: impl Fn(u64) -> bool) {
        let tags = &self.tags;
        self.forks.add(signals::signal_tree(self.proc.as_fd(), |tag| tags.has(tag) && which(tag), libc::SIGKILL));
    }

    /// Kills everything that this machine has started, before it ends.
    pub(super) fn kill_all(&self) {
        match self.scope {
            // The kernel kills everything when PID 1 ends; killing here first makes the teardown of a container faster.
            Scope::Namespace if rustix::process::getpid().is_init() => signal(-1, libc::SIGKILL),
            _ => {
                // No other processes are left that could have children.
                let _none = signals::signal_tree(self.proc.as_fd(), |tag| self.tags.has(tag), libc::SIGKILL);
            }
        }
    }

    /// Stops every process of every tree; returns their pids.
    pub(super) fn stop_all(&self) -> Vec<i32> {
        signals::stop(self.proc.as_fd(), |tag| self.tags.has(tag))
    }

    /// All processes of all trees, with their tags.
    pub(super) fn members(&self) -> impl Iterator<Item = (i32, u64)> {
        let member = |pid: i32| tag_of(pid).filter(|tag| self.tags.has(*tag)).map(|tag| (pid, tag));
        signals::listed(self.proc.as_fd()).into_iter().filter_map(member)
    }

    /// Resumes children that were born stopped, if it is time to look for them.
    pub(super) fn resume_forks(&mut self) {
        self.forks.look(self.proc.as_fd());
    }

    /// When `resume_forks` has something to do.
    pub(super) fn wakes_at(&self) -> Option<Instant> {
        self.forks.wakes_at()
    }
}

/// Generates tags for commands: unlike those of any other machine on this host, so that machines without a PID
/// namespace cannot confuse each other's processes.
struct Tags {
    base: u64,
    next: u32,
}

const BASE: u64 = 0x3FFF_FFFF_0000_0000;

impl Tags {
    fn new(random: u64) -> Self {
        Self { base: (random & BASE) | 1 << 61, next: 0 }
    }

    fn take(&mut self) -> u64 {
        self.next = self.next.wrapping_add(1);
        self.base | u64::from(self.next)
    }

    /// Whether a tag belongs to this machine.
    fn has(&self, tag: u64) -> bool {
        tag & !u64::from(u32::MAX) == self.base
    }
}
