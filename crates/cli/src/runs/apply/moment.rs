//! How far an apply is, shared with whoever hears signals: before it begins it may be given up, then only be taken back.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

const LOOKING: u8 = 0;
const COMMITTING: u8 = 1;
const GIVEN_UP: u8 = 2;

#[derive(Debug, Default)]
pub(super) struct Moment {
    phase: AtomicU8,
    cancelled: AtomicBool,
}

impl Moment {
    /// From here on files are changed; false if it was given up before.
    pub(super) fn commit(&self) -> bool {
        self.phase.compare_exchange(LOOKING, COMMITTING, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Gives it up. Whether nothing was begun, and nothing ever will be.
    pub(super) fn give_up(&self) -> bool {
        self.cancelled.store(true, Ordering::SeqCst);
        self.phase.compare_exchange(LOOKING, GIVEN_UP, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    pub(super) fn cancelled(&self) -> &AtomicBool {
        &self.cancelled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_given_up_never_begins_and_what_began_is_told() {
        let moment = Moment::default();
        assert!(moment.give_up() && !moment.commit());
        let moment = Moment::default();
        assert!(moment.commit() && !moment.give_up());
        assert!(moment.cancelled().load(Ordering::SeqCst));
    }
}
