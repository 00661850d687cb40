//! A command to run, and the process it becomes: three channels and nothing to poll.

use std::{ffi::OsString, num::NonZeroU16, time::Duration};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use crate::{MachinePath, ProcessId, Result};

/// What to run. `new` takes the argument vector; nothing is ever joined into shell text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Command {
    /// The program and its arguments; the program is looked up on the machine's `PATH` unless it has a slash.
    pub argv: Vec<OsString>,
    /// Variables set over the machine's own environment.
    pub env: Vec<(OsString, OsString)>,
    /// Where it starts; `None` is the workspace.
    pub cwd: Option<MachinePath>,
    /// Whose identity; `None` is the machine's default user.
    pub user: Option<String>,
    /// A terminal of this size instead of pipes. Everything it prints then arrives as [`Output::Stdout`].
    pub tty: Option<TerminalSize>,
    /// Whether [`Process::stdin`] exists; otherwise standard input is empty.
    pub stdin: bool,
    /// How long it may run before its whole tree is killed.
    pub deadline: Option<Duration>,
    /// Whether it outlives its holder, see [`Command::kept`].
    pub keep: bool,
    /// Whether its standard error goes where its standard output goes, see [`Command::joined`].
    pub joined: bool,
}

impl Command {
    /// A command with pipes, no input, in the workspace, as the default user.
    pub fn new<S: Into<OsString>>(argv: impl IntoIterator<Item = S>) -> Self {
        Self { argv: argv.into_iter().map(Into::into).collect(), ..Self::default() }
    }

    /// Sets one variable.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Starts it in this directory.
    #[must_use]
    pub fn cwd(mut self, cwd: MachinePath) -> Self {
        self.cwd = Some(cwd);
        self
    }

    /// Runs it as this user.
    #[must_use]
    pub fn user(mut self, user: impl Into<String>) -> Self {
        self.user = Some(user.into());
        self
    }

    /// Gives it a terminal.
    #[must_use]
    pub fn tty(mut self, size: TerminalSize) -> Self {
        self.tty = Some(size);
        self
    }

    /// Gives it a standard input that can be written to.
    #[must_use]
    pub fn stdin(mut self) -> Self {
        self.stdin = true;
        self
    }

    /// Kills it and everything it started after this long.
    #[must_use]
    pub fn deadline(mut self, after: Duration) -> Self {
        self.deadline = Some(after);
        self
    }

    /// Joins standard error with standard output: what it prints on either arrives as [`Output::Stdout`], in the very order in
    /// which it was printed. Of two pipes nobody can tell.
    #[must_use]
    pub fn joined(mut self) -> Self {
        self.joined = true;
        self
    }

    /// On a machine that outlives its maker: lets the command and its streams live on when its holder vanishes without a
    /// word, for [`Commands::adopt`](crate::Commands::adopt), on a machine that has that facet. Dropping [`Process::control`] still kills it. On a machine that
    /// ends with its maker this changes nothing.
    #[must_use]
    pub fn kept(mut self) -> Self {
        self.keep = true;
        self
    }
}

/// Rows and columns of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TerminalSize {
    /// Lines.
    pub rows: NonZeroU16,
    /// Characters in a line.
    pub cols: NonZeroU16,
}

impl TerminalSize {
    /// A size; zeros, which terminals report when they do not know, become 24 by 80.
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

/// A running command as three channels.
///
/// Dropping `control` while the command runs kills its whole tree, daemons included; what a command left behind when it
/// *exited* lives on until the machine stops. Dropping `stdin` closes the command's standard input (on a terminal: sends
/// the end-of-file character). Control is never queued behind input.
#[derive(Debug)]
pub struct Process {
    /// What the machine knows it by, if it is one that outlives its holder.
    pub id: Option<ProcessId>,
    /// Standard input, when [`Command::stdin`] or a terminal was asked for.
    pub stdin: Option<mpsc::Sender<Bytes>>,
    /// Signals and terminal sizes.
    pub control: mpsc::Sender<Control>,
    /// What the process prints, then one [`Output::Exit`] after everything the command itself wrote, then whatever
    /// background children still print, until nobody holds the streams. An `Err` ends it early: the machine is gone.
    pub output: mpsc::Receiver<Result<Output>>,
}

/// A request to a running process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// To the command and everything it started.
    Signal(Signal),
    /// The terminal changed its size.
    Resize(TerminalSize),
    /// Lets go of a command that outlives its holder: it lives on, what this holder has not taken yet is kept with what
    /// comes, and [`Process::output`] ends. Means nothing to other commands.
    Leave,
}

/// The signals that mean the same on every machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Signal {
    /// The terminal hung up.
    Hangup,
    /// Ctrl-C.
    Interrupt,
    /// Ctrl-\.
    Quit,
    /// End, please.
    Terminate,
    /// End, now.
    Kill,
    /// Whatever the program makes of it.
    User1,
    /// Whatever the program makes of it.
    User2,
}

impl Signal {
    /// The number all Linux architectures share.
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

/// One thing a process said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Bytes of standard output, or of the terminal.
    Stdout(Bytes),
    /// Bytes of standard error.
    Stderr(Bytes),
    /// So many bytes were printed here while nobody held the command, more than are kept, and are gone. Said at most once,
    /// before what is kept, after [`Commands::adopt`](crate::Commands::adopt).
    Omitted(u64),
    /// The command itself ended. Sent exactly once.
    Exit(Exit),
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// The exit code, or 128 + the signal's number (a deadline's is KILL: 137); 126 when it could not be executed, 127 when
    /// it was not found.
    pub code: i32,
    /// Why it ended.
    pub reason: ExitReason,
}

/// Why a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExitReason {
    /// It returned.
    Exited,
    /// A signal ended it.
    Signaled,
    /// Its deadline passed and its tree was killed.
    Deadline,
    /// It, or something it waited for, was killed because the machine's memory was used up ([`crate::Limits::memory`]).
    Memory,
    /// It was killed because the machine's disk was used up ([`crate::Limits::disk`]), or wrote a single file that large.
    Disk,
}

impl ExitReason {
    /// The limit that ended it, in a few words for people and models; `None` when none did.
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
    /// It returned this code.
    #[must_use]
    pub fn code(code: i32) -> Self {
        Self { code, reason: ExitReason::Exited }
    }

    /// Whether it returned zero.
    #[must_use]
    pub fn success(self) -> bool {
        self.code == 0 && self.reason == ExitReason::Exited
    }
}
