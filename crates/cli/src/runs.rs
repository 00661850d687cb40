//! Runs that are kept: what was asked, the working copy it was done on, and the way of its changes back home.
//!
//! A run is a directory of `$XDG_STATE_HOME/sandbar/runs`, called by its id, that only its user can read:
//!
//! | file | holds |
//! |---|---|
//! | `record.json` | who asked for what, on which directory, and how it ended |
//! | `workspace/` | the working copy, which the sandbox sees and changes |
//! | `base.json` | what the working copy began as: each path with its kind, mode, size and digest |
//! | `base.data` | the texts it began with, for diffs |
//! | `audit.jsonl`, `trace.jsonl`, `state.json` | what the run leaves there itself |

mod apply;
pub(crate) mod beneath;
mod changes;
mod contents;
mod copy;
mod ignored;
mod index;
mod list;
mod record;
mod removal;
mod show;
mod store;
#[cfg(test)]
mod tests;
mod unified;
mod walk;

pub(crate) use self::{
    apply::run as apply,
    copy::{Copied, CopyLimits, CopyProgress, CopyWatch, NotCopied},
    index::{Name, Sum},
    record::{RunRecord, RunStatus},
    show::{Summary, run as diff, summary},
    store::{RunDir, RunPart, RunStore},
};
#[cfg(test)]
use self::{
    changes::{Changes, Scope},
    show::Diff,
};
use crate::{args::RunsTask, failure::Failure, render::Render};

/// `sandbar runs`.
pub(crate) fn run(task: RunsTask, render: &Render) -> Result<u8, Failure> {
    let store = RunStore::open()?;
    match task {
        RunsTask::Ls(args) => list::list(&args, &store, render),
        RunsTask::Rm(args) => list::remove(&args, &store, render),
    }
}
