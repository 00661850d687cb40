//! Commands as the machine knows them: by a number, whoever holds them.

use std::{ffi::OsString, fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{Exit, MachineError};

/// What [`MachineError::Exhausted`] names when a machine keeps no more commands that outlive their client.
pub const KEPT_PROCESSES: &str = "room for kept processes";

/// What a machine knows a command by, as long as it knows it. Numbers are not given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ProcessId(pub u64);

impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for ProcessId {
    type Err = MachineError;

    fn from_str(text: &str) -> Result<Self, MachineError> {
        let number = text.parse().map_err(|_not_one| {
            MachineError::invalid(format!("process {text:?}"), "is not a number that a machine knows processes by")
        })?;
        Ok(Self(number))
    }
}

/// A command a machine knows. The machine's own words: whatever runs inside may have chosen them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessInfo {
    /// Its number.
    pub id: ProcessId,
    /// The program and its arguments, shortened.
    pub argv: Vec<OsString>,
    /// Whose identity; `None` is the machine's default user.
    pub user: Option<String>,
    /// Whether it has a terminal.
    pub tty: bool,
    /// Whether it outlives its holder, see [`Command::kept`](crate::Command::kept).
    pub kept: bool,
    /// When it was started, in seconds since 1970 by the machine's clock.
    pub since: u64,
    /// What has become of it.
    pub state: ProcessState,
}

/// What has become of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessState {
    /// A client reads what it prints.
    Held,
    /// It runs, and what it prints is kept for whoever adopts it.
    Alone,
    /// It ended alone; its output and exit are kept for whoever adopts it.
    Ended(Exit),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_named_by_its_number() {
        assert_eq!("17".parse::<ProcessId>().expect("a number"), ProcessId(17));
        assert_eq!(ProcessId(17).to_string(), "17");
        for bad in ["", "x", "-1", "1.5", "18446744073709551616"] {
            assert_eq!(bad.parse::<ProcessId>().expect_err(bad).code(), "invalid");
        }
    }
}
