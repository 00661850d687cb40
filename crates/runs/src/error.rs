//! Errors of this crate: what failed, why, and what to do about it.

use std::{error::Error as StdError, fmt, io, iter, result};

use sandbar::{MachineError, SandboxError};

/// The result of an operation of this crate.
pub type Result<T, E = Error> = result::Result<T, E>;

/// Any other error, as the cause of one of ours.
type BoxError = Box<dyn StdError + Send + Sync>;

/// Why an operation on runs, working copies or sessions failed.
///
/// `Display` is the message without cause and advice: the cause is [`source`](StdError::source), the advice
/// [`advice`](Self::advice).
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    advice: Option<String>,
    subject: Option<String>,
    source: Option<BoxError>,
}

/// Kinds of errors, for callers that react to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A file or directory of the host cannot be used.
    Io,
    /// No run, or more than one, has the given id.
    RunNotFound,
    /// Another process works on the run.
    RunBusy,
    /// The record of the run cannot be read.
    RunDamaged,
    /// The run was killed, and its working copy may be incomplete.
    RunKilled,
    /// The run has no working copy.
    NoCopy,
    /// The copy of the run was interrupted before it was complete.
    IncompleteCopy,
    /// The file system has too little space.
    NoSpace,
    /// A directory is larger than the limits allow.
    LimitExceeded,
    /// An ignore file cannot be followed.
    IgnoreRules,
    /// A file of the source directory cannot be copied.
    NotCopied,
    /// A file of the host cannot be written.
    NotWritten,
    /// A path belongs to a git repository and must not be written.
    Repository,
    /// A repository cannot be protected: a part of it is a link.
    RepositoryLink,
    /// A repository cannot be protected: the machine has less than full isolation.
    RepositoryIsolation,
    /// A directory has more repositories than can be protected.
    TooManyRepositories,
    /// A patch would change files that belong to git.
    RepositoryPatch,
    /// The destination of an apply belongs to a git repository.
    DestinationInRepository,
    /// The destination directory cannot be used.
    Destination,
    /// The caller cancelled.
    Cancelled,
    /// The state directory cannot be used.
    StateDir,
    /// The session has no machine any more.
    SessionClosed,
    /// A session failed; the source is a [`SandboxError`].
    Sandbox,
    /// A machine failed; the source is a [`MachineError`].
    Machine,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), advice: None, subject: None, source: None }
    }

    /// A failed use of a host file: `cannot read PATH`, with its cause.
    pub(crate) fn io(message: impl Into<String>, cause: impl Into<BoxError>) -> Self {
        Self::new(ErrorKind::Io, message).because(cause)
    }

    pub(crate) fn because(mut self, cause: impl Into<BoxError>) -> Self {
        self.source = Some(cause.into());
        self
    }

    pub(crate) fn with_advice(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }

    /// Replaces the message.
    pub(crate) fn saying(mut self, message: impl Into<String>) -> Self {
        self.message = message.into();
        self
    }

    pub(crate) fn of_kind(mut self, kind: ErrorKind) -> Self {
        self.kind = kind;
        self
    }

    pub(crate) fn about(mut self, subject: impl Into<String>) -> Self {
        self.subject = Some(subject.into());
        self
    }

    /// The kind of the error.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// A stable name for programs, such as `run_busy`.
    pub fn code(&self) -> &'static str {
        match self.kind {
            ErrorKind::Io | ErrorKind::NotCopied | ErrorKind::Destination | ErrorKind::StateDir => "failed",
            ErrorKind::RunNotFound => "run_not_found",
            ErrorKind::RunBusy => "run_busy",
            ErrorKind::RunDamaged => "run_damaged",
            ErrorKind::RunKilled => "run_lost",
            ErrorKind::NoCopy | ErrorKind::IncompleteCopy => "no_copy",
            ErrorKind::NoSpace => "no_room",
            ErrorKind::LimitExceeded => "limit_exceeded",
            ErrorKind::IgnoreRules => "ignore_rules",
            ErrorKind::NotWritten => "workspace_archive_write_error",
            ErrorKind::Repository
            | ErrorKind::RepositoryLink
            | ErrorKind::RepositoryIsolation
            | ErrorKind::TooManyRepositories
            | ErrorKind::RepositoryPatch
            | ErrorKind::DestinationInRepository => "repository",
            ErrorKind::Cancelled => "cancelled",
            ErrorKind::SessionClosed => "session_closed",
            ErrorKind::Sandbox => self.cause::<SandboxError>().map_or("failed", SandboxError::code),
            ErrorKind::Machine => self.cause::<MachineError>().map_or("failed", MachineError::code),
        }
    }

    /// What to do about it, where that does not depend on the program.
    pub fn advice(&self) -> Option<&str> {
        self.advice.as_deref()
    }

    /// The id of the run or session that the error is about.
    pub fn subject(&self) -> Option<&str> {
        self.subject.as_deref()
    }

    /// The cause, taken out of the error.
    pub fn into_cause(self) -> Option<Box<dyn StdError + Send + Sync>> {
        self.source
    }

    fn cause<T: StdError + 'static>(&self) -> Option<&T> {
        self.source.as_ref().and_then(|cause| cause.downcast_ref())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        let cause = self.source.as_deref()?;
        // The message of these two is that of the cause.
        if matches!(self.kind, ErrorKind::Sandbox | ErrorKind::Machine) { cause.source() } else { Some(cause) }
    }
}

