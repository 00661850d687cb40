//! The error type of a workspace: kinds of failure, with the codes, operations and contexts that other sandboxes use too.

mod codes;
mod text;

use std::{collections::BTreeMap, error::Error, fmt};

use sandbar_machine::{BoxError, MachineError};
use serde::Serialize;
use serde_json::Value;

pub use self::codes::SandboxError;
pub(crate) use self::text::Outside;
use crate::Op;

/// The result of a session operation.
pub type Result<T, E = SandboxError> = std::result::Result<T, E>;

/// What is wrong with a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PathFault {
    /// The path is absolute where a relative path is needed, or absolute and outside every allowed directory.
    Absolute,
    /// The path leads out of the workspace.
    EscapeRoot,
    /// The path is empty.
    Empty,
    /// The path is a Windows path: it has a drive letter or backslashes.
    WindowsPath,
    /// The path is given twice, or lies below something that is not a directory.
    Duplicate,
    /// The path contains a NUL byte or is too long.
    Malformed,
}

impl fmt::Display for PathFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Absolute => "is absolute and not inside the workspace or a granted path",
            Self::EscapeRoot => "leads out of the workspace",
            Self::Empty => "is empty",
            Self::WindowsPath => "is a Windows path; use forward slashes and no drive letter",
            Self::Duplicate => "is given twice, or lies below something that is not a directory",
            Self::Malformed => "contains a NUL byte, is longer than 4095 bytes or has a part longer than 255",
        })
    }
}

/// Whether the same request may succeed when it is repeated.
#[derive(Clone, Copy, Debug)]
enum Retry {
    Never,
    /// Decided by the cause; unknown without a cause.
    AsCause,
}

/// Code, operation, message, facts and cause of an error.
#[derive(Debug)]
pub struct ErrorDetails {
    code: &'static str,
    op: Op,
    retry: Retry,
    message: String,
    facts: BTreeMap<&'static str, Value>,
    source: Option<BoxError>,
}

fn capitalized(word: &str) -> String {
    let (first, rest) = word.split_at(word.len().min(1));
    first.to_ascii_uppercase() + rest
}

impl fmt::Display for SandboxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.details().message)
    }
}

impl Error for SandboxError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.details().source.as_deref().map(|cause| cause as _)
    }
}

impl SandboxError {
    /// The stable name of this error, for programs and logs.
    #[must_use]
    pub fn code(&self) -> &'static str {
        self.details().code
    }

    /// The operation that failed.
    #[must_use]
    pub fn op(&self) -> Op {
        self.details().op
    }

    /// The facts of this error, by name.
    #[must_use]
    pub fn context(&self) -> BTreeMap<&'static str, Value> {
        self.details().facts.clone()
    }

    /// The fact of this name, if it is a text.
    #[must_use]
    pub fn text(&self, fact: &str) -> Option<&str> {
        self.details().facts.get(fact)?.as_str()
    }

    /// The name of the code's type in audit events and spans.
    pub(crate) fn type_name(&self) -> String {
        match self.code() {
            "exec_nonzero" => "ExecNonZero".to_owned(),
            "machine_error" => "MachineRefused".to_owned(),
            "session_store_error" => "SessionStoreFailed".to_owned(),
            code => code.strip_suffix("_error").unwrap_or(code).split('_').map(capitalized).collect(),
        }
    }

    /// Sets the cause.
    #[must_use]
    pub fn because(mut self, cause: impl Into<BoxError>) -> Self {
        self.details_mut().source = Some(cause.into());
        self
    }

    /// Whether the same request may succeed when it is repeated; `None` if that is unknown.
    #[must_use]
    pub fn retryable(&self) -> Option<bool> {
        let is_undeclared_port = self.text("reason") == Some("not_configured");
        if is_undeclared_port || matches!(self.details().retry, Retry::Never) {
            return Some(false);
        }
        let cause = self.source()?;
        if let Some(outside) = cause.downcast_ref::<Outside>() {
            return Some(outside.is_retryable());
        }
        if let Some(machine) = cause.downcast_ref::<MachineError>() {
            return Some(machine.retryable());
        }
        cause.downcast_ref::<Self>().and_then(Self::retryable)
    }

    /// The message followed by the message of every cause, for people.
    #[must_use]
    pub fn full_message(&self) -> String {
        std::iter::once(self.to_string()).chain(self.causes()).collect::<Vec<_>>().join(": ")
    }

    /// The messages of the causes, nearest first, without repetitions and without codes that are meant for programs.
    #[must_use]
    pub fn causes(&self) -> Vec<String> {
        let first = self.source();
        let causes = std::iter::successors(first, |cause| (*cause).source());
        let mut messages = vec![self.to_string()];
        for message in causes.filter_map(|cause| text::of_cause(self, cause)) {
            if !messages.iter().any(|before| before.ends_with(&message)) {
                messages.push(message);
            }
        }
        messages.split_off(1)
    }

    /// The error for a path that a machine failed to read.
    #[must_use]
    pub fn reading(path: impl Into<String>, cause: MachineError) -> Self {
        match cause {
            MachineError::NotFound(_) => Self::workspace_read_not_found(path).because(cause),
            other => Self::workspace_archive_read_error(path, other.code()).because(other),
        }
    }

    /// The error for a path that a machine failed to write.
    #[must_use]
    pub fn writing(path: impl Into<String>, cause: MachineError) -> Self {
        Self::workspace_archive_write_error(path, cause.code()).because(cause)
    }

    /// The error for any other operation that failed on a machine.
    #[must_use]
    pub fn machine(during: Op, what: impl Into<String>, cause: MachineError) -> Self {
        Self::machine_error(during, what).because(cause)
    }
}

