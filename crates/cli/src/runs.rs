//! `sandbar runs`, `diff` and `apply`: what the command shows of stored runs, and the way of their changes to a directory.

mod apply;
mod list;
mod show;

use sandbar_runs::{RunStore, StateDir};

pub(crate) use self::{
    apply::run as apply,
    show::{Summary, run as diff, summary},
};
use crate::{args::RunsTask, failure::Failure, render::Render};

/// `sandbar runs`.
pub(crate) fn run(task: RunsTask, render: &Render) -> Result<u8, Failure> {
    let store = store()?;
    match task {
        RunsTask::Ls(args) => list::list(&args, &store, render),
        RunsTask::Rm(args) => list::remove(&args, &store, render),
    }
}

/// The runs of this user.
pub(crate) fn store() -> Result<RunStore, Failure> {
    Ok(RunStore::open(&StateDir::from_env()?)?)
}
