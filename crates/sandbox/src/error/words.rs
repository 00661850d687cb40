//! The words of errors: what programs read in codes, told once and in sentences to people.

use std::error::Error;

use sandbar_machine::{MachineError, MachinePath};

use super::SandboxError;

/// The codes that stand before, or instead of, the words about the same thing.
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

/// Why something that is no machine failed: a server, say. It knows whether asking again may help.
#[derive(Debug, thiserror::Error)]
#[error("{words}")]
pub(crate) struct Outside {
    words: String,
    again: bool,
}

impl Outside {
    /// It may be different the next time.
    pub(crate) fn passing(words: impl Into<String>) -> Self {
        Self { words: words.into(), again: true }
    }

    /// It will be the same the next time; there is nothing more to say.
    pub(crate) fn lasting() -> Self {
        Self { words: String::new(), again: false }
    }

    pub(super) fn again(&self) -> bool {
        self.again
    }
}

/// A reason without its code.
pub(super) fn spoken(reason: &str) -> String {
    if let Some((_, words)) = CODES.iter().find(|(code, _)| *code == reason) {
        return (*words).to_owned();
    }
    let is_code = |word: &str| CODES.iter().any(|(code, _)| code.contains('_') && word.strip_suffix(':') == Some(code));
    reason.split(' ').filter(|word| !is_code(word)).collect::<Vec<_>>().join(" ")
}

/// The names of what machines say, which is the cause then and speaks for itself.
const MACHINES: &[&str] = &[
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

/// The reason as the end of a message, unless the cause says it.
pub(super) fn why(reason: &str) -> String {
    if MACHINES.contains(&reason) { String::new() } else { format!(": {}", spoken(reason)) }
}

/// What is wrong with something in a directory, or with all of it.
pub(super) fn child(child: &str, reason: &str) -> String {
    if child.is_empty() { spoken(reason) } else { format!("{child:?} {}", spoken(reason)) }
}

/// What is wrong with a member of an archive, or with all of it.
pub(super) fn member(member: &str, reason: &str) -> String {
    if member == crate::archive::WHOLE { reason.to_owned() } else { format!("{member:?} {reason}") }
}

/// A command as somebody could have typed it.
pub(super) fn command(words: &[String]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@%+".contains(c);
    let shown = |word: &String| match word.as_str() {
        word if !word.is_empty() && word.chars().all(plain) => word.to_owned(),
        word => format!("{word:?}"),
    };
    words.iter().map(shown).collect::<Vec<_>>().join(" ")
}

/// How a command ended, with the last it said.
pub(super) fn ended(words: &[String], code: i32, stdout: &str, stderr: &str) -> String {
    let said = [stderr.trim(), stdout.trim()].into_iter().find(|said| !said.is_empty());
    let said = said.map(|said| format!(": {said}")).unwrap_or_default();
    format!("{} ended with {code}{said}", command(words))
}

/// A cause in words, if it has any that were not said before.
pub(super) fn of_cause(error: &SandboxError, cause: &(dyn Error + 'static)) -> Option<String> {
    // What the machine that clones says is about its own paths.
    if matches!(error, SandboxError::GitSubpath { .. }) && cause.is::<MachineError>() {
        return None;
    }
    let words = match (cause.downcast_ref::<MachineError>(), shown_path(error)) {
        (Some(MachineError::NotFound(path)), Some(shown)) if is_same(path, shown) => match error {
            SandboxError::WorkspaceReadNotFound { .. } => return None,
            _ => "it does not exist".to_owned(),
        },
        // The system's own words are the next cause.
        (Some(MachineError::File { path, .. }), Some(shown)) if is_same(path, shown) => return None,
        (Some(MachineError::Denied { path, reason }), Some(shown)) if is_same(path, shown) => reason.clone(),
        _ => cause.to_string(),
    };
    Some(words).filter(|words| !words.is_empty())
}

/// The path that the message names.
fn shown_path(error: &SandboxError) -> Option<&str> {
    match error {
        SandboxError::WorkspaceReadNotFound { path, .. }
        | SandboxError::WorkspaceArchiveRead { path, .. }
        | SandboxError::WorkspaceArchiveWrite { path, .. }
        | SandboxError::ApplyPatchWrite { path, .. }
        | SandboxError::MachineRefused { what: path, .. } => Some(path),
        _ => None,
    }
}

/// Whether a path of the machine is the one that was shown, be it relative to the workspace.
fn is_same(path: &MachinePath, shown: &str) -> bool {
    let parts =
        |text: &str| text.split('/').filter(|part| !matches!(*part, "" | ".")).rev().map(str::to_owned).collect();
    let (whole, shown): (Vec<String>, Vec<String>) = (parts(&path.to_string()), parts(shown));
    if shown.is_empty() { *path == MachinePath::workspace() } else { whole.starts_with(&shown) }
}
