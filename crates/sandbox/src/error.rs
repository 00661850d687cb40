//! The error type of a workspace: one enum, with the codes, operations and contexts that other sandboxes use too.

mod text;

use std::{collections::BTreeMap, fmt};

use sandbar_machine::{BoxError, MachineError};
use serde::Serialize;
use serde_json::Value;

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
enum Retry {
    No,
    /// Decided by the cause; unknown without a cause.
    AsCause,
}

/// Defines the enum, one constructor per variant (named like its code), and the methods that every error has.
macro_rules! errors {
    ($($(#[$doc:meta])* $variant:ident $code:ident($($field:ident: $type:ty),*) $op:ident $retry:ident $message:literal $(($($part:tt)*))?;)*) => {
        /// Why an operation on a workspace failed. Match on the variant, or on [`code`](Self::code) where a string is
        /// needed; [`context`](Self::context) holds the facts, `source` the cause.
        #[derive(Debug, thiserror::Error)]
        #[non_exhaustive]
        pub enum SandboxError {
            $($(#[$doc])* #[error($message $(, $($part)*)?)] $variant {
                $(#[doc = concat!("The `", stringify!($field), "` of [`context`](Self::context).")] $field: $type,)*
                /// The cause, if there is one.
                #[source] source: Option<BoxError>,
            },)*
        }

        impl SandboxError {
            $($(#[$doc])* pub fn $code($($field: impl Into<$type>),*) -> Self {
                Self::$variant { $($field: $field.into(),)* source: None }
            })*

            /// The stable name of this error, for programs and logs.
            #[must_use]
            pub fn code(&self) -> &'static str {
                match self { $(Self::$variant { .. } => stringify!($code),)* }
            }

            fn usual_op(&self) -> Op {
                match self { $(Self::$variant { .. } => Op::$op,)* }
            }

            /// The facts of this error, by name.
            #[must_use]
            pub fn context(&self) -> BTreeMap<&'static str, Value> {
                match self { $(Self::$variant { $($field,)* .. } => BTreeMap::from([$((name(stringify!($field)), fact($field)),)*]),)* }
            }

            /// Sets the cause.
            #[must_use]
            pub fn because(mut self, cause: impl Into<BoxError>) -> Self {
                match &mut self { $(Self::$variant { source, .. } => *source = Some(cause.into()),)* }
                self
            }

            fn retry(&self) -> Retry {
                match self { $(Self::$variant { .. } => Retry::$retry,)* }
            }
        }
    };
}

errors! {
    /// A path in a manifest, or given to a session, is not allowed.
    InvalidManifestPath invalid_manifest_path(rel: String, reason: PathFault) Materialize No "{rel:?} {reason}";
    /// The manifest is invalid; `path` is the location inside the manifest.
    ManifestInvalid manifest_invalid(path: String, reason: String) Materialize No "{path}: {reason}";
    /// The session's settings contradict each other or the client.
    SandboxConfigInvalid sandbox_config_invalid(what: String, reason: String) Materialize No "{what}: {reason}";
    /// The client cannot do what the manifest or the call asks for.
    UnsupportedFeature unsupported_feature(what: String, reason: String) Create No "{what}: {reason}";
    /// The manifest names a secret that was not supplied.
    SecretNotFound secret_not_found(name: String) Start No
        "the secret {name:?} is not known; give it with `--secret {name}`, or in the session's options";
    /// The archive has a format that cannot be unpacked.
    InvalidCompressionScheme invalid_compression_scheme(path: String, scheme: String) Write No
        "{path}: cannot unpack {scheme:?}; known are tar, tar.gz, tar.zst and zip";
    /// The port cannot be reached.
    ExposedPortUnavailable exposed_port_unavailable(port: u16, exposed_ports: Vec<u16>, reason: String) ResolveExposedPort AsCause
        "port {port} is not available: {}" (text::without_code(reason));
    /// A command that had to succeed exited with another code than zero.
    ExecNonZero exec_nonzero(command: Vec<String>, exit_code: i32, stdout: String, stderr: String) Exec No
        "{}" (text::exited(command, *exit_code, stdout, stderr));
    /// A command exceeded its timeout and was killed with every process it started.
    ExecTimeout exec_timeout(command: Vec<String>, timeout_s: f64, stdout: String, stderr: String) Exec No
        "{} was killed after {timeout_s} s" (text::command_line(command));
    /// An operation exceeded its timeout.
    OperationTimeout operation_timeout(during: Op, what: String, timeout_s: f64) Exec No
        "cannot {during} {what}: it took longer than {timeout_s} s";
    /// A command could not be started, or its output could not be read.
    ExecTransport exec_transport_error(command: Vec<String>, reason: String) Exec AsCause
        "cannot run {}{}" (text::command_line(command), text::reason_suffix(reason));
    /// No process of the table has this id.
    PtySessionNotFound pty_session_not_found(session_id: u64) Exec No "PTY session not found: {session_id}";
    /// The process has no terminal to type into.
    PtyStdinUnavailable pty_stdin_unavailable(session_id: u64) PtyStdin No
        "stdin is not available for session {session_id}; start the command with tty=true to write to it";
    /// A path in a patch is not allowed.
    ApplyPatchInvalidPath apply_patch_invalid_path(path: String, reason: PathFault) ApplyPatch No "{}" (patch_path(path, *reason));
    /// The patch is malformed, or does not fit the files.
    ApplyPatchInvalidDiff apply_patch_invalid_diff(path: String, reason: String) ApplyPatch No "{reason}";
    /// The patch changes a file that does not exist.
    ApplyPatchFileNotFound apply_patch_file_not_found(path: String) ApplyPatch No "apply_patch missing file: {path}";
    /// The patch changes a file that is not text.
    ApplyPatchDecode apply_patch_decode_error(path: String) ApplyPatch No "apply_patch could not decode file: {path}";
    /// The patch is valid but could not be written; `undone` says whether all files have their old content.
    ApplyPatchWrite apply_patch_write_error(path: String, undone: bool) ApplyPatch AsCause "cannot write {path}";
    /// The path to read does not exist.
    WorkspaceReadNotFound workspace_read_not_found(path: String) Read No "{path} does not exist";
    /// The path exists but cannot be read.
    WorkspaceArchiveRead workspace_archive_read_error(path: String, reason: String) Read AsCause "cannot read {path}{}" (text::reason_suffix(reason));
    /// The path cannot be written.
    WorkspaceArchiveWrite workspace_archive_write_error(path: String, reason: String) Write AsCause "cannot write {path}{}" (text::reason_suffix(reason));
    /// The archive is refused; `member` is the member that is not allowed.
    ArchiveRefused archive_refused(path: String, member: String, reason: String) Extract No
        "{path}: {}" (text::member(member, reason));
    /// An archive, a file or a response is larger than allowed.
    LimitExceeded limit_exceeded(what: String, limit: u64, actual: u64) Write No
        "{what} is larger than allowed: the limit is {limit}, this is {actual} or more";
    /// The session could not start; its machine was removed.
    WorkspaceStart workspace_start_error(path: String, reason: String) Start AsCause "cannot start the session in {path}{}" (text::reason_suffix(reason));
    /// The session could not end cleanly.
    WorkspaceStop workspace_stop_error(path: String, reason: String) Stop AsCause "cannot stop the session in {path}{}" (text::reason_suffix(reason));
    /// The root of the workspace does not exist.
    WorkspaceRootNotFound workspace_root_not_found(path: String) Exec No "the workspace {path} does not exist";
    /// The session was stopped, closed or deleted.
    SessionClosed session_closed(session_id: String) Running No "the session {session_id} is closed";
    /// No saved session matches.
    SessionNotFound session_not_found(session: String, reason: String) Attach No "session {session:?}: {reason}";
    /// The record of a saved session is unusable.
    SessionDamaged session_damaged(session: String, reason: String) Attach No "the record of session {session} is damaged: {reason}";
    /// Saved sessions cannot be read or written.
    SessionStoreFailed session_store_error(path: String, reason: String) Attach AsCause "{path}: {reason}";
    /// A file of the host cannot be copied into the workspace.
    LocalFileRead local_file_read_error(src: String, reason: String) Materialize AsCause "cannot copy {src}: {}" (text::without_code(reason));
    /// A directory of the host cannot be copied into the workspace.
    LocalDirRead local_dir_read_error(src: String, child: String, reason: String) Materialize AsCause
        "cannot copy {src}: {}" (text::child(child, reason));
    /// The checksum of a file differs from the declared one.
    LocalChecksum local_checksum_error(src: String, expected: String, actual: String) Materialize No
        "{src}: expected sha256 {expected}, got {actual}";
    /// The machine that fetches repositories has no git.
    GitMissingInImage git_missing_in_image(repo: String) Materialize No
        "cannot clone {repo}: there is no git where repositories are fetched; install git on this host or in that image";
    /// The subpath of a repository is not allowed, or does not exist.
    GitSubpath git_subpath_error(repo: String, subpath: String, reason: String) Materialize No "{repo}: the subpath {subpath:?} {}" (text::without_code(reason));
    /// A repository could not be cloned.
    GitClone git_clone_error(url: String, git_ref: String, stderr: String) Materialize AsCause
        "cannot clone {url} at {git_ref:?}: {stderr}";
    /// A clone could not be copied into the workspace.
    GitCopy git_copy_error(src_root: String, dest: String, reason: String) Materialize AsCause "cannot copy {src_root} to {dest}{}" (text::reason_suffix(reason));
    /// A URL could not be fetched.
    RemoteFetch remote_fetch_error(url: String, reason: String, status: Option<u16>) Materialize AsCause "cannot fetch {url}: {reason}";
    /// A mount needs a program that is not installed.
    MountMissingTool mount_missing_tool(tool: String) Materialize No "the mount needs {tool}, which is not installed";
    /// The settings of a mount are invalid.
    MountConfigInvalid mount_config_invalid(path: String, reason: String) Materialize No "mount {path}: {}" (text::without_code(reason));
    /// A mount failed.
    MountFailed mount_failed(path: String, reason: String) Materialize No "mount {path}: {}" (text::without_code(reason));
    /// A user or group does not exist on the machine.
    AccountUnavailable account_unavailable(name: String, reason: String) Start No "account {name:?}: {reason}";
    /// The workspace could not be saved.
    SnapshotPersist snapshot_persist_error(snapshot_id: String, reason: String) SnapshotPersist AsCause "cannot save {snapshot_id}{}" (text::reason_suffix(reason));
    /// The workspace could not be restored.
    SnapshotRestore snapshot_restore_error(snapshot_id: String, reason: String) SnapshotRestore AsCause "cannot restore {snapshot_id}{}" (text::reason_suffix(reason));
    /// No snapshot of this id was saved.
    SnapshotNotRestorable snapshot_not_restorable(snapshot_id: String) SnapshotRestore No "nothing was saved as {snapshot_id}";
    /// Any other error of a machine; the machine's error is the cause.
    MachineRefused machine_error(during: Op, what: String) Exec AsCause "cannot {during} {what}";
}

/// The message about a path in a patch, worded as models know it.
fn patch_path(path: &str, fault: PathFault) -> String {
    match fault {
        PathFault::Empty => "apply_patch path must be non-empty".to_owned(),
        PathFault::EscapeRoot | PathFault::Absolute => format!("apply_patch path must not escape root: {path}"),
        other => format!("apply_patch path {path:?} {other}"),
    }
}

/// The name of a field in the context: `ref` is a Rust keyword.
fn name(field: &'static str) -> &'static str {
    if field == "git_ref" { "ref" } else { field }
}

fn fact<T: Serialize>(value: &T) -> Value {
    serde_json::to_value(value).unwrap_or(Value::Null)
}

impl SandboxError {
    /// The operation that failed.
    #[must_use]
    pub fn op(&self) -> Op {
        match self {
            Self::MachineRefused { during, .. } | Self::OperationTimeout { during, .. } => *during,
            other => other.usual_op(),
        }
    }

    /// Whether the same request may succeed when it is repeated; `None` if that is unknown.
    #[must_use]
    pub fn retryable(&self) -> Option<bool> {
        let undeclared = matches!(self, Self::ExposedPortUnavailable { reason, .. } if reason == "not_configured");
        if undeclared || matches!(self.retry(), Retry::No) {
            return Some(false);
        }
        let cause = std::error::Error::source(self)?;
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
        let first = std::error::Error::source(self);
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
