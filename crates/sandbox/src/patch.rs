//! The patch engine: text that names files and lines becomes changed files, all of them or none.
//!
//! A [`Patch`] is parsed from whatever a model sends ([`Patch::parse`]), applied by [`apply`], and taken back by [`undo`].
//! Two [`Profile`]s decide where the two known engines disagree; what either of them forgives is forgiven in both.

mod apply;
mod body;
mod commit;
mod envelope;
mod files;
mod invocation;
mod journal;
mod json;
mod nearest;
mod place;
mod plan;
mod record;
mod recover;
mod search;
mod text;

#[cfg(test)]
mod tests;

use std::time::Duration;

use bytes::Bytes;
use sandbar_machine::Target;
use serde::{Deserialize, Serialize};

pub(crate) use self::apply::undo_recorded;
pub use self::{
    apply::{apply, undo},
    invocation::{Invocation, from_command, from_script},
    journal::PatchJournal,
    recover::{Recovered, recover},
    text::Ending,
};
use crate::{Result, SandboxError, SecretMask};

/// Whose habits decide where engines differ: final newlines, where a bare insertion goes, what an unknown anchor means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Profile {
    /// The freeform tool: files end with a newline, bare insertions go to the end, every anchor must be found.
    #[default]
    Codex,
    /// Single operations with a diff: final newlines stay as they are, bare insertions go where the anchors lead.
    Sdk,
}

/// One line of a hunk, without its prefix and line ending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HunkLine {
    /// A line that is there and stays.
    Keep(String),
    /// A line that is there and goes.
    Remove(String),
    /// A line that comes.
    Add(String),
}

impl HunkLine {
    fn text(&self) -> &str {
        match self {
            Self::Keep(text) | Self::Remove(text) | Self::Add(text) => text,
        }
    }
}

/// One place of a file that changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hunk {
    /// The texts after `@@`, in order; empty for a bare one.
    pub anchors: Vec<String>,
    /// What is there and what becomes of it.
    pub lines: Vec<HunkLine>,
    /// Whether the hunk says that it is at the end of the file.
    pub end_of_file: bool,
}

/// What a patch does to one file. Paths are as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Makes a file, or replaces one.
    Create {
        /// Where.
        path: String,
        /// Its lines.
        lines: Vec<String>,
        /// How the lines of the patch itself ended.
        ending: Ending,
    },
    /// Changes a file, gives it another name, or both.
    Update {
        /// Where.
        path: String,
        /// Its new name.
        move_to: Option<String>,
        /// What changes, in the order of the file; empty for a new name only.
        hunks: Vec<Hunk>,
        /// How the lines of the patch itself ended.
        ending: Ending,
    },
    /// Removes a file.
    Delete {
        /// Where.
        path: String,
    },
}

impl Operation {
    /// The path it is about.
    #[must_use]
    pub fn path(&self) -> &str {
        match self {
            Self::Create { path, .. } | Self::Update { path, .. } | Self::Delete { path } => path,
        }
    }

    /// The other path it is about.
    #[must_use]
    pub fn move_to(&self) -> Option<&str> {
        match self {
            Self::Update { move_to, .. } => move_to.as_deref(),
            Self::Create { .. } | Self::Delete { .. } => None,
        }
    }
}

/// The most that is taken as a patch.
const TEXT_LIMIT: usize = 16 << 20;
const OPERATION_LIMIT: usize = 10_000;

/// What a model wants changed, parsed but not yet compared with any file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patch {
    /// What to do, in order.
    pub operations: Vec<Operation>,
}