#[cfg(test)]
mod tests {
    use sandbar_machine::MachinePath;

    use super::*;

    #[test]
    fn an_error_has_a_code_an_operation_and_facts() {
        let error = SandboxError::invalid_manifest_path("../x", PathFault::EscapeRoot);
        assert_eq!(
            (error.code(), error.op(), error.retryable()),
            ("invalid_manifest_path", Op::Materialize, Some(false))
        );
        assert_eq!(
            serde_json::to_value(error.context()).unwrap(),
            serde_json::json!({"rel": "../x", "reason": "escape_root"})
        );
        assert_eq!(error.to_string(), "\"../x\" leads out of the workspace");
        let error = SandboxError::git_clone_error("u", "main", "no such ref");
        assert_eq!(error.context()["ref"], "main");
    }

    #[test]
    fn the_names_of_types_are_those_of_earlier_audit_events() {
        let table = [
            (SandboxError::workspace_read_not_found("a"), "WorkspaceReadNotFound"),
            (SandboxError::workspace_start_error("a", "b"), "WorkspaceStart"),
            (SandboxError::git_missing_in_image("a"), "GitMissingInImage"),
            (SandboxError::exec_nonzero(Vec::new(), 1, "", ""), "ExecNonZero"),
            (SandboxError::session_store_error("a", "b"), "SessionStoreFailed"),
            (SandboxError::machine(Op::List, "a", MachineError::Gone), "MachineRefused"),
        ];
        for (error, name) in table {
            assert_eq!(error.type_name(), name);
        }
    }

    #[test]
    fn the_cause_decides_whether_an_error_is_retryable() {
        let lost = || MachineError::transport("read", "x");
        assert_eq!(SandboxError::reading("a", lost()).retryable(), Some(true));
        assert_eq!(SandboxError::reading("a", MachineError::Gone).retryable(), Some(false));
        assert_eq!(SandboxError::workspace_start_error("a", "b").retryable(), None);
        let nested = SandboxError::workspace_start_error("a", "b").because(SandboxError::reading("a", lost()));
        assert_eq!(nested.retryable(), Some(true));
        let missing = MachineError::NotFound(MachinePath::workspace());
        assert_eq!(SandboxError::reading("a", missing).code(), "workspace_read_not_found");
    }

    #[test]
    fn a_message_repeats_nothing_and_contains_no_codes() {
        let path = || MachinePath::new("/workspace/d").unwrap();
        let is_dir = || MachineError::from_io("read", &path(), std::io::Error::other("Is a directory"));
        let denied = || MachineError::Denied { path: path(), reason: "permission denied".to_owned() };
        let deep = MachinePath::new("/workspace/d/e").unwrap();
        let below = MachineError::from_io("unpack", &deep, std::io::Error::other("no"));
        let empty = || (Vec::from(["git".to_owned(), "a b".to_owned()]), String::new());
        let table = [
            (SandboxError::reading("d", is_dir()), "cannot read d: Is a directory"),
            (SandboxError::reading("d", denied()), "cannot read d: permission denied"),
            (SandboxError::reading("d", MachineError::NotFound(path())), "d does not exist"),
            (SandboxError::writing("d", below), "cannot write d: cannot unpack /workspace/d/e: no"),
            (SandboxError::machine(Op::List, "d", denied()), "cannot list d: permission denied"),
            (SandboxError::exec_nonzero(empty().0, 3, "", " \n"), "git \"a b\" ended with 3"),
            (SandboxError::exec_nonzero(empty().0, 3, "out\n", ""), "git \"a b\" ended with 3: out"),
            (SandboxError::exec_nonzero(empty().0, 3, "out", "err\n"), "git \"a b\" ended with 3: err"),
            (SandboxError::local_dir_read_error("x", "", "outside_base_dir: it is not"), "cannot copy x: it is not"),
            (SandboxError::local_dir_read_error("x", "y", "is odd"), "cannot copy x: \"y\" is odd"),
            (SandboxError::local_file_read_error("x", "symlink_not_supported: no"), "cannot copy x: no"),
            (SandboxError::archive_refused("a", "(archive)", "is not one"), "a: is not one"),
            (SandboxError::archive_refused("a", "../x", "leads out"), "a: \"../x\" leads out"),
            (
                SandboxError::git_subpath_error("r", "s", "missing").because(denied()),
                "r: the subpath \"s\" is not in the repository",
            ),
            (
                SandboxError::exposed_port_unavailable(80_u16, [], "not_configured"),
                "port 80 is not available: it was not declared",
            ),
        ];
        for (error, message) in table {
            assert_eq!(error.full_message(), message);
        }
    }

    #[test]
    fn a_machine_error_has_the_operation_that_was_requested() {
        let error = SandboxError::machine(Op::List, "src", MachineError::Gone);
        assert_eq!((error.op(), error.code()), (Op::List, "machine_error"));
        assert_eq!(error.full_message(), "cannot list src: the machine is gone");
    }
}
