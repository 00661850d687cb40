//! Everything sandbar says itself: results on standard output, words about them on standard error. Nothing else prints.

use std::{
    env,
    io::{self, IsTerminal, Write},
    os::fd::AsFd,
};

use clap::error::ErrorKind;
use sandbar::{Endpoint, Materialised};

use crate::{
    args::Color,
    failure::Failure,
    writer::{PATIENCE, is_ready},
};

/// What a shell reports for a program that lost its reader: 128 + SIGPIPE.
pub(crate) const CLOSED: u8 = 141;

/// How a piece of text stands out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    Strong,
    Faint,
    Good,
    Doubtful,
    Bad,
    /// A line that goes away.
    Removed,
    /// A place in a file.
    Place,
}

/// What is said where a part of what a command printed is missing. The terminal may be raw.
pub(crate) fn omitted(count: u64) -> String {
    format!("sandbar: {count} bytes that nobody read are gone\r\n")
}

/// Knows which of the two streams may be coloured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Render {
    stdout: Paint,
    stderr: Paint,
    patience: Patience,
}

/// What becomes of words that standard error does not take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Patience {
    /// They wait.
    Waits,
    /// They are dropped.
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

    /// Lets the library say what it does, as far as somebody asked for it.
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

    /// Text for standard output, if that is coloured.
    pub(crate) fn paint(&self, style: Style, text: &str) -> String {
        self.stdout.apply(style, text)
    }

    /// Text for standard error, if that is coloured.
    pub(crate) fn paint_progress(&self, style: Style, text: &str) -> String {
        self.stderr.apply(style, text)
    }

    /// The same without any colour.
    pub(crate) fn uncoloured(&self) -> Self {
        Self { stdout: Paint::Plain, stderr: Paint::Plain, ..*self }
    }

    /// The same, for words that must not hold up the end of this process.
    pub(crate) fn hurried(&self) -> Self {
        Self { patience: Patience::Drops, ..*self }
    }

    /// Whether results are read on a terminal.
    pub(crate) fn result_is_seen(&self) -> bool {
        io::stdout().is_terminal()
    }

    /// The result of a subcommand; the exit code says whether somebody read it.
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

    /// A failure for programs; standard output stays empty.
    pub(crate) fn failure_document(&self, failure: &Failure) {
        self.say(&failure.document().to_string());
    }

    /// Whether somebody can watch what happens.
    pub(crate) fn has_terminal(&self) -> bool {
        io::stderr().is_terminal()
    }

    /// Whether results are meant for somebody's eyes.
    pub(crate) fn is_watched(&self) -> bool {
        self.stdout == Paint::Coloured || io::stdout().is_terminal()
    }

    pub(crate) fn note(&self, text: &str) {
        self.say(&format!("{} {}", self.stderr.apply(Style::Strong, "sandbar:"), inert_line(text)));
    }

    /// What is not in a workspace although somebody might look for it there.
    pub(crate) fn left_out(&self, arrived: &Materialised) {
        for left_out in &arrived.left_out {
            self.note(&format!("left out {}: {}", left_out.path, left_out.reason));
        }
    }

    pub(crate) fn port(&self, port: u16, endpoint: &Endpoint) {
        self.say(&format!("port {port} is at {endpoint}"));
    }

    /// Help that was asked for, or what is wrong with the arguments; `code` is for the latter.
    pub(crate) fn usage(&self, error: &clap::Error, code: u8) -> u8 {
        match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => match error.print() {
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => CLOSED,
                _ => 0,
            },
            ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
                let _nobody_reads = error.print();
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
        let _nobody_reads = writeln!(io::stderr().lock(), "{line}");
    }
}

/// Text of whatever origin that cannot give orders to a terminal, nor show its characters in another order than theirs.
/// Lines stay lines.
pub(crate) fn inert(text: &str) -> String {
    let tame = |c: char| match c {
        '\n' => c,
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '?',
        c if c.is_control() => '?',
        c => c,
    };
    text.chars().map(tame).collect()
}

/// The same for what is one line, and must not look like two.
pub(crate) fn inert_line(text: &str) -> String {
    inert(text).replace('\n', "?")
}

/// Writes over the terminal's current line; nothing removes what was there.
pub(crate) fn status(line: &str) {
    let _nobody_reads = write!(io::stderr().lock(), "\r\x1b[K{line}");
}

/// Writes a question, and leaves the cursor behind it.
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
    fn colour_is_for_terminals_unless_somebody_says_otherwise() {
        assert_eq!(Paint::choose(Color::Auto, true, false), Paint::Coloured);
        assert_eq!(Paint::choose(Color::Auto, true, true), Paint::Plain);
        assert_eq!(Paint::choose(Color::Auto, false, false), Paint::Plain);
        assert_eq!(Paint::choose(Color::Always, false, true), Paint::Coloured);
        assert_eq!(Paint::choose(Color::Never, true, false), Paint::Plain);
    }

    #[test]
    fn no_text_can_give_orders_or_turn_around() {
        for c in ('\0'..=' ').chain('\x7f'..='\u{a0}').chain('\u{2029}'..='\u{202f}').chain('\u{2065}'..='\u{206a}') {
            let kept = matches!(c, ' ' | '\n' | '\u{a0}' | '\u{2029}' | '\u{202f}' | '\u{2065}' | '\u{206a}');
            let expected = if kept { format!("a{c}b") } else { "a?b".to_owned() };
            assert_eq!(inert(&format!("a{c}b")), expected, "{c:?}");
        }
        assert_eq!(inert("größe ✓\r\n"), "größe ✓?\n");
        assert_eq!(inert_line("a\x1b[2J\nb"), "a?[2J?b");
    }
}