impl From<SandboxError> for Error {
    fn from(error: SandboxError) -> Self {
        Self::new(ErrorKind::Sandbox, describe(&error)).because(error)
    }
}

impl From<MachineError> for Error {
    fn from(error: MachineError) -> Self {
        Self::new(ErrorKind::Machine, describe(&error)).because(error)
    }
}

/// An error's text without the number that the standard library adds to errors of the system.
pub fn describe(error: &dyn StdError) -> String {
    without_number(&error.to_string()).to_owned()
}

/// A text without the number of an error of the system at its end.
pub fn without_number(text: &str) -> &str {
    match text.split_once(" (os error ") {
        Some((words, rest)) if rest.ends_with(')') => words,
        _ => text,
    }
}

/// An error and its causes in one line.
pub(crate) fn full(error: &Error) -> String {
    let causes = iter::successors(error.source(), |cause| (*cause).source()).map(describe);
    let mut texts: Vec<String> = causes.collect();
    texts.dedup();
    if texts.is_empty() { error.to_string() } else { format!("{error}; {}", texts.join(": ")) }
}

/// A number of bytes in at most three digits and a unit: `1.5G`.
pub fn format_size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "K", "M", "G", "T"];
    let mut unit = 0;
    let mut tenths = bytes.saturating_mul(10);
    while tenths >= 10_240 && unit + 1 < UNITS.len() {
        tenths /= 1024;
        unit += 1;
    }
    match unit {
        0 => format!("{bytes}B"),
        _ if tenths < 100 => format!("{}.{}{}", tenths / 10, tenths % 10, UNITS[unit]),
        _ => format!("{}{}", tenths / 10, UNITS[unit]),
    }
}

/// An error of the system with a text of ours.
pub(crate) fn other(text: impl Into<String>) -> io::Error {
    io::Error::other(text.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_short() {
        let table = [
            (0, "0B"),
            (1023, "1023B"),
            (1024, "1.0K"),
            (10 << 10, "10K"),
            (1536 << 20, "1.5G"),
            (u64::MAX, "1677721T"),
        ];
        for (bytes, text) in table {
            assert_eq!(format_size(bytes), text);
        }
    }

    #[test]
    fn an_error_has_a_code_a_cause_and_advice() {
        let error = Error::io("cannot read x", io::Error::from_raw_os_error(2)).with_advice("create it");
        assert_eq!((error.code(), error.advice()), ("failed", Some("create it")));
        assert_eq!(full(&error), "cannot read x; No such file or directory");
        let error = Error::from(MachineError::Gone);
        assert_eq!((error.code(), error.kind()), ("gone", ErrorKind::Machine));
    }
}
