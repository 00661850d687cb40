//! What belongs to repositories in the directories that a sandbox can write to: found, kept read-only, compared at the end.
//!
//! Git runs programs that a repository names: its hooks, and what stands in its configuration. All it takes is `git status`
//! in a directory, or a prompt that shows the branch. A command in a sandbox must not decide what those are, so everything
//! that is a repository's own is read-only inside unless `--git rw` was typed. What is its own:
//!
//! | what | how it is known |
//! |---|---|
//! | a repository | `.git`, or `HEAD` with `objects` and `refs`, or `HEAD` with `commondir` (a worktree's part of one) |
//! | what a `.git` file leads to | its `gitdir:`, and the `commondir` there |
//! | hooks elsewhere | `core.hooksPath`, also of the user's own configuration |
//! | more configuration | `include.path` and `includeIf.*.path` |
//! | programs in the tree | files that a filter, driver, `core.fsmonitor` or the like names |
//!
//! A read-only mount moves along when a directory above it is renamed, and another repository can take its place. That is
//! why everything is looked at again at the end.

mod config;
mod guard;
mod judge;
mod layout;
mod search;
mod worktree;

pub(crate) use self::{
    guard::{Guard, around},
    judge::Judge,
    layout::{is_git, is_part, repositories},
    worktree::Worktree,
};
