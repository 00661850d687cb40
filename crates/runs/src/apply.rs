//! Brings the changes of a run to a directory of the host: all of them, or nothing.
//!
//! [`RunDir::plan_apply`] compares both trees and changes nothing; [`ApplyPlan::commit`] carries the plan out.

mod commit;
mod links;
mod plan;
mod tool_files;
mod undo;

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use sandbar_host_files::{ConfinedDir, as_path};
use tokio_util::sync::CancellationToken;

use self::plan::Plan;
pub use self::{commit::LIST, plan::ApplyStep};
use crate::{
    Error, ErrorKind, Result,
    diff::{Changes, quoted},
    git::{PathJudge, enclosing_repository},
    index::PathBytes,
    record::RunStatus,
    store::{RunDir, busy},
};

/// What happens to files of the destination that changed since they were copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overwrite {
    /// A changed file is a conflict.
    #[default]
    Refuse,
    /// A changed file is overwritten. Changes of a killed run are applied too.
    Force,
}

/// How to apply the changes of a run.
#[derive(Clone, Debug, Default)]
pub struct ApplyOptions {
    destination: Option<PathBuf>,
    overwrite: Overwrite,
    allow_killed: bool,
}

impl ApplyOptions {
    /// Applies to this directory instead of the source of the copy.
    #[must_use]
    pub fn destination(mut self, dir: impl Into<PathBuf>) -> Self {
        self.destination = Some(dir.into());
        self
    }

    /// Sets what happens to files that changed since they were copied.
    #[must_use]
    pub fn overwrite(mut self, overwrite: Overwrite) -> Self {
        self.overwrite = overwrite;
        self
    }

    /// Accepts a run that was killed, whose last files may be incomplete.
    #[must_use]
    pub fn allow_killed(mut self) -> Self {
        self.allow_killed = true;
        self
    }
}

/// The steps that bring a run's changes to a directory. Nothing is changed before [`commit`](Self::commit).
#[derive(Debug)]
pub struct ApplyPlan {
    run: String,
    root: PathBuf,
    target: ConfinedDir,
    copy: ConfinedDir,
    plan: Plan,
    leftovers: Vec<PathBytes>,
    tool_files: Vec<(PathBytes, &'static str)>,
    search_note: Option<String>,
    /// Keeps the run locked until the plan is dropped.
    _lock: File,
}

impl RunDir {
    /// Locks the run, and refuses a run that is in progress or was killed.
    pub fn check_appliable(&self, options: &ApplyOptions) -> Result<()> {
        if !self.lock() {
            return Err(busy(self.id()).with_advice("end it first, or wait"));
        }
        let allow_killed = options.allow_killed || options.overwrite == Overwrite::Force;
        if self.record().is_ok_and(|record| record.status == RunStatus::Killed) && !allow_killed {
            let message = format!("{}; nothing was changed", self.killed_note());
            return Err(Error::new(ErrorKind::RunKilled, message).about(self.id()));
        }
        Ok(())
    }

    /// Plans how to apply these changes. The run must not be in progress; it stays locked until the plan and the run are dropped.
    pub fn plan_apply(&self, changes: &Changes, options: &ApplyOptions) -> Result<ApplyPlan> {
        self.check_appliable(options)?;
        if let Some((path, reason)) = changes.unreadable.first() {
            let (path, workspace) = (quoted("", path), self.workspace());
            let message = format!("cannot read {path} of the working copy in {}; {reason}", workspace.display());
            return Err(Error::new(ErrorKind::Io, message).with_advice("allow yourself to read it, and try again"));
        }
        ApplyPlan::make(self, changes, &self.destination(options)?, options.overwrite)
    }

    /// What to say about a run that was killed.
    pub fn killed_note(&self) -> String {
        format!("the run {} was killed before it ended, and the files it was writing may be incomplete", self.id())
    }

