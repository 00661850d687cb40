//! Protection of git repositories in directories that a sandbox can write to: found, mounted read-only, compared at the end.
//!
//! Git runs programs that a repository names: its hooks, and commands in its configuration. `git status`, or a prompt that
//! shows the branch, is enough. A command in a sandbox must not decide what runs on the host, so everything that belongs to a
//! repository is read-only inside, unless the caller allows writes ([`GitAccess::Writable`]). It is:
//!
//! | what | how it is recognized |
//! |---|---|
//! | a repository | `.git`, or `HEAD` with `objects` and `refs`, or `HEAD` with `commondir` (a worktree's part of one) |
//! | the target of a `.git` file | its `gitdir:`, and the `commondir` there |
//! | hooks elsewhere | `core.hooksPath`, also in the user's configuration |
//! | more configuration | `include.path` and `includeIf.*.path` |
//! | programs in the tree | files that a filter, a driver, `core.fsmonitor` and the like name |
//!
//! A read-only mount moves along when a parent directory is renamed, and another repository can take its place. That is why
//! everything is compared again at the end.

mod config;
mod guard;
mod judge;
mod layout;
mod search;
mod worktree;

pub(crate) use self::layout::{is_git, is_part, repositories};
pub use self::{
    guard::{Guard, enclosing_repository},
    judge::PathJudge,
    worktree::{HiddenCause, HiddenRepository, Worktree},
};

/// What a sandbox may do with git repositories.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GitAccess {
    /// Repositories in writable directories are read-only. The repository of a worktree, if it is elsewhere, is not shown.
    #[default]
    Protected,
    /// The same, and the repository of a worktree is shown read-only.
    Readable,
    /// Repositories can be changed.
    Writable,
}
