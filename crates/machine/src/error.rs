//! Errors of machines and clients, in the few kinds that a caller can act on.

use std::{io, time::Duration};

use crate::{MachinePath, ProcessId};

/// Any error, as the cause of another.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Result of a request to a machine or client.
pub type Result<T, E = MachineError> = std::result::Result<T, E>;

/// Why a machine or client did not do what was requested.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MachineError {
    /// The path does not exist.
    #[error("{0} does not exist on the machine")]
    NotFound(MachinePath),
    /// The machine's rules forbid the operation: permissions, a read-only mount, a symbolic link where none is followed, a path
    /// that leaves [`Target::beneath`](crate::Target::beneath).
    #[error("{path}: {reason}")]
    Denied {
        /// Path of the request.
        path: MachinePath,
        /// Rule that forbids it.
        reason: String,
    },
    /// The file system refused the operation for another reason.
    #[error("cannot {action} {path}")]
    File {
        /// Failed operation as a verb: `read`, `rename`.
        action: &'static str,
        /// Path of the request.
        path: MachinePath,
        /// Error of the system.
        #[source]
        source: io::Error,
    },
    /// The file at the path does not meet [`Target::expected`](crate::Target::expected); nothing was written.
    #[error("{0} was changed meanwhile; nothing was written")]
    Changed(MachinePath),
    /// The request is wrong on any machine.
    #[error("{what}: {reason}")]
    Invalid {
        /// Invalid value.
        what: String,
        /// What is wrong with the value, and what would be right.
        reason: String,
    },
    /// This client cannot do what was requested. The text completes "this client cannot …".
    #[error("this client cannot {0}")]
    Unsupported(&'static str),
    /// This host cannot provide the isolation that was demanded; nothing was run.
    #[error("cannot isolate the machine: {missing}; {fix}")]
    Isolation {
        /// What the host lacks.
        missing: String,
        /// What to do about it.
        fix: String,
    },
    /// The machine cannot have the users and groups of its specification; nothing was run.
    #[error("the machine cannot have several users: that needs {missing}; {fix}")]
    Users {
        /// What the host or client lacks.
        missing: String,
        /// What to do about it.
        fix: String,
    },
    /// Another client is attached to the command.
    #[error("process {0} is held by another client")]
    Held(ProcessId),
    /// A limit was reached: processes, disk, a buffer.
    #[error("{what} is exhausted: {reason}")]
    Exhausted {
        /// Limited resource.
        what: String,
        /// Limit, or the error text of the system.
        reason: String,
    },
    /// The machine could not be started.
    #[error("cannot start the machine: {stage}")]
    Start {
        /// Step that failed.
        stage: String,
        /// Error of that step.
        #[source]
        source: BoxError,
    },
    /// The machine stopped or was deleted.
    #[error("the machine is gone")]
    Gone,
    /// The machine ended, but its files are still being removed. The removal continues without the caller.
    #[error("{what} is still being removed after {} seconds", waited.as_secs())]
    StillBeingRemoved {
        /// Resource that is being removed.
        what: String,
        /// How long this call waited for the removal.
        waited: Duration,
    },
    /// The machine ended, but one of its resources cannot be removed.
    #[error("cannot remove {what}")]
    NotRemoved {
        /// Resource that remains.
        what: String,
        /// Error of the system.
        #[source]
        source: io::Error,
    },
    /// The process that runs the machine does not answer.
    #[error("{what} does not answer: {reason}")]
    Unresponsive {
        /// The process and its machine.
        what: String,
        /// What is known about the process, and what to do.
        reason: String,
    },
    /// The connection to the machine broke, or carried data that is not part of the protocol.
    #[error("lost contact with the machine while trying to {action}")]
    Transport {
        /// Failed operation as a verb.
        action: &'static str,
        /// Error of the connection.
        #[source]
        source: BoxError,
    },
}

impl MachineError {
    /// Stable name of the kind of error, for programs and logs.
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

    /// Whether the same request may succeed if it is repeated without a change.
    #[must_use]
    pub fn retryable(&self) -> bool {
        matches!(self, Self::Transport { .. } | Self::Exhausted { .. } | Self::StillBeingRemoved { .. })
    }

    /// The text of the error and of all its causes, joined by colons.
    #[must_use]
    pub fn with_causes(&self) -> String {
        let mut text = self.to_string();
        let mut next = std::error::Error::source(self);
        while let Some(cause) = next {
            text = format!("{text}: {cause}");
            next = cause.source();
        }
        text
    }

    /// A [`Transport`](Self::Transport) error with this cause.
    pub fn transport(action: &'static str, source: impl Into<BoxError>) -> Self {
        Self::Transport { action, source: source.into() }
    }

    /// An [`Invalid`](Self::Invalid) error about this value.
    pub fn invalid(what: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Invalid { what: what.into(), reason: reason.into() }
    }

    /// Converts a system error about a path into the kind that fits: [`NotFound`](Self::NotFound), [`Denied`](Self::Denied),
    /// [`Exhausted`](Self::Exhausted), or else [`File`](Self::File).
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
    fn every_error_has_its_code_and_only_temporary_errors_are_retryable() {
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
    fn system_errors_become_a_kind_of_machine_error() {
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
