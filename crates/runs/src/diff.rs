//! The difference between a working copy and its start, as data and as text that `git apply` reads.

mod changes;
mod contents;
mod unified;

use std::{
    io,
    time::{Duration, Instant},
};

pub(crate) use self::contents::{TEXT_LIMIT, is_binary};
pub use self::{
    changes::{Change, Changes, Scope},
    unified::{Patch, quoted},
};
use self::{contents::Versions, unified::patch};
use crate::{Error, Result, store::RunDir};

/// Longest comparison of the lines of one file, and of all files.
const ONE_FILE: Duration = Duration::from_secs(2);
const ALL_FILES: Duration = Duration::from_secs(20);

/// Renders the changes of a run.
#[derive(Debug)]
pub struct Diff {
    versions: Versions,
    deadline: Instant,
}

impl RunDir {
    /// Opens both versions of the run's files. Comparisons share a time limit that starts now.
    pub fn diff(&self) -> Result<Diff> {
        let failed = |error: io::Error| Error::io(format!("cannot read {}", self.workspace().display()), error);
        let source = self.record().ok().and_then(|record| record.source);
        let versions = Versions::open(self, source.as_ref()).map_err(failed)?;
        Ok(Diff { versions, deadline: Instant::now() + ALL_FILES })
    }
}

impl Diff {
    /// One change in the format of `git diff`.
    pub fn patch(&self, change: &Change) -> Result<Patch> {
        let old = self.versions.before(&change.path, change.old.as_ref());
        let new = self.versions.now(&change.path, change.new.as_ref());
        let failed = |error| Error::io(format!("cannot show {}", quoted("", &change.path)), error);
        Ok(patch(change, &old, &new.map_err(failed)?, self.deadline.min(Instant::now() + ONE_FILE)))
    }

    /// Whether the time limit for all comparisons has passed. Further patches are larger than necessary.
    pub fn is_late(&self) -> bool {
        Instant::now() > self.deadline
    }
}
