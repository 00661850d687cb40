//! The process table behind `exec_command` and `write_stdin`: written once, for every client.
//!
//! A [`ProcessTable`] belongs to one session. [`start`](ProcessTable::start) runs a command and waits a little; a command
//! that is still running then gets a number, and [`write`](ProcessTable::write) types to it or asks for news. What a
//! process printed is told once, in an [`Update`]; its exit is told once too, and the number is forgotten with it.
//!
//! When a command has exited while something it left behind still holds its streams, the result waits for them for
//! 50 ms at most. What is left behind lives on until the machine stops; what it prints after that is read and thrown
//! away, so that it is never held up. Dropping the table kills every command that still runs, unless the machine outlives
//! it: then they go on, and a later table can go on with them by what this one [saved](ProcessTable::saved).

mod args;
mod deltas;
mod entry;
mod evict;
mod pump;
mod resume;
mod ring;
mod table;
#[cfg(test)]
mod tests;
mod truncate;
mod update;
mod utf8;

use std::{
    ffi::OsString,
    time::{Duration, SystemTime},
};

use sandbar_machine::Command;
use tokio::sync::oneshot;

pub(crate) use self::ring::Ring as HeadTail;
pub use self::{
    args::{ExecCommandArgs, Login, WriteStdinArgs, model_env, shell_argv},
    deltas::Deltas,
    resume::SavedProcess,
    table::ProcessTable,
    truncate::{truncate, truncate_bytes},
    update::Update,
};

/// Where the numbers of processes come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ids {
    /// At random from 1000 to 99999, never one that is in use.
    #[default]
    Random,
    /// 1000, 1001 and so on, for tests; chunk ids count too.
    Sequential,
}

/// How a process table behaves. The defaults are what models are used to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableOptions {
    /// Where numbers come from.
    pub ids: Ids,
    /// How many processes it holds; one more pushes an old one out.
    pub max_processes: usize,
    /// From how many on each start is a warning in the log.
    pub warn_at: usize,
    /// How many of the most recently used are never pushed out.
    pub protected: usize,
    /// The shortest time a call waits for news.
    pub yield_min: Duration,
    /// The longest time a start or a write waits for news.
    pub yield_max: Duration,
    /// The shortest time a call without input waits for news.
    pub poll_min: Duration,
    /// The longest time a call without input waits for news.
    pub poll_max: Duration,
    /// How long a start waits unless told otherwise.
    pub start_yield: Duration,
    /// How long a write waits unless told otherwise.
    pub write_yield: Duration,
    /// How long output has to be silent after input before it is taken for the whole answer.
    pub silence: Duration,
    /// How long the streams of a command that exited may stay open.
    pub linger: Duration,
    /// How many bytes wait for the next call, per process.
    pub buffer: usize,
    /// How many tokens a call returns unless told otherwise.
    pub max_output_tokens: usize,
    /// How long a machine may take to start a command or to take a request.
    pub patience: Duration,
    /// How long a machine may take to end a command.
    pub kill_patience: Duration,
}

impl Default for TableOptions {
    fn default() -> Self {
        Self {
            ids: Ids::Random,
            max_processes: 64,
            warn_at: 60,
            protected: 8,
            yield_min: Duration::from_millis(250),
            yield_max: Duration::from_secs(30),
            poll_min: Duration::from_secs(5),
            poll_max: Duration::from_secs(300),
            start_yield: Duration::from_secs(10),
            write_yield: Duration::from_millis(250),
            silence: Duration::from_millis(50),
            linger: Duration::from_millis(50),
            buffer: 1 << 20,
            max_output_tokens: 10_000,
            patience: Duration::from_secs(60),
            kill_patience: Duration::from_secs(10),
        }
    }
}

/// A command for the table, and how long to wait for its first news.
#[derive(Debug)]
pub struct Start {
    /// What to run; with a terminal it can be written to.
    pub command: Command,
    /// How long to wait; `None` is the table's usual time.
    pub yield_time: Option<Duration>,
    /// How much output to return; `None` is the table's usual amount.
    pub max_output_tokens: Option<usize>,
    /// Who wants to see what it prints while it does.
    pub watcher: Option<oneshot::Sender<Deltas>>,
}

impl Start {
    /// The usual waiting time and amount of output.
    #[must_use]
    pub fn new(command: Command) -> Self {
        Self { command, yield_time: None, max_output_tokens: None, watcher: None }
    }

    /// Waits this long.
    #[must_use]
    pub fn yield_time(mut self, time: Duration) -> Self {
        self.yield_time = Some(time);
        self
    }

    /// Returns this much output.
    #[must_use]
    pub fn max_output_tokens(mut self, tokens: usize) -> Self {
        self.max_output_tokens = Some(tokens);
        self
    }
}

/// Input for a process of the table; empty input only asks for news.
#[derive(Clone, Debug, Default)]
pub struct Write<'a> {
    /// What to type. Exactly `\u{3}` interrupts a process that has no terminal.
    pub chars: &'a str,
    /// How long to wait; `None` is the table's usual time.
    pub yield_time: Option<Duration>,
    /// How much output to return; `None` is the table's usual amount.
    pub max_output_tokens: Option<usize>,
}

impl<'a> Write<'a> {
    /// The usual waiting time and amount of output.
    #[must_use]
    pub fn new(chars: &'a str) -> Self {
        Self { chars, ..Self::default() }
    }

    /// Waits this long.
    #[must_use]
    pub fn yield_time(mut self, time: Duration) -> Self {
        self.yield_time = Some(time);
        self
    }

    /// Returns this much output.
    #[must_use]
    pub fn max_output_tokens(mut self, tokens: usize) -> Self {
        self.max_output_tokens = Some(tokens);
        self
    }
}

/// One process of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessInfo {
    /// Its number.
    pub id: u64,
    /// What was run.
    pub argv: Vec<OsString>,
    /// Whether it has a terminal.
    pub tty: bool,
    /// When it was started.
    pub started: SystemTime,
    /// Its exit code, if it exited and nobody was told yet.
    pub exit_code: Option<i32>,
    /// How many bytes of output wait for the next call.
    pub buffered: usize,
}
