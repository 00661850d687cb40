//! A command to run, and the running process as three channels.

use std::{ffi::OsString, num::NonZeroU16, os::unix::process::ExitStatusExt as _, process::ExitStatus, time::Duration};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use crate::{MachinePath, ProcessId, Result};

/// A command to run. [`new`](Self::new) takes the argument vector; arguments are never joined into shell text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Command {
    /// Program and arguments. The program is looked up on the machine's `PATH` unless it contains a slash.
    pub argv: Vec<OsString>,
    /// Variables that are added to the machine's environment, or replace variables of it.
    pub env: Vec<(OsString, OsString)>,
    /// Working directory; `None` is the workspace.
    pub cwd: Option<MachinePath>,
    /// User that the command runs as; `None` is the machine's default user.
    pub user: Option<String>,
    /// Size of the terminal that the command gets instead of pipes. All its output then arrives as [`Output::Stdout`].
    pub tty: Option<TerminalSize>,
    /// Whether [`Process::stdin`] exists; otherwise standard input is empty.
    pub stdin: bool,
    /// How long the command may run before its process tree is killed.
    pub deadline: Option<Duration>,
    /// Whether the command survives the client that started it, see [`Command::kept`].
    pub keep: bool,
    /// Whether standard error is redirected to standard output, see [`Command::joined`].
    pub joined: bool,
}

impl Command {
    /// A command with pipes and without input, in the workspace, as the default user.
    pub fn new<S: Into<OsString>>(argv: impl IntoIterator<Item = S>) -> Self {
        Self { argv: argv.into_iter().map(Into::into).collect(), ..Self::default() }
    }

    /// Sets one variable.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Sets the working directory.
    #[must_use]
    pub fn cwd(mut self, cwd: MachinePath) -> Self {
        self.cwd = Some(cwd);
        self
    }

    /// Sets the user that the command runs as.
    #[must_use]
    pub fn user(mut self, user: impl Into<String>) -> Self {
        self.user = Some(user.into());
        self
    }

    /// Gives the command a terminal of this size.
    #[must_use]
    pub fn tty(mut self, size: TerminalSize) -> Self {
        self.tty = Some(size);
        self
    }

    /// Gives the command a standard input, [`Process::stdin`].
    #[must_use]
    pub fn stdin(mut self) -> Self {
        self.stdin = true;
        self
    }

    /// Kills the command and everything it started if it runs longer than this.
    #[must_use]
    pub fn deadline(mut self, after: Duration) -> Self {
        self.deadline = Some(after);
        self
    }

    /// Redirects standard error to standard output: both arrive as [`Output::Stdout`], in the order in which they were
    /// written. With two separate pipes that order is unknown.
    #[must_use]
    pub fn joined(mut self) -> Self {
        self.joined = true;
        self
    }

    /// Lets the command survive the client that started it.
    ///
    /// If that client dies or disconnects, the command continues and its output is stored, up to a bound, until another
    /// client takes the command over with [`Commands::adopt`](crate::Commands::adopt). Dropping [`Process::control`] while
    /// connected still kills the command.
    ///
    /// This needs the facet [`Commands`](crate::Commands) and a machine with another lifetime than
    /// [`Lifetime::WithOwner`](crate::Lifetime::WithOwner); otherwise it has no effect.
    #[must_use]
    pub fn kept(mut self) -> Self {
        self.keep = true;
        self
    }
}

/// Variables that every command gets unless the specification sets them: a UTF-8 locale, and settings that keep programs from
/// starting a pager or asking questions.
pub const NEUTRAL_ENVIRONMENT: [(&str, &str); 7] = [
    ("LANG", "C.UTF-8"),
    ("LC_ALL", "C.UTF-8"),
    ("PAGER", "cat"),
    ("GIT_PAGER", "cat"),
    ("MANPAGER", "cat"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("DEBIAN_FRONTEND", "noninteractive"),
];

/// Rows and columns of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TerminalSize {
    /// Number of lines.
    pub rows: NonZeroU16,
    /// Number of characters in a line.
    pub cols: NonZeroU16,
}

impl TerminalSize {
    /// A size of these rows and columns. Terminals report 0 if they do not know their size: 0 becomes 24 rows or 80 columns.
    #[must_use]
    pub fn new(rows: u16, cols: u16) -> Self {
        const ROWS: NonZeroU16 = NonZeroU16::new(24).unwrap();
        const COLS: NonZeroU16 = NonZeroU16::new(80).unwrap();
        Self { rows: NonZeroU16::new(rows).unwrap_or(ROWS), cols: NonZeroU16::new(cols).unwrap_or(COLS) }
    }
}

impl Default for TerminalSize {
    fn default() -> Self {
        Self::new(24, 80)
    }
}

