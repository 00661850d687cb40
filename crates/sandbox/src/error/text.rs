//! Error texts for people: codes become sentences, and no part of a message is repeated.

use std::error::Error;

use sandbar_machine::{MachineError, MachinePath};

use super::{PathFault, SandboxError};

/// Reason codes and the sentences that replace them.
const CODES: &[(&str, &str)] = &[
    ("absolute", "is absolute"),
    ("empty", "is empty"),
    ("git_directory", "is git's own directory"),
    ("leads_out", "leads out of the repository"),
    ("malformed", "is malformed"),
    ("missing", "is not in the repository"),
    ("not_a_directory", "is not a directory"),
    ("not_configured", "it was not declared"),
    ("not_supported", "this machine cannot show it"),
    ("outside_base_dir", "it lies outside of the directory it must stay in"),
    ("parent_traversal", "leads out of the repository"),
    ("path_changed_during_copy", "it changed while it was being copied"),
    ("symlink_not_supported", "a symbolic link is on the way"),
    ("unreachable", "it cannot be reached"),
    ("unreadable", "cannot be read"),
    ("windows_path", "is a Windows path; use forward slashes and no drive letter"),
];

/// A cause outside every machine, such as a server, and whether a retry may help.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Outside {
    message: String,
    is_retryable: bool,
}

impl Outside {
    /// A cause that may be gone at the next try.
    pub(crate) fn passing(message: impl Into<String>) -> Self {
        Self { message: message.into(), is_retryable: true }
    }

    /// A cause that stays; the error itself has the whole message.
    pub(crate) fn lasting() -> Self {
        Self { message: String::new(), is_retryable: false }
    }

    pub(super) fn is_retryable(&self) -> bool {
        self.is_retryable
    }
}

/// Replaces a reason code by its sentence, and removes codes from a longer reason.
pub(super) fn without_code(reason: &str) -> String {
    if let Some((_, sentence)) = CODES.iter().find(|(code, _)| *code == reason) {
        return (*sentence).to_owned();
    }
    let is_code = |word: &str| CODES.iter().any(|(code, _)| code.contains('_') && word.strip_suffix(':') == Some(code));
    reason.split(' ').filter(|word| !is_code(word)).collect::<Vec<_>>().join(" ")
}

/// Codes of machine errors. Such an error is also the cause, whose message says more than the code.
const MACHINE_CODES: &[&str] = &[
    "denied",
    "exhausted",
    "file",
    "gone",
    "invalid",
    "isolation",
    "not_found",
    "not_removed",
    "start",
    "still_being_removed",
    "transport",
    "unresponsive",
    "unsupported",
];

/// The reason as the end of a message; empty if the cause gives the reason.
pub(super) fn reason_suffix(reason: &str) -> String {
    if MACHINE_CODES.contains(&reason) { String::new() } else { format!(": {}", without_code(reason)) }
}

/// The reason, with the child of the directory it is about; an empty child is the directory itself.
pub(super) fn of_child(child: &str, reason: &str) -> String {
    if child.is_empty() { without_code(reason) } else { format!("{child:?} {}", without_code(reason)) }
}

/// The reason, with the member of the archive it is about, unless it is about the whole archive.
pub(super) fn of_member(member: &str, reason: &str) -> String {
    if member == crate::archive::WHOLE { reason.to_owned() } else { format!("{member:?} {reason}") }
}

/// The message about a path in a patch, worded as models know it.
pub(super) fn patch_path(path: &str, fault: PathFault) -> String {
    match fault {
        PathFault::Empty => "apply_patch path must be non-empty".to_owned(),
        PathFault::EscapeRoot | PathFault::Absolute => format!("apply_patch path must not escape root: {path}"),
        other => format!("apply_patch path {path:?} {other}"),
    }
}

/// A command as it could be typed in a shell.
pub(super) fn command_line(argv: &[String]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@%+".contains(c);
    let quoted = |argument: &String| match argument.as_str() {
        argument if !argument.is_empty() && argument.chars().all(plain) => argument.to_owned(),
        argument => format!("{argument:?}"),
    };
    argv.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

/// The exit code of a command, with its standard error or else its standard output.
pub(super) fn exited(argv: &[String], code: i32, stdout: &str, stderr: &str) -> String {
    let output = [stderr.trim(), stdout.trim()].into_iter().find(|output| !output.is_empty());
    let output = output.map(|output| format!(": {output}")).unwrap_or_default();
    format!("{} ended with {code}{output}", command_line(argv))
}

/// The message of a cause, if it adds something to the error's own message.
pub(super) fn of_cause(error: &SandboxError, cause: &(dyn Error + 'static)) -> Option<String> {
    // The machine that clones reports its own paths, which mean nothing to the user.
    if error.code() == "git_subpath_error" && cause.is::<MachineError>() {
        return None;
    }
    let message = match (cause.downcast_ref::<MachineError>(), shown_path(error)) {
        (Some(MachineError::NotFound(path)), Some(shown)) if is_same(path, shown) => match error {
            SandboxError::NotFound { .. } => return None,
            _ => "it does not exist".to_owned(),
        },
        // The system's own message is the next cause.
        (Some(MachineError::File { path, .. }), Some(shown)) if is_same(path, shown) => return None,
        (Some(MachineError::Denied { path, reason }), Some(shown)) if is_same(path, shown) => reason.clone(),
        _ => cause.to_string(),
    };
    Some(message).filter(|message| !message.is_empty())
}

/// The path that the message names.
fn shown_path(error: &SandboxError) -> Option<&str> {
    match error.code() {
        "machine_error" => error.text("what"),
        "workspace_read_not_found"
        | "workspace_archive_read_error"
        | "workspace_archive_write_error"
        | "apply_patch_write_error" => error.text("path"),
        _ => None,
    }
}

/// Whether a path of the machine is the shown path, which may be relative to the workspace.
fn is_same(path: &MachinePath, shown: &str) -> bool {
    let parts =
        |text: &str| text.split('/').filter(|part| !matches!(*part, "" | ".")).rev().map(str::to_owned).collect();
    let (whole, shown): (Vec<String>, Vec<String>) = (parts(&path.to_string()), parts(shown));
    if shown.is_empty() { *path == MachinePath::workspace() } else { whole.starts_with(&shown) }
}