    fn destination(&self, options: &ApplyOptions) -> Result<PathBuf> {
        let source = self.record().ok().and_then(|record| record.source);
        match (&options.destination, source) {
            // A link that the caller names stands for its target.
            (Some(dir), _) => {
                let message = || format!("cannot apply to {}", dir.display());
                fs::canonicalize(dir).map_err(|error| Error::new(ErrorKind::Io, message()).because(error))
            }
            (None, Some(source)) => Ok(as_path(&source.0).to_owned()),
            (None, None) => Err(Error::new(ErrorKind::Destination, "the source directory of this run is not known")),
        }
    }
}

impl ApplyPlan {
    fn make(run: &RunDir, changes: &Changes, root: &Path, overwrite: Overwrite) -> Result<Self> {
        let destination = |message: String| Error::new(ErrorKind::Destination, message);
        let target = ConfinedDir::open(root)
            .map_err(|error| destination(format!("cannot apply to {}", root.display())).because(error))?;
        let failed = |error: io::Error| Error::io(format!("cannot read {}", run.workspace().display()), error);
        let copy = ConfinedDir::open(&run.workspace()).map_err(failed)?;
        let lock = run.share_lock().map_err(failed)?;
        let leftovers = commit::leftovers(&target);
        let changed: Vec<&[u8]> = changes.all.iter().map(|change| change.path.0.as_slice()).collect();
        let judge = PathJudge::new(&target, root, &changed);
        let mut plan = Plan::make((&target, &judge), &copy, &changes.all, overwrite);
        if let Some(repository) = enclosing_repository(root) {
            let message = format!("{} belongs to a git repository; nothing is applied to it", repository.display());
            return Err(Error::new(ErrorKind::DestinationInRepository, message));
        }
        let becoming = changes.new_repositories.iter();
        plan.refused.extend(becoming.map(|dir| (dir.clone(), "it would become a repository".to_owned())));
        let tool = |path: &[u8]| match judge.is_tool_file(path) {
            true => Some("git obeys it"),
            false => tool_files::tool(path, &target, &copy),
        };
        let shown = plan.steps.iter().filter(|step| step.is_shown());
        let tool_files = shown.filter_map(|step| Some((step.path().clone(), tool(&step.path().0)?))).collect();
        let (run, root) = (run.id().to_owned(), root.to_owned());
        Ok(Self {
            _lock: lock,
            run,
            root,
            target,
            copy,
            plan,
            leftovers,
            tool_files,
            search_note: judge.search_note().map(str::to_owned),
        })
    }

    /// The destination.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The steps, in their order. Empty if nothing is left to do.
    pub fn steps(&self) -> &[ApplyStep] {
        &self.plan.steps
    }

    /// Number of changes that the destination already has.
    pub fn already_applied(&self) -> usize {
        self.plan.already
    }

    /// Paths of the destination that changed since the copy, and why they are conflicts. With conflicts, nothing can be
    /// committed.
    pub fn conflicts(&self) -> &[(PathBytes, String)] {
        &self.plan.conflicts
    }

    /// Paths that are never applied, and why: files of git repositories, links that lead out of the directory.
    pub fn refused(&self) -> &[(PathBytes, String)] {
        &self.plan.refused
    }

    /// Files that tools on the host run or obey by themselves, such as `.envrc`, and the tool. Ask before a commit.
    pub fn tool_files(&self) -> &[(PathBytes, &'static str)] {
        &self.tool_files
    }

    /// Staging directories of killed commits in the destination. Each contains a list of its files, [`LIST`].
    pub fn leftovers(&self) -> &[PathBytes] {
        &self.leftovers
    }

    /// Why the search for git repositories in the destination was incomplete.
    pub fn search_note(&self) -> Option<&str> {
        self.search_note.as_deref()
    }

    /// Carries the plan out. If a step fails or the token is cancelled, all steps are undone.
    pub fn commit(&mut self, cancel: &CancellationToken) -> Result<()> {
        if let Some((path, reason)) = self.plan.conflicts.first() {
            let message = format!("cannot apply to {}; {}: {reason}", self.root.display(), quoted("", path));
            return Err(Error::new(ErrorKind::Destination, message).with_advice("nothing was changed"));
        }
        if !self.plan.steps.is_empty() {
            let order = commit::Order { run: &self.run, steps: &self.plan.steps };
            commit::all(&self.target, &self.copy, &order, cancel).map_err(|failure| {
                let is_undone = failure.is_undone();
                let error = Error::new(ErrorKind::Io, format!("cannot apply to {}; {failure}", self.root.display()));
                if is_undone { error.with_advice("nothing was changed") } else { error }
            })?;
        } else if self.plan.already == 0 {
            return Ok(());
        }
        commit::remove_leftovers(&self.target, &mut self.leftovers, &self.run);
        Ok(())
    }
}

#[cfg(test)]
impl ApplyPlan {
    /// Conflicts and refusals.
    pub(crate) fn complaints(&self) -> Vec<(PathBytes, String)> {
        [self.plan.conflicts.as_slice(), &self.plan.refused].concat()
    }

    /// The lines of the list of staged files of a commit that goes no further.
    pub(crate) fn staged_files(&self) -> Vec<String> {
        let list = commit::listed(&self.target, &self.copy, &self.plan.steps);
        let list: Vec<serde_json::Value> = serde_json::from_slice(&list).unwrap();
        let field = |slot: &serde_json::Value, name: &str| slot[name].as_str().unwrap().to_owned();
        let line = |slot| ["slot", "change", "path"].map(|name| field(slot, name)).join(" ");
        list.iter().map(line).collect()
    }
}
