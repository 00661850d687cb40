//! The phase of an apply, shared with the signal handler: before the commit it can be abandoned, then it is undone.

use std::sync::atomic::{AtomicU8, Ordering};

use sandbar_runs::CancellationToken;

const PLANNING: u8 = 0;
const COMMITTING: u8 = 1;
const ABANDONED: u8 = 2;

#[derive(Debug, Default)]
pub(super) struct Moment {
    phase: AtomicU8,
    cancel: CancellationToken,
}

impl Moment {
    /// Starts the commit. Returns false if the apply was abandoned before.
    pub(super) fn commit(&self) -> bool {
        self.phase.compare_exchange(PLANNING, COMMITTING, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Cancels the apply. Returns true if no file was changed, and none will be.
    pub(super) fn cancel(&self) -> bool {
        self.cancel.cancel();
        self.phase.compare_exchange(PLANNING, ABANDONED, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    pub(super) fn token(&self) -> &CancellationToken {
        &self.cancel
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_abandoned_apply_never_commits_and_a_commit_is_cancelled() {
        let moment = Moment::default();
        assert!(moment.cancel() && !moment.commit());
        let moment = Moment::default();
        assert!(moment.commit() && !moment.cancel());
        assert!(moment.token().is_cancelled());
    }
}
