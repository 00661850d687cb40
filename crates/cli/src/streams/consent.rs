//! Asks for consent at the terminal.

use std::io::{self, BufRead as _, IsTerminal as _};

use rustix::termios::{QueueSelector, tcflush};

use crate::render;

/// Exit code if consent is missing or refused.
pub(crate) const UNASKED: u8 = 3;

/// Answer to a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Consent {
    Given,
    /// There is no terminal to ask on.
    Missing,
    Refused,
}

/// Asks the question; every answer except yes is a no.
pub(crate) fn ask(question: &str) -> Consent {
    let stdin = io::stdin();
    if !stdin.is_terminal() || !io::stderr().is_terminal() {
        return Consent::Missing;
    }
    // Discard what was typed before the question. After the question is shown, a quick answer would be lost.
    let _terminal_is_gone = tcflush(&stdin, QueueSelector::IFlush);
    render::question(&format!("{question} [y/N] "));
    let mut answer = String::new();
    let read = stdin.lock().read_line(&mut answer);
    match answer.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" if read.is_ok() => Consent::Given,
        _ => Consent::Refused,
    }
}
