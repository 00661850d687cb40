//! What can go wrong on a machine, in the few kinds a caller can act on.

use std::{io, time::Duration};

use crate::{MachinePath, ProcessId};

/// Any error, as a source.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The result of asking a machine for something.
pub type Result<T, E = MachineError> = std::result::Result<T, E>;

/// Why a machine did not do what it was asked to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MachineError {
    /// The path does not exist.
    #[error("{0} does not exist on the machine")]
    NotFound(MachinePath),
    /// The machine's own rules forbid it: permissions, a read-only mount, a symbolic link where none is followed.
    #[error("{path}: {reason}")]
    Denied {
        /// What was asked for.
        path: MachinePath,
        /// Which rule said no.
        reason: String,
    },
    /// The file system refused for another reason.
    #[error("cannot {action} {path}")]
    File {
        /// What was being done, as a verb: `read`, `rename`.
        action: &'static str,
        /// Where.
        path: MachinePath,
        /// The system's own words.
        #[source]
        source: io::Error,
    },
    /// What is there is not what the request expected; nothing was done.
    #[error("{0} is not what it was")]
    Changed(MachinePath),
    /// The request itself makes no sense, whatever the machine.
    #[error("{what}: {reason}")]
    Invalid {
        /// The faulty value.
        what: String,
        /// What is wrong with it, and what would be right.
        reason: String,
    },
    /// This client has no way to do that.
    #[error("this client cannot {0}")]
    Unsupported(&'static str),
    /// The demanded isolation cannot be reached on this host; nothing was run.
    #[error("cannot isolate the machine: {missing}; {fix}")]
    Isolation {
        /// The missing piece.
        missing: String,
        /// What to do about it.
        fix: String,
    },
    /// The machine cannot have the users and groups it shall know; nothing was run.
    #[error("the machine cannot have several users: it takes {missing}; {fix}")]
    Users {
        /// The missing piece.
        missing: String,
        /// What to do about it.
        fix: String,
    },
    /// Another client holds the command.
    #[error("process {0} is held by another client")]
    Held(ProcessId),
    /// A limit was reached: processes, disk, a buffer.
    #[error("{what} is exhausted: {reason}")]
    Exhausted {
        /// The limited thing.
        what: String,
        /// The limit, or the system's own words.
        reason: String,
    },
    /// The machine could not be started.
    #[error("cannot start the machine: {stage}")]
    Start {
        /// The step that failed.
        stage: String,
        /// The system's own words.
        #[source]
        source: BoxError,
    },
    /// The machine stopped or was deleted.
    #[error("the machine is gone")]
    Gone,
    /// The machine ended, and its files are still being removed; that goes on without the caller.
    #[error("{what} is still being removed after {} seconds", waited.as_secs())]
    StillBeingRemoved {
        /// What is being removed.
        what: String,
        /// How long this call waited for it.
        waited: Duration,
    },
    /// The machine ended, and something of it cannot be removed.
    #[error("cannot remove {what}")]
    NotRemoved {
        /// What is left.
        what: String,
        /// The system's own words.
        #[source]
        source: io::Error,
    },
    /// The process that keeps the machine does not answer.
    #[error("{what} does not answer: {reason}")]
    Unresponsive {
        /// Which process, of which machine.
        what: String,
        /// What is known about it, and what to do.
        reason: String,
    },
    /// The connection to the machine broke or carried nonsense.
    #[error("lost contact with the machine while trying to {action}")]
    Transport {
        /// What was being done.
        action: &'static str,
        /// How the connection failed.
        #[source]
        source: BoxError,
    },
}

