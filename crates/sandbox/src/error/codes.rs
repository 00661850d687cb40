//! Every code of an error: its facts, variant, operation, retry rule and message.

use std::collections::BTreeMap;

use super::{
    ErrorDetails, PathFault,
    Retry::{AsCause, Never},
    SandboxError, text, value,
};
use crate::Op;

/// Defines one constructor for each code, named like it.
macro_rules! codes {
    ($($(#[$doc:meta])* $vis:vis $code:ident($($fact:ident: $type:ty),*) => $variant:ident $({ $field:ident })?,
        $op:expr, $retry:expr, $message:literal $(, $part:expr)*;)*) => {
        impl SandboxError {
            $($(#[$doc])* $vis fn $code($($fact: impl Into<$type>),*) -> Self {
                $(let $fact: $type = $fact.into();)*
                let details = Box::new(ErrorDetails {
                    code: stringify!($code),
                    op: $op,
                    retry: $retry,
                    message: format!($message $(, $part)*),
                    facts: BTreeMap::from([$((name(stringify!($fact)), value(&$fact)),)*]),
                    source: None,
                });
                Self::$variant { $($field,)? details }
            })*
        }
    };
}

codes! {
    /// A path in a manifest, or given to a session, is not allowed.
    pub(crate) invalid_manifest_path(rel: String, reason: PathFault) => InvalidPath { reason }, Op::Materialize, Never,
        "{rel:?} {reason}";
    /// The manifest is invalid; `path` is the location inside the manifest.
    pub manifest_invalid(path: String, reason: String) => Invalid, Op::Materialize, Never,
        "{path}: {reason}";
    /// The session's settings contradict each other or the client.
    pub sandbox_config_invalid(what: String, reason: String) => Invalid, Op::Materialize, Never,
        "{what}: {reason}";
    /// The client cannot do what the manifest or the call asks for.
    pub unsupported_feature(what: String, reason: String) => Unsupported, Op::Create, Never,
        "{what}: {reason}";
    /// The manifest names a secret that was not supplied.
    pub(crate) secret_not_found(name: String) => Invalid, Op::Start, Never,
        "the secret {name:?} is not known; give it with `--secret {name}`, or in the session's options";
    /// The archive has a format that cannot be unpacked.
    pub(crate) invalid_compression_scheme(path: String, scheme: String) => Unsupported, Op::Write, Never,
        "{path}: cannot unpack {scheme:?}; known are tar, tar.gz, tar.zst and zip";
    /// The port cannot be reached.
    pub(crate) exposed_port_unavailable(port: u16, exposed_ports: Vec<u16>, reason: String) => Port, Op::ResolveExposedPort, if reason == "not_configured" { Never } else { AsCause },
        "port {port} is not available: {}", text::without_code(&reason);
    /// A command that had to succeed exited with another code than zero.
    pub(crate) exec_nonzero(command: Vec<String>, exit_code: i32, stdout: String, stderr: String) => Exec, Op::Exec, Never,
        "{}", text::exited(&command, exit_code, &stdout, &stderr);
    /// A command exceeded its timeout and was killed with every process it started.
    pub(crate) exec_timeout(command: Vec<String>, timeout_s: f64, stdout: String, stderr: String) => Timeout { timeout_s }, Op::Exec, Never,
        "{} was killed after {timeout_s} s", text::command_line(&command);
    /// An operation exceeded its timeout.
    pub(crate) operation_timeout(during: Op, what: String, timeout_s: f64) => Timeout { timeout_s }, during, Never,
        "cannot {during} {what}: it took longer than {timeout_s} s";
    /// A command could not be started, or its output could not be read.
    pub(crate) exec_transport_error(command: Vec<String>, reason: String) => Exec, Op::Exec, AsCause,
        "cannot run {}{}", text::command_line(&command), text::reason_suffix(&reason);
    /// No process of the table has this id.
    pub(crate) pty_session_not_found(session_id: u64) => Process, Op::Exec, Never,
        "PTY session not found: {session_id}";
    /// The process has no terminal to type into.
    pub(crate) pty_stdin_unavailable(session_id: u64) => Process, Op::PtyStdin, Never,
        "stdin is not available for session {session_id}; start the command with tty=true to write to it";
    /// A path in a patch is not allowed.
    pub(crate) apply_patch_invalid_path(path: String, reason: PathFault) => Patch, Op::ApplyPatch, Never,
        "{}", text::patch_path(&path, reason);
    /// The patch is malformed, or does not fit the files.
    pub(crate) apply_patch_invalid_diff(path: String, reason: String) => Patch, Op::ApplyPatch, Never,
        "{reason}";
    /// The patch changes a file that does not exist.
    pub(crate) apply_patch_file_not_found(path: String) => Patch, Op::ApplyPatch, Never,
        "apply_patch missing file: {path}";
    /// The patch changes a file that is not text.
    pub(crate) apply_patch_decode_error(path: String) => Patch, Op::ApplyPatch, Never,
        "apply_patch could not decode file: {path}";
    /// The patch is valid but could not be written; `undone` says whether all files have their old content.
    pub(crate) apply_patch_write_error(path: String, undone: bool) => Patch, Op::ApplyPatch, AsCause,
        "cannot write {path}";
    /// The path to read does not exist.
    pub workspace_read_not_found(path: String) => NotFound { path }, Op::Read, Never,
        "{path} does not exist";
    /// The path exists but cannot be read.
    pub workspace_archive_read_error(path: String, reason: String) => Machine, Op::Read, AsCause,
        "cannot read {path}{}", text::reason_suffix(&reason);
    /// The path cannot be written.
    pub(crate) workspace_archive_write_error(path: String, reason: String) => Machine, Op::Write, AsCause,
        "cannot write {path}{}", text::reason_suffix(&reason);
    /// The archive is refused; `member` is the member that is not allowed.
    pub(crate) archive_refused(path: String, member: String, reason: String) => Archive, Op::Extract, Never,
        "{path}: {}", text::member(&member, &reason);
    /// An archive, a file or a response is larger than allowed.
    pub(crate) limit_exceeded(what: String, limit: u64, actual: u64) => LimitExceeded, Op::Write, Never,
        "{what} is larger than allowed: the limit is {limit}, this is {actual} or more";
    /// The session could not start; its machine was removed.
    pub workspace_start_error(path: String, reason: String) => Lifecycle, Op::Start, AsCause,
        "cannot start the session in {path}{}", text::reason_suffix(&reason);
    /// The session could not end cleanly.
    pub workspace_stop_error(path: String, reason: String) => Lifecycle, Op::Stop, AsCause,
        "cannot stop the session in {path}{}", text::reason_suffix(&reason);
    /// The session was stopped, closed or deleted.
    pub(crate) session_closed(session_id: String) => Session, Op::Running, Never,
        "the session {session_id} is closed";
    /// No saved session matches.
    pub session_not_found(session: String, reason: String) => Session, Op::Attach, Never,
        "session {session:?}: {reason}";
    /// The record of a saved session is unusable.
    pub(crate) session_damaged(session: String, reason: String) => Session, Op::Attach, Never,
        "the record of session {session} is damaged: {reason}";
    /// Saved sessions cannot be read or written.
    pub session_store_error(path: String, reason: String) => Session, Op::Attach, AsCause,
        "{path}: {reason}";
    /// A file of the host cannot be copied into the workspace.
    pub(crate) local_file_read_error(src: String, reason: String) => Source, Op::Materialize, AsCause,
        "cannot copy {src}: {}", text::without_code(&reason);
    /// A directory of the host cannot be copied into the workspace.
    pub local_dir_read_error(src: String, child: String, reason: String) => Source, Op::Materialize, AsCause,
        "cannot copy {src}: {}", text::child(&child, &reason);
    /// The checksum of a file differs from the declared one.
    pub(crate) local_checksum_error(src: String, expected: String, actual: String) => Source, Op::Materialize, Never,
        "{src}: expected sha256 {expected}, got {actual}";
    /// The machine that fetches repositories has no git.
    pub(crate) git_missing_in_image(repo: String) => Source, Op::Materialize, Never,
        "cannot clone {repo}: there is no git where repositories are fetched; install git on this host or in that image";
    /// The subpath of a repository is not allowed, or does not exist.
    pub(crate) git_subpath_error(repo: String, subpath: String, reason: String) => Source, Op::Materialize, Never,
        "{repo}: the subpath {subpath:?} {}", text::without_code(&reason);
    /// A repository could not be cloned.
    pub(crate) git_clone_error(url: String, git_ref: String, stderr: String) => Source, Op::Materialize, AsCause,
        "cannot clone {url} at {git_ref:?}: {stderr}";
    /// A clone could not be copied into the workspace.
    pub(crate) git_copy_error(src_root: String, dest: String, reason: String) => Source, Op::Materialize, AsCause,
        "cannot copy {src_root} to {dest}{}", text::reason_suffix(&reason);
    /// A URL could not be fetched.
    pub(crate) remote_fetch_error(url: String, reason: String, status: Option<u16>) => Source, Op::Materialize, AsCause,
        "cannot fetch {url}: {reason}";
    /// The settings of a mount are invalid.
    pub(crate) mount_config_invalid(path: String, reason: String) => Invalid, Op::Materialize, Never,
        "mount {path}: {}", text::without_code(&reason);
    /// A user or group does not exist on the machine.
    pub account_unavailable(name: String, reason: String) => Invalid, Op::Start, Never,
        "account {name:?}: {reason}";
    /// Any other error of a machine; the machine's error is the cause.
    pub(crate) machine_error(during: Op, what: String) => Machine, during, AsCause,
        "cannot {during} {what}";
}

/// The name of a fact in the context: `ref` is a Rust keyword.
fn name(fact: &'static str) -> &'static str {
    if fact == "git_ref" { "ref" } else { fact }
}
