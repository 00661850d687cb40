//! The caller's terminal: raw while a command has a terminal, and restored afterwards in every case.

use std::{
    io::{self, IsTerminal},
    panic,
};

use parking_lot::Mutex;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use sandbar::TerminalSize;
use tokio::signal::unix::{Signal, SignalKind, signal};

const FALLBACK: &str = "xterm-256color";

/// Original mode of the terminal while it is raw.
static ORIGINAL: Mutex<Option<Termios>> = Mutex::new(None);

/// Raw mode until dropped: every key, also Ctrl-C, goes to the command, and its output is written unchanged.
pub(crate) struct Raw {
    resized: Signal,
    continued: Signal,
}

impl Raw {
    pub(crate) fn enter() -> io::Result<Self> {
        let resized = signal(SignalKind::window_change())?;
        let continued = signal(SignalKind::from_raw(rustix::process::Signal::CONT.as_raw()))?;
        let original = tcgetattr(io::stdin())?;
        *ORIGINAL.lock() = Some(original.clone());
        let report = panic::take_hook();
        panic::set_hook(Box::new(move |panicked| {
            restore();
            report(panicked);
        }));
        let raw = Self { resized, continued };
        apply(original)?;
        Ok(raw)
    }

    /// Waits until the terminal changes its size, or this process returns to the foreground.
    pub(crate) async fn resized(&mut self) -> TerminalSize {
        tokio::select! {
            _resized = self.resized.recv() => {}
            _continued = self.continued.recv() => {
                // The shell that used the terminal meanwhile left it in its own mode.
                if let Ok(current) = tcgetattr(io::stdin()) {
                    let _no_terminal_any_more = apply(current);
                }
            }
        }
        size()
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        restore();
    }
}

fn apply(mut mode: Termios) -> io::Result<()> {
    mode.make_raw();
    Ok(tcsetattr(io::stdin(), OptionalActions::Now, &mode)?)
}

fn restore() {
    let original = ORIGINAL.lock().take();
    if let Some(original) = original {
        let _no_terminal_any_more = tcsetattr(io::stdin(), OptionalActions::Now, &original);
    }
}

pub(crate) fn is_terminal() -> bool {
    io::stdin().is_terminal()
}

/// Size of the caller's terminal, or 24 by 80 without one.
pub(crate) fn size() -> TerminalSize {
    match tcgetwinsize(io::stdin()).or_else(|_| tcgetwinsize(io::stdout())) {
        Ok(size) => TerminalSize::new(size.ws_row, size.ws_col),
        Err(_) => TerminalSize::default(),
    }
}

/// Value of `TERM` for the command: that of the caller if it is a plain name.
pub(crate) fn kind(own: Option<&str>) -> &str {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '+' | '.' | '_');
    match own {
        Some(own) if !own.is_empty() && own.len() <= 64 && own != "." && own != ".." && own.chars().all(is_plain) => {
            own
        }
        _ => FALLBACK,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_plain_terminal_name_is_passed_to_the_command() {
        for own in ["xterm", "screen.xterm-256color", "st-0.8+x", "dumb"] {
            assert_eq!(kind(Some(own)), own);
        }
        let long = "x".repeat(65);
        for own in [None, Some(""), Some("../../etc/x"), Some(".."), Some("a b"), Some("a\n"), Some("ü"), Some(&long)]
        {
            assert_eq!(kind(own), FALLBACK, "{own:?}");
        }
    }
}
