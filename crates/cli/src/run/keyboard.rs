//! The keyboard of a terminal during a run: keys are not echoed between the lines of the view, and input before a question is
//! discarded.

use std::io;

use rustix::{
    process::getpgrp,
    termios::{LocalModes, OptionalActions, QueueSelector, Termios, tcflush, tcgetattr, tcgetpgrp, tcsetattr},
};

/// The keyboard, without echo until dropped; Ctrl-C still works.
pub(super) struct Keyboard {
    usual: Termios,
}

impl Keyboard {
    /// Turns the echo off; `None` without a terminal, or in the background.
    pub(super) fn mute() -> Option<Self> {
        let usual = tcgetattr(io::stdin()).ok().filter(|_| is_ours())?;
        let keyboard = Self { usual };
        keyboard.quiet();
        Some(keyboard)
    }

    /// Discards earlier input, and turns the echo on.
    pub(super) fn ask(&self) {
        self.set(&self.usual);
        let _no_terminal_any_more = tcflush(io::stdin(), QueueSelector::IFlush);
    }

    /// Turns the echo off.
    pub(super) fn quiet(&self) {
        let mut quiet = self.usual.clone();
        quiet.local_modes.remove(LocalModes::ECHO | LocalModes::ECHONL);
        self.set(&quiet);
    }

    /// Changes the mode only in the foreground: the kernel stops a background process that changes its terminal.
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
