//! Output of sandbar: results on standard output, messages on standard error. No other module prints.

use std::{
    env,
    io::{self, IsTerminal, Write},
    os::fd::AsFd,
};

use clap::error::ErrorKind;
use sandbar::{machine::Endpoint, sandbox::Materialised};

use crate::{
    args::Color,
    failure::Failure,
    streams::writer::{PATIENCE, is_ready},
};

/// Exit code of a program whose reader closed the pipe: 128 + SIGPIPE.
pub(crate) const CLOSED: u8 = 141;

/// Style of a piece of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    Strong,
    Faint,
    Good,
    Doubtful,
    Bad,
    /// A removed line.
    Removed,
    /// A position in a file.
    Place,
}

/// Message in place of lost output of a command. Ends with CRLF because the terminal may be raw.
pub(crate) fn omitted(count: u64) -> String {
    format!("sandbar: {count} bytes of unread output were dropped\r\n")
}

/// Writer of results and messages; knows which stream is coloured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Render {
    stdout: Paint,
    stderr: Paint,
    patience: Patience,
}

/// What happens to messages while standard error is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Patience {
    /// Wait for the reader.
    Waits,
    /// Drop the message.
    Drops,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Paint {
    Plain,
    Coloured,
}

impl Default for Render {
    fn default() -> Self {
        Self::new(Color::Auto)
    }
}

impl Render {
    pub(crate) fn new(color: Color) -> Self {
        let refused = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self {
            stdout: Paint::choose(color, io::stdout().is_terminal(), refused),
            stderr: Paint::choose(color, io::stderr().is_terminal(), refused),
            patience: Patience::Waits,
        }
    }

    /// Starts logging at the level of `--verbose`.
    pub(crate) fn trace(&self, verbose: u8) {
        let level = match verbose {
            0 => return,
            1 => tracing::Level::INFO,
            2 => tracing::Level::DEBUG,
            _ => tracing::Level::TRACE,
        };
        let to_stderr = tracing_subscriber::fmt().with_writer(io::stderr).with_max_level(level);
        let _already_set = to_stderr.with_target(false).without_time().try_init();
    }

    /// Text for standard output, styled if that is coloured.
    pub(crate) fn paint(&self, style: Style, text: &str) -> String {
        self.stdout.apply(style, text)
    }

    /// Text for standard error, styled if that is coloured.
    pub(crate) fn paint_progress(&self, style: Style, text: &str) -> String {
        self.stderr.apply(style, text)
    }

    /// A copy without colour.
    pub(crate) fn uncoloured(&self) -> Self {
        Self { stdout: Paint::Plain, stderr: Paint::Plain, ..*self }
    }

    /// A copy for messages that must not delay the end of this process.
    pub(crate) fn hurried(&self) -> Self {
        Self { patience: Patience::Drops, ..*self }
    }

    /// Whether standard output is a terminal.
    pub(crate) fn result_is_seen(&self) -> bool {
        io::stdout().is_terminal()
    }