/// A running command as three channels: input, control, output.
///
/// The machine guarantees:
///
/// - Dropping [`control`](Self::control) while the command runs kills its whole process tree, including daemons. Background
///   processes that are left when the command has *exited* continue until the machine stops.
/// - Dropping [`stdin`](Self::stdin) closes the command's standard input, after everything that was sent; on a terminal it
///   sends the end-of-file character.
/// - Control requests are never queued behind input.
/// - Output that is not read blocks this command and no other; it is not buffered without bound.
#[derive(Debug)]
pub struct Process {
    /// Id of the command on its machine, if the command survives its client ([`Command::kept`]).
    pub id: Option<ProcessId>,
    /// Standard input; present if [`Command::stdin`] or a terminal was requested.
    pub stdin: Option<mpsc::Sender<Bytes>>,
    /// Signals and terminal sizes.
    pub control: mpsc::Sender<Control>,
    /// Everything that the command itself wrote, then exactly one [`Output::Exit`], then what its background children still
    /// write. The channel closes when no process has the output streams open any more. An `Err` is the last item: the machine
    /// or the connection to it is lost.
    pub output: mpsc::Receiver<Result<Output>>,
}

/// A request to a running process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// Sends a signal to the command and everything it started.
    Signal(Signal),
    /// Sets the size of the terminal.
    Resize(TerminalSize),
    /// Detaches from a command that survives its client ([`Command::kept`]): the command continues, [`Process::output`]
    /// closes, and output that was not received yet is stored for the next client. Ignored for other commands.
    Leave,
}

/// Signals that every machine supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Signal {
    /// `SIGHUP`: the terminal was closed.
    Hangup,
    /// `SIGINT`, as Ctrl-C sends it.
    Interrupt,
    /// `SIGQUIT`, as Ctrl-\ sends it.
    Quit,
    /// `SIGTERM`: a request to exit, which a program can handle.
    Terminate,
    /// `SIGKILL`, which a program cannot handle.
    Kill,
    /// `SIGUSR1`.
    User1,
    /// `SIGUSR2`.
    User2,
}

impl Signal {
    /// Number of the signal on Linux; x86 and ARM have the same numbers.
    #[must_use]
    pub fn number(self) -> u8 {
        match self {
            Self::Hangup => 1,
            Self::Interrupt => 2,
            Self::Quit => 3,
            Self::Kill => 9,
            Self::User1 => 10,
            Self::User2 => 12,
            Self::Terminate => 15,
        }
    }
}

/// One item of the output of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Bytes of standard output, or of the terminal.
    Stdout(Bytes),
    /// Bytes of standard error.
    Stderr(Bytes),
    /// Number of bytes that were dropped because the command had no client and its stored output was full. Arrives at most
    /// once, after [`Commands::adopt`](crate::Commands::adopt), before the stored output.
    Omitted(u64),
    /// The command itself ended. Arrives exactly once.
    Exit(Exit),
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// Exit code. 128 + the signal's number if a signal ended the command (137 if it was killed at its deadline); 126 if the
    /// program could not be executed, 127 if it was not found.
    pub code: i32,
    /// Why the command ended.
    pub reason: ExitReason,
}

/// Why a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExitReason {
    /// The program exited.
    Exited,
    /// A signal ended the program.
    Signaled,
    /// The deadline passed, and the process tree was killed.
    Deadline,
    /// The command, or a process that it waited for, was killed because the machine reached its memory limit
    /// ([`crate::Limits::memory`]).
    Memory,
    /// The command was killed because the machine reached its disk limit ([`crate::Limits::disk`]), or because the command
    /// wrote a single file of that size.
    Disk,
}

impl ExitReason {
    /// Text for users and models that names the limit that ended the command; `None` if no limit did.
    #[must_use]
    pub fn limit(self) -> Option<&'static str> {
        match self {
            Self::Exited | Self::Signaled => None,
            Self::Deadline => Some("its time was up"),
            Self::Memory => Some("the memory limit was reached"),
            Self::Disk => Some("the disk limit was reached"),
        }
    }
}

impl Exit {
    /// The exit of a program that returned this code.
    #[must_use]
    pub fn code(code: i32) -> Self {
        Self { code, reason: ExitReason::Exited }
    }

    /// Whether the program exited with code 0.
    #[must_use]
    pub fn success(self) -> bool {
        self.code == 0 && self.reason == ExitReason::Exited
    }
}

/// The exit of a process of this host: its code, or 128 + the number of the signal that killed it.
impl From<ExitStatus> for Exit {
    fn from(status: ExitStatus) -> Self {
        match status.code() {
            Some(code) => Self::code(code),
            None => Self { code: 128 + status.signal().unwrap_or_default(), reason: ExitReason::Signaled },
        }
    }
}
