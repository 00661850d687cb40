//! What a product needs around agent runs, without a terminal: working copies, diff, apply, stored runs and sessions,
//! and the removal of what dead processes left.
//!
//! A **run** is a directory that only its user can read, named by the run's id:
//!
//! | file | holds |
//! |---|---|
//! | `record.json` | prompt, source directory, status and result |
//! | `workspace/` | the working copy, which the sandbox sees and changes |
//! | `base.json` | the index of the working copy at its start: each path with its kind, mode, size and digest |
//! | `base.data` | the text files at the start, for diffs |
//! | `audit.jsonl`, `trace.jsonl`, `state.json` | written by the run itself |
//!
//! ```
//! use sandbar_runs::{ApplyOptions, CopyOptions, RunStore, Scope};
//!
//! # fn main() -> sandbar_runs::Result<()> {
//! # let temp = tempfile::tempdir().unwrap();
//! # let project = temp.path().join("project");
//! # std::fs::create_dir(&project).unwrap();
//! # std::fs::write(project.join("greet.txt"), "helo\n").unwrap();
//! let store = RunStore::at(temp.path().join("runs"))?;
//! let run = store.begin("fix the typo")?;
//! run.copy_in(&project, &CopyOptions::default())?;
//!
//! // An agent works here, on a machine that shows `run.workspace()`.
//! std::fs::write(run.workspace().join("greet.txt"), "hello\n").unwrap();
//!
//! let changes = run.changes(Scope::NotIgnored)?;
//! let diff = run.diff()?;
//! for change in changes.shown() {
//!     assert!(String::from_utf8_lossy(&diff.patch(change)?.text).contains("+hello"));
//! }
//! let mut plan = run.plan_apply(&changes, &ApplyOptions::default())?;
//! assert!(plan.conflicts().is_empty());
//! plan.commit(&Default::default())?;
//! assert_eq!(std::fs::read_to_string(project.join("greet.txt")).unwrap(), "hello\n");
//!
//! let id = run.id().to_owned();
//! drop((plan, run));
//! store.remove(&id)?;
//! # Ok(())
//! # }
//! ```
//!
//! Sessions that outlive a process are in [`sessions`], and copies between them and the host in [`transfer`]. The removal of
//! leftovers is in [`gc`], and [`git`] keeps a sandbox from changing what git runs on the host. Copies and commits take a
//! [`CancellationToken`]; copies and garbage collection report progress to a callback. All functions that are not `async`
//! block: call them on a thread that may block.

pub mod apparmor;
mod apply;
mod copy;
mod diff;
mod error;
pub mod gc;
pub mod git;
mod host_paths;
mod index;
mod patches;
mod record;
mod rules;
pub mod sessions;
mod state_dir;
mod store;
#[cfg(test)]
mod tests;
pub mod transfer;

pub use sandbar_host_files::ConfinedDir;
pub use tokio_util::sync::CancellationToken;

pub use self::{
    apply::{ApplyOptions, ApplyPlan, ApplyStep, LIST as STAGED_FILES_LIST, Overwrite},
    copy::{CopyLimits, CopyOptions, CopyProgress, CopyReport},
    diff::{Change, Changes, Diff, Patch, Scope, quoted},
    error::{Error, ErrorKind, Result, describe, format_size, without_number},
    host_paths::writable_parent,
    index::{Digest, IndexEntry, PathBytes},
    patches::check_patch,
    record::{RunRecord, RunStatus},
    state_dir::StateDir,
    store::{DamagedRun, RunDir, RunRemnant, RunStore},
};