    /// Writes the result of a subcommand; the exit code says whether the reader closed the pipe.
    pub(crate) fn result(&self, bytes: &[u8]) -> Result<u8, Failure> {
        let mut stdout = io::stdout().lock();
        match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
            Ok(()) => Ok(0),
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(CLOSED),
            Err(error) => Err(Failure::new("cannot write the result").because(error)),
        }
    }

    pub(crate) fn failure(&self, failure: &Failure) {
        let text = inert(&failure.to_string());
        self.say(&format!("{} {text}", self.stderr.apply(Style::Bad, "sandbar:")));
    }

    /// Writes a failure as JSON to standard error.
    pub(crate) fn failure_document(&self, failure: &Failure) {
        self.say(&failure.document().to_string());
    }

    /// Whether standard error is a terminal.
    pub(crate) fn has_terminal(&self) -> bool {
        io::stderr().is_terminal()
    }

    /// Whether results are shown to a user: standard output is a terminal, or coloured.
    pub(crate) fn is_watched(&self) -> bool {
        self.stdout == Paint::Coloured || io::stdout().is_terminal()
    }

    pub(crate) fn note(&self, text: &str) {
        self.say(&format!("{} {}", self.stderr.apply(Style::Strong, "sandbar:"), inert_line(text)));
    }

    /// Lists the parts of the manifest that are not in the workspace.
    pub(crate) fn left_out(&self, arrived: &Materialised) {
        for left_out in &arrived.left_out {
            self.note(&format!("left out {}: {}", left_out.path, left_out.reason));
        }
    }

    pub(crate) fn port(&self, port: u16, endpoint: &Endpoint) {
        self.say(&format!("port {port} is at {endpoint}"));
    }

    /// Prints help, or a mistake in the arguments; `code` is the exit code for a mistake.
    pub(crate) fn usage(&self, error: &clap::Error, code: u8) -> u8 {
        match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => match error.print() {
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => CLOSED,
                _ => 0,
            },
            ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
                let _reader_gone = error.print();
                code
            }
            kind => {
                let text = inert(&error.render().to_string());
                let text = text.strip_prefix("error: ").unwrap_or(&text).trim_end();
                self.say(&format!("{} {text}", self.stderr.apply(Style::Bad, "sandbar:")));
                if kind == ErrorKind::InvalidSubcommand && text.contains("Usage: sandbar [OPTIONS]") {
                    self.say("To run a program in a sandbox: sandbar exec -- PROGRAM");
                }
                code
            }
        }
    }

    fn say(&self, line: &str) {
        if self.patience == Patience::Drops && !is_ready(io::stderr().as_fd(), PATIENCE) {
            return;
        }
        let _reader_gone = writeln!(io::stderr().lock(), "{line}");
    }
}

/// Replaces control characters, except line feeds, and bidirectional overrides by question marks, so that untrusted text is
/// safe on a terminal.
pub(crate) fn inert(text: &str) -> String {
    let sanitize = |c: char| match c {
        '\n' => c,
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '?',
        c if c.is_control() => '?',
        c => c,
    };
    text.chars().map(sanitize).collect()
}

/// Like [`inert`] for a single line: replaces line feeds too.
pub(crate) fn inert_line(text: &str) -> String {
    inert(text).replace('\n', "?")
}

/// Replaces the current line of the terminal; an empty `line` removes it.
pub(crate) fn status(line: &str) {
    let _reader_gone = write!(io::stderr().lock(), "\r\x1b[K{line}");
}

/// Writes a question, and leaves the cursor after it.
pub(crate) fn question(text: &str) {
    let mut stderr = io::stderr().lock();
    let _reader_gone = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
}

impl Paint {
    fn choose(color: Color, is_terminal: bool, refused: bool) -> Self {
        match color {
            Color::Always => Self::Coloured,
            Color::Auto if is_terminal && !refused => Self::Coloured,
            Color::Auto | Color::Never => Self::Plain,
        }
    }

    fn apply(self, style: Style, text: &str) -> String {
        let code = match style {
            Style::Strong => "1",
            Style::Faint => "2",
            Style::Good => "32",
            Style::Doubtful => "33",
            Style::Bad => "1;31",
            Style::Removed => "31",
            Style::Place => "36",
        };
        match self {
            Self::Plain => text.to_owned(),
            Self::Coloured => format!("\x1b[{code}m{text}\x1b[0m"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_is_coloured_on_terminals_unless_an_option_or_variable_decides() {
        assert_eq!(Paint::choose(Color::Auto, true, false), Paint::Coloured);
        assert_eq!(Paint::choose(Color::Auto, true, true), Paint::Plain);
        assert_eq!(Paint::choose(Color::Auto, false, false), Paint::Plain);
        assert_eq!(Paint::choose(Color::Always, false, true), Paint::Coloured);
        assert_eq!(Paint::choose(Color::Never, true, false), Paint::Plain);
    }

    #[test]
    fn control_characters_and_bidirectional_overrides_are_replaced() {
        for c in ('\0'..=' ').chain('\x7f'..='\u{a0}').chain('\u{2029}'..='\u{202f}').chain('\u{2065}'..='\u{206a}') {
            let kept = matches!(c, ' ' | '\n' | '\u{a0}' | '\u{2029}' | '\u{202f}' | '\u{2065}' | '\u{206a}');
            let expected = if kept { format!("a{c}b") } else { "a?b".to_owned() };
            assert_eq!(inert(&format!("a{c}b")), expected, "{c:?}");
        }
        assert_eq!(inert("größe ✓\r\n"), "größe ✓?\n");
        assert_eq!(inert_line("a\x1b[2J\nb"), "a?[2J?b");
    }
}
