//! The kinds of errors, and every code of each: its facts, operation, retry rule and message.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use super::{
    ErrorDetails, PathFault,
    Retry::{AsCause, Never},
    text::{command_line, exited, of_child, of_member, patch_path, reason_suffix, without_code},
};
use crate::Op::{
    self, ApplyPatch, Attach, Create, Exec, Extract, Materialize, PtyStdin, Read, ResolveExposedPort, Running, Start,
    Stop, Write,
};

/// Defines the enum, access to the details of every variant, and a constructor for each code, named like it. A fact
/// without a type is text.
macro_rules! errors {
    ($($(#[$kind_doc:meta])* $variant:ident $({ $(#[$field_doc:meta])* $field:ident: $field_type:ty })? => {
        $($(#[$doc:meta])* $vis:vis $code:ident($($fact:ident $(: $type:ty)?),*) $({ $typed:ident })?
            $op:ident $retry:ident $message:literal $(, $part:expr)*;)*
    })*) => {
        /// Why an operation on a workspace failed. The variant is the kind of failure, [`code`](Self::code) the exact
        /// one; [`context`](Self::context) contains the facts, `source` the cause.
        #[derive(Debug)]
        #[non_exhaustive]
        pub enum SandboxError {
            $($(#[$kind_doc])* #[non_exhaustive] $variant {
                $($(#[$field_doc])* $field: $field_type,)?
                /// Code, message, facts and cause.
                details: Box<ErrorDetails>,
            },)*
        }

        impl SandboxError {
            pub(super) fn details(&self) -> &ErrorDetails {
                match self { $(Self::$variant { details, .. } => details,)* }
            }

            pub(super) fn details_mut(&mut self) -> &mut ErrorDetails {
                match self { $(Self::$variant { details, .. } => details,)* }
            }

            $($($(#[$doc])* $vis fn $code($($fact: impl Into<fact!($($type)?)>),*) -> Self {
                $(let $fact: fact!($($type)?) = $fact.into();)*
                let facts = BTreeMap::from([$((name(stringify!($fact)), value(&$fact)),)*]);
                let message = format!($message $(, $part)*);
                let (code, op, retry) = (stringify!($code), $op, $retry);
                let details = Box::new(ErrorDetails { code, op, retry, message, facts, source: None });
                Self::$variant { $($typed,)? details }
            })*)*
        }
    };
}

/// The type of a fact.
macro_rules! fact {
    () => {
        String
    };
    ($type:ty) => {
        $type
    };
}

errors! {
    /// A path in a manifest, or given to a session, is not allowed: `invalid_manifest_path`.
    InvalidPath {
        /// What is wrong with the path.
        reason: PathFault
    } => {
        /// A path in a manifest, or given to a session, is not allowed.
        pub(crate) invalid_manifest_path(rel, reason: PathFault) { reason } Materialize Never "{rel:?} {reason}";
    }
    /// A manifest or a setting is wrong, or names something that does not exist: `manifest_invalid`,
    /// `sandbox_config_invalid`, `mount_config_invalid`, `secret_not_found`, `account_unavailable`.
    Invalid => {
        /// The manifest is invalid; `path` is the location inside the manifest.
        pub manifest_invalid(path, reason) Materialize Never "{path}: {reason}";
        /// The session's settings contradict each other or the client.
        pub sandbox_config_invalid(what, reason) Materialize Never "{what}: {reason}";
        /// The manifest names a secret that was not supplied.
        pub(crate) secret_not_found(name) Start Never
            "the secret {name:?} is not known; give it with `--secret {name}`, or in the session's options";
        /// The settings of a mount are invalid.
        pub(crate) mount_config_invalid(path, reason) Materialize Never "mount {path}: {}", without_code(&reason);
        /// A user or group does not exist on the machine.
        pub account_unavailable(name, reason) Start Never "account {name:?}: {reason}";
    }
    /// The client cannot do it, or the format is not known: `unsupported_feature`, `invalid_compression_scheme`.
    Unsupported => {
        /// The client cannot do what the manifest or the call asks for.
        pub unsupported_feature(what, reason) Create Never "{what}: {reason}";
        /// The archive has a format that cannot be unpacked.
        pub(crate) invalid_compression_scheme(path, scheme) Write Never
            "{path}: cannot unpack {scheme:?}; known are tar, tar.gz, tar.zst and zip";
    }
    /// The path to read does not exist: `workspace_read_not_found`.
    NotFound {
        /// The path, as the caller gave it.
        path: String
    } => {
        /// The path to read does not exist.
        pub workspace_read_not_found(path) { path } Read Never "{path} does not exist";
    }
    /// The machine failed or refused an operation on a path: `workspace_archive_read_error`,
    /// `workspace_archive_write_error`, `machine_error`.
    Machine => {
        /// The path exists but cannot be read.
        pub workspace_archive_read_error(path, reason) Read AsCause "cannot read {path}{}", reason_suffix(&reason);
        /// The path cannot be written.
        pub(crate) workspace_archive_write_error(path, reason) Write AsCause
            "cannot write {path}{}", reason_suffix(&reason);
        /// Any other error of a machine; the machine's error is the cause.
        pub(crate) machine_error(during: Op, what) during AsCause "cannot {during} {what}";
    }
    /// An archive, a file or a response is larger than allowed: `limit_exceeded`.
    LimitExceeded => {
        /// An archive, a file or a response is larger than allowed.
        pub(crate) limit_exceeded(what, limit: u64, actual: u64) Write Never
            "{what} is larger than allowed: the limit is {limit}, this is {actual} or more";
    }
    /// A command did not run, or did not succeed: `exec_transport_error`, `exec_nonzero`.
    Exec => {
        /// A command that had to succeed exited with another code than zero.
        pub(crate) exec_nonzero(command: Vec<String>, exit_code: i32, stdout, stderr) Exec Never
            "{}", exited(&command, exit_code, &stdout, &stderr);
        /// A command could not be started, or its output could not be read.
        pub(crate) exec_transport_error(command: Vec<String>, reason) Exec AsCause
            "cannot run {}{}", command_line(&command), reason_suffix(&reason);
    }
    /// A command or another operation took too long: `exec_timeout`, `operation_timeout`.
    Timeout {
        /// The timeout in seconds.
        timeout_s: f64
    } => {
        /// A command exceeded its timeout and was killed with every process it started.
        pub(crate) exec_timeout(command: Vec<String>, timeout_s: f64, stdout, stderr) { timeout_s } Exec Never
            "{} was killed after {timeout_s} s", command_line(&command);
        /// An operation exceeded its timeout.
        pub(crate) operation_timeout(during: Op, what, timeout_s: f64) { timeout_s } during Never
            "cannot {during} {what}: it took longer than {timeout_s} s";
    }
    /// A command of the process table is unknown or takes no input: `pty_session_not_found`, `pty_stdin_unavailable`.
    Process => {
        /// No process of the table has this id.
        pub(crate) pty_session_not_found(session_id: u64) Exec Never "PTY session not found: {session_id}";
        /// The process has no terminal to type into.
        pub(crate) pty_stdin_unavailable(session_id: u64) PtyStdin Never
            "stdin is not available for session {session_id}; start the command with tty=true to write to it";
    }
    /// A port cannot be reached: `exposed_port_unavailable`.
    Port => {
        /// The port cannot be reached.
        pub(crate) exposed_port_unavailable(port: u16, exposed_ports: Vec<u16>, reason) ResolveExposedPort AsCause
            "port {port} is not available: {}", without_code(&reason);
    }
    /// A patch is malformed, does not fit, or was not written; the codes begin with `apply_patch_`.
    Patch => {
        /// A path in a patch is not allowed.
        pub(crate) apply_patch_invalid_path(path, reason: PathFault) ApplyPatch Never "{}", patch_path(&path, reason);
        /// The patch is malformed, or does not fit the files.
        pub(crate) apply_patch_invalid_diff(path, reason) ApplyPatch Never "{reason}";
        /// The patch changes a file that does not exist.
        pub(crate) apply_patch_file_not_found(path) ApplyPatch Never "apply_patch missing file: {path}";
        /// The patch changes a file that is not text.
        pub(crate) apply_patch_decode_error(path) ApplyPatch Never "apply_patch could not decode file: {path}";
        /// The patch is valid but could not be written; `undone` says whether all files have their old content.
        pub(crate) apply_patch_write_error(path, undone: bool) ApplyPatch AsCause "cannot write {path}";
    }
    /// An archive is refused: `archive_refused`.
    Archive => {
        /// The archive is refused; `member` is the member that is not allowed.
        pub(crate) archive_refused(path, member, reason) Extract Never "{path}: {}", of_member(&member, &reason);
    }
    /// Something of the host or of a server could not be copied into the workspace: `remote_fetch_error` and the codes
    /// that begin with `local_` and `git_`.
    Source => {
        /// A file of the host cannot be copied into the workspace.
        pub(crate) local_file_read_error(src, reason) Materialize AsCause
            "cannot copy {src}: {}", without_code(&reason);
        /// A directory of the host cannot be copied into the workspace.
        pub local_dir_read_error(src, child, reason) Materialize AsCause
            "cannot copy {src}: {}", of_child(&child, &reason);
        /// The checksum of a file differs from the declared one.
        pub(crate) local_checksum_error(src, expected, actual) Materialize Never
            "{src}: expected sha256 {expected}, got {actual}";
        /// The machine that fetches repositories has no git.
        pub(crate) git_missing_in_image(repo) Materialize Never
            "cannot clone {repo}: there is no git where repositories are fetched; install git on this host or in that image";
        /// The subpath of a repository is not allowed, or does not exist.
        pub(crate) git_subpath_error(repo, subpath, reason) Materialize Never
            "{repo}: the subpath {subpath:?} {}", without_code(&reason);
        /// A repository could not be cloned.
        pub(crate) git_clone_error(url, git_ref, stderr) Materialize AsCause
            "cannot clone {url} at {git_ref:?}: {stderr}";
        /// A clone could not be copied into the workspace.
        pub(crate) git_copy_error(src_root, dest, reason) Materialize AsCause
            "cannot copy {src_root} to {dest}{}", reason_suffix(&reason);
        /// A URL could not be fetched.
        pub(crate) remote_fetch_error(url, reason, status: Option<u16>) Materialize AsCause
            "cannot fetch {url}: {reason}";
    }
    /// A session is closed, or its saved record is missing or unusable: `session_closed`, `session_not_found`,
    /// `session_damaged`, `session_store_error`.
    Session => {
        /// The session was stopped, closed or deleted.
        pub(crate) session_closed(session_id) Running Never "the session {session_id} is closed";
        /// No saved session matches.
        pub session_not_found(session, reason) Attach Never "session {session:?}: {reason}";
        /// The record of a saved session is unusable.
        pub(crate) session_damaged(session, reason) Attach Never "the record of session {session} is damaged: {reason}";
        /// Saved sessions cannot be read or written.
        pub session_store_error(path, reason) Attach AsCause "{path}: {reason}";
    }
    /// A session could not start or not end cleanly: `workspace_start_error`, `workspace_stop_error`.
    Lifecycle => {
        /// The session could not start; its machine was removed.
        pub workspace_start_error(path, reason) Start AsCause
            "cannot start the session in {path}{}", reason_suffix(&reason);
        /// The session could not end cleanly.
        pub workspace_stop_error(path, reason) Stop AsCause
            "cannot stop the session in {path}{}", reason_suffix(&reason);
    }
}

/// The name of a fact in the context: `ref` is a Rust keyword.
fn name(fact: &'static str) -> &'static str {
    if fact == "git_ref" { "ref" } else { fact }
}

fn value<T: Serialize>(fact: &T) -> Value {
    serde_json::to_value(fact).unwrap_or(Value::Null)
}
