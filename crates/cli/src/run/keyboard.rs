//! The keyboard of a terminal during a run: what is typed is not shown between the lines of the view, and what was typed
//! before a question is no answer to it.

use std::io;

use rustix::{
    process::getpgrp,
    termios::{LocalModes, OptionalActions, QueueSelector, Termios, tcflush, tcgetattr, tcgetpgrp, tcsetattr},
};

/// The keyboard, without an echo for as long as this lives; Ctrl-C works as ever.
pub(super) struct Keyboard {
    usual: Termios,
}

impl Keyboard {
    /// Nothing where nobody types: without a terminal, or behind another program's back.
    pub(super) fn hush() -> Option<Self> {
        let usual = tcgetattr(io::stdin()).ok().filter(|_| is_ours())?;
        let keyboard = Self { usual };
        keyboard.quiet();
        Some(keyboard)
    }

    /// From here on somebody sees what they type, and it counts.
    pub(super) fn ask(&self) {
        self.set(&self.usual);
        let _no_terminal_any_more = tcflush(io::stdin(), QueueSelector::IFlush);
    }

    /// From here on they do not.
    pub(super) fn quiet(&self) {
        let mut quiet = self.usual.clone();
        quiet.local_modes.remove(LocalModes::ECHO | LocalModes::ECHONL);
        self.set(&quiet);
    }

    /// Whoever changes a terminal that is somebody else's is stopped.
    fn set(&self, modes: &Termios) {
        if is_ours() {
            let _no_terminal_any_more = tcsetattr(io::stdin(), OptionalActions::Now, modes);
        }
    }
}

impl Drop for Keyboard {
    fn drop(&mut self) {
        self.set(&self.usual);
    }
}

fn is_ours() -> bool {
    tcgetpgrp(io::stdin()).is_ok_and(|group| group == getpgrp())
}
