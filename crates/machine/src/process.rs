//! Commands of a machine as every attached client sees them: id, description and state.

use std::{ffi::OsString, fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{Exit, MachineError};

/// Text of [`MachineError::Exhausted`]'s `what` if a machine has reached its maximum number of commands that survive their
/// client.
pub const KEPT_PROCESSES: &str = "room for kept processes";

/// Id of a command on its machine. An id is never reused; later commands have larger ids.
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
        let number = text
            .parse()
            .map_err(|_not_one| MachineError::invalid(format!("process {text:?}"), "is not a process number"))?;
        Ok(Self(number))
    }
}

/// Description of a command, as the machine reports it. Do not trust the texts: programs on the machine may have chosen them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessInfo {
    /// Id of the command.
    pub id: ProcessId,
    /// Program and arguments, shortened.
    pub argv: Vec<OsString>,
    /// User that the command runs as; `None` is the machine's default user.
    pub user: Option<String>,
    /// Whether the command has a terminal.
    pub tty: bool,
    /// Whether the command survives its client, see [`Command::kept`](crate::Command::kept).
    pub kept: bool,
    /// Start time in seconds since 1970, by the machine's clock.
    pub since: u64,
    /// State of the command.
    pub state: ProcessState,
}

/// State of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessState {
    /// Attached: a client reads its output.
    Held,
    /// Detached: it runs without a client, and its output is stored for the client that adopts it.
    Alone,
    /// Exited without a client: its output and exit are stored for the client that adopts it.
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
