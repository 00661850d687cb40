//! The process table behind `exec_command` and `write_stdin`, the same for every client.
//!
//! A [`ProcessTable`] belongs to one session. [`start`](ProcessTable::start) runs a command and waits a short time. A
//! command that is still running then gets a number, and [`write`](ProcessTable::write) writes to it or polls it. Each
//! byte of output is reported once, in an [`Update`]. The exit is reported once too, and then the table forgets the
//! number.
//!
//! If a command has exited but a background child still holds its streams, the result waits for them for at most 50 ms.
//! The child lives until the machine stops; its later output is read and discarded, so that the child never blocks on a
//! full pipe. Dropping the table kills every running command, unless the machine outlives the table: then the commands
//! keep running, and a later table can continue with them from what this one [saved](ProcessTable::saved).

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

/// How process numbers are chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ids {
    /// Random, from 1000 to 99999, never a number in use.
    #[default]
    Random,
    /// 1000, 1001 and so on, for tests; chunk ids are sequential too.
    Sequential,
}

/// Settings of a process table. The defaults are those that models know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableOptions {
    /// How process numbers are chosen.
    pub ids: Ids,
    /// Maximum number of processes; one more evicts an old one.
    pub max_processes: usize,
    /// Number of processes from which on each start logs a warning.
    pub warn_at: usize,
    /// Number of most recently used processes that are never evicted.
    pub protected: usize,
    /// Shortest time that a start or a write waits.
    pub yield_min: Duration,
    /// Longest time that a start or a write waits.
    pub yield_max: Duration,
    /// Shortest time that a call without input waits.
    pub poll_min: Duration,
    /// Longest time that a call without input waits.
    pub poll_max: Duration,
    /// Default waiting time of a start.
    pub start_yield: Duration,
    /// Default waiting time of a write.
    pub write_yield: Duration,
    /// How long output must be silent after input until it counts as the complete answer.
    pub silence: Duration,
    /// How long the result of an exited command waits for its streams to close.
    pub linger: Duration,
    /// Maximum number of output bytes that wait for the next call, per process.
    pub buffer: usize,
    /// Default number of tokens that a call returns.
    pub max_output_tokens: usize,
    /// Timeout for the machine to start a command or to accept a request.
    pub patience: Duration,
    /// Timeout for the machine to kill a command.
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

/// A command for the table, and how long to wait for its first output.
#[derive(Debug)]
pub struct Start {
    /// The command; it can be written to if it has a terminal.
    pub command: Command,
    /// How long to wait; `None` is the default of the table.
    pub yield_time: Option<Duration>,
    /// How many tokens of output to return; `None` is the default of the table.
    pub max_output_tokens: Option<usize>,
    /// Receives a subscription to the live output of the process.
    pub watcher: Option<oneshot::Sender<Deltas>>,
}

impl Start {
    /// With the default waiting time and amount of output.
    #[must_use]
    pub fn new(command: Command) -> Self {
        Self { command, yield_time: None, max_output_tokens: None, watcher: None }
    }

    /// Sets the waiting time.
    #[must_use]
    pub fn yield_time(mut self, time: Duration) -> Self {
        self.yield_time = Some(time);
        self
    }

    /// Sets the amount of output to return.
    #[must_use]
    pub fn max_output_tokens(mut self, tokens: usize) -> Self {
        self.max_output_tokens = Some(tokens);
        self
    }
}

/// Input for a process of the table; empty input only polls.
#[derive(Clone, Debug, Default)]
pub struct Write<'a> {
    /// Text to write. Exactly `\u{3}` interrupts a process that has no terminal.
    pub chars: &'a str,
    /// How long to wait; `None` is the default of the table.
    pub yield_time: Option<Duration>,
    /// How many tokens of output to return; `None` is the default of the table.
    pub max_output_tokens: Option<usize>,
}

impl<'a> Write<'a> {
    /// With the default waiting time and amount of output.
    #[must_use]
    pub fn new(chars: &'a str) -> Self {
        Self { chars, ..Self::default() }
    }

    /// Sets the waiting time.
    #[must_use]
    pub fn yield_time(mut self, time: Duration) -> Self {
        self.yield_time = Some(time);
        self
    }

    /// Sets the amount of output to return.
    #[must_use]
    pub fn max_output_tokens(mut self, tokens: usize) -> Self {
        self.max_output_tokens = Some(tokens);
        self
    }
}

/// One process of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessInfo {
    /// Number of the process.
    pub id: u64,
    /// Argument vector.
    pub argv: Vec<OsString>,
    /// Whether the process has a terminal.
    pub tty: bool,
    /// Start time.
    pub started: SystemTime,
    /// Exit code, if the process exited and no call has reported the exit yet.
    pub exit_code: Option<i32>,
    /// Number of output bytes that wait for the next call.
    pub buffered: usize,
}
