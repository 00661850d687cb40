//! A person's yes at the terminal, for what is not done without one.

use std::io::{self, BufRead as _, IsTerminal as _};

use rustix::termios::{QueueSelector, tcflush};

use crate::render;

/// The exit code where it is missing or refused.
pub(crate) const UNASKED: u8 = 3;

/// What was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Consent {
    Given,
    /// There is no terminal to ask at.
    Missing,
    Refused,
}

/// Asks; anything but a yes is a no.
pub(crate) fn ask(question: &str) -> Consent {
    let stdin = io::stdin();
    if !stdin.is_terminal() || !io::stderr().is_terminal() {
        return Consent::Missing;
    }
    render::question(&format!("{question} [y/N] "));
    // What was typed before the question is no answer to it.
    let _no_terminal_any_more = tcflush(&stdin, QueueSelector::IFlush);
    let mut answer = String::new();
    let read = stdin.lock().read_line(&mut answer);
    match answer.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" if read.is_ok() => Consent::Given,
        _ => Consent::Refused,
    }
}