impl MachineError {
    /// A stable name for programs and logs.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotFound(_) => "not_found",
            Self::Denied { .. } => "denied",
            Self::File { .. } => "file",
            Self::Changed(_) => "changed",
            Self::Invalid { .. } => "invalid",
            Self::Unsupported(_) => "unsupported",
            Self::Isolation { .. } => "isolation",
            Self::Users { .. } => "users",
            Self::Held(_) => "held",
            Self::Exhausted { .. } => "exhausted",
            Self::Start { .. } => "start",
            Self::Gone => "gone",
            Self::StillBeingRemoved { .. } => "still_being_removed",
            Self::NotRemoved { .. } => "not_removed",
            Self::Unresponsive { .. } => "unresponsive",
            Self::Transport { .. } => "transport",
        }
    }

    /// Whether the same request may succeed if it is simply made again.
    #[must_use]
    pub fn retryable(&self) -> bool {
        matches!(self, Self::Transport { .. } | Self::Exhausted { .. } | Self::StillBeingRemoved { .. })
    }

    /// A broken connection, from whatever broke it.
    pub fn transport(action: &'static str, source: impl Into<BoxError>) -> Self {
        Self::Transport { action, source: source.into() }
    }

    /// Bad input, named.
    pub fn invalid(what: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Invalid { what: what.into(), reason: reason.into() }
    }

    /// What the system said about a path, as the kind a caller can branch on.
    #[must_use]
    pub fn from_io(action: &'static str, path: &MachinePath, source: io::Error) -> Self {
        let denied = |reason: &str| Self::Denied { path: path.clone(), reason: reason.to_owned() };
        match source.kind() {
            io::ErrorKind::NotFound => Self::NotFound(path.clone()),
            io::ErrorKind::PermissionDenied => denied("permission denied"),
            io::ErrorKind::ReadOnlyFilesystem => denied("the file system is read-only here"),
            io::ErrorKind::CrossesDevices => denied("the path leaves the directory it must stay in"),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Self::Exhausted { what: "disk space".to_owned(), reason: format!("{path}: {source}") }
            }
            _ => Self::File { action, path: path.clone(), source },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_has_its_code_and_only_passing_troubles_are_worth_another_try() {
        let path = MachinePath::workspace;
        let text = || "x".to_owned();
        let table = [
            (MachineError::NotFound(path()), "not_found", false),
            (MachineError::Denied { path: path(), reason: text() }, "denied", false),
            (MachineError::File { action: "read", path: path(), source: io::Error::other("x") }, "file", false),
            (MachineError::invalid("a", "b"), "invalid", false),
            (MachineError::Unsupported("fly"), "unsupported", false),
            (MachineError::Isolation { missing: text(), fix: text() }, "isolation", false),
            (MachineError::Held(ProcessId(1)), "held", false),
            (MachineError::Exhausted { what: text(), reason: text() }, "exhausted", true),
            (MachineError::Start { stage: text(), source: "x".into() }, "start", false),
            (MachineError::Gone, "gone", false),
            (
                MachineError::StillBeingRemoved { what: text(), waited: Duration::from_secs(30) },
                "still_being_removed",
                true,
            ),
            (MachineError::NotRemoved { what: text(), source: io::Error::other("x") }, "not_removed", false),
            (MachineError::Unresponsive { what: text(), reason: text() }, "unresponsive", false),
            (MachineError::transport("read", "x"), "transport", true),
        ];
        for (error, code, retryable) in table {
            assert_eq!((error.code(), error.retryable()), (code, retryable), "{error}");
        }
    }

    #[test]
    fn the_systems_words_become_a_kind() {
        let table = [
            (io::ErrorKind::NotFound, "not_found"),
            (io::ErrorKind::PermissionDenied, "denied"),
            (io::ErrorKind::ReadOnlyFilesystem, "denied"),
            (io::ErrorKind::CrossesDevices, "denied"),
            (io::ErrorKind::StorageFull, "exhausted"),
            (io::ErrorKind::QuotaExceeded, "exhausted"),
            (io::ErrorKind::IsADirectory, "file"),
        ];
        for (kind, code) in table {
            assert_eq!(MachineError::from_io("read", &MachinePath::root(), kind.into()).code(), code);
        }
    }
}