impl Patch {
    /// Reads a patch in any form it is known to come in: the `*** Begin Patch` envelope, the same inside a here-document, or
    /// JSON with `patch`, `operation`, `operations`, `command` or the operation itself.
    ///
    /// # Errors
    /// `apply_patch_invalid_diff` with the line, `apply_patch_invalid_path` for an empty path, `limit_exceeded` above 16 MiB
    /// or 10,000 operations.
    pub fn parse(text: &str) -> Result<Self> {
        if text.len() > TEXT_LIMIT {
            return Err(SandboxError::limit_exceeded("the patch in bytes", TEXT_LIMIT as u64, text.len() as u64));
        }
        let operations =
            if text.trim_start().starts_with(['{', '[']) { json::parse(text)? } else { envelope::parse(text)? };
        if operations.len() > OPERATION_LIMIT {
            let actual = operations.len() as u64;
            return Err(SandboxError::limit_exceeded("the patch in operations", OPERATION_LIMIT as u64, actual));
        }
        Ok(Self { operations })
    }

    /// Every path the patch would touch, as written and in order: what to ask a person about.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.operations.iter().flat_map(|operation| std::iter::once(operation.path()).chain(operation.move_to()))
    }
}

/// What a patch may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PatchLimits {
    /// Bytes of one file, before and after.
    pub file: u64,
    /// Bytes of all files together.
    pub total: u64,
    /// How long one request to the machine may take.
    pub patience: Duration,
}

impl Default for PatchLimits {
    fn default() -> Self {
        Self { file: 64 << 20, total: 256 << 20, patience: Duration::from_secs(120) }
    }
}

/// How a patch is applied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PatchOptions {
    /// Whose habits.
    pub profile: Profile,
    /// Whose identity; `None` is the machine's default user.
    pub user: Option<String>,
    /// Where relative paths begin, itself relative to the root; `None` is the root.
    pub cwd: Option<String>,
    /// What it may cost.
    pub limits: PatchLimits,
    /// Where it is recorded while it is applied, so that one that is interrupted is taken back by the next.
    pub journal: Option<PatchJournal>,
    /// Hides secret values in the lines that an error quotes, before those are cut; a session has its own.
    pub mask: Option<SecretMask>,
}

/// A file's bytes and permission bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// Everything in it.
    pub bytes: Bytes,
    /// Its permission bits.
    pub mode: u32,
}

/// What became of one file, all operations together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Its path as the patch wrote it.
    pub path: String,
    /// Where it is.
    pub target: Target,
    /// What was there, if anything was.
    pub before: Option<Content>,
    /// What is there now, if anything is.
    pub after: Option<Content>,
}

/// What one operation did. Paths are as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Done {
    /// A file was made or replaced.
    Created(String),
    /// A file was changed.
    Updated(String),
    /// A file was changed, perhaps, and has another name.
    Moved(String, String),
    /// A file was removed.
    Deleted(String),
}

/// A patch that was applied: what was done, and what it takes to undo it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// What each operation did.
    pub done: Vec<Done>,
    /// What became of each file that is not what it was.
    pub delta: Vec<Change>,
    /// The directories that had to be made, parents first.
    pub made: Vec<Target>,
    /// What the patch was allowed to cost; undoing it may cost the same.
    pub limits: PatchLimits,
}

impl Applied {
    /// One line per operation: `Created P`, `Updated P`, `Deleted P`; for a move `Updated P` and `Moved P to Q`.
    #[must_use]
    pub fn sdk_text(&self) -> String {
        let lines = self.done.iter().map(|done| match done {
            Done::Created(path) => format!("Created {path}"),
            Done::Updated(path) => format!("Updated {path}"),
            Done::Moved(path, to) => format!("Updated {path}\nMoved {path} to {to}"),
            Done::Deleted(path) => format!("Deleted {path}"),
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    /// A summary by kind: what was added (`A`), what was modified (`M`, moves under their new name), what was deleted (`D`).
    #[must_use]
    pub fn codex_text(&self) -> String {
        let mut text = "Success. Updated the following files:\n".to_owned();
        for mark in ['A', 'M', 'D'] {
            for done in &self.done {
                let (kind, path) = match done {
                    Done::Created(path) => ('A', path),
                    Done::Updated(path) | Done::Moved(_, path) => ('M', path),
                    Done::Deleted(path) => ('D', path),
                };
                if kind == mark {
                    text.push_str(&format!("{mark} {path}\n"));
                }
            }
        }
        text
    }
}
