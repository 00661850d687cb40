//! What is to be done to a directory so that it holds a run's changes, decided before anything is done.

use std::{collections::BTreeMap, io};

use rustix::{
    fs::{Dir, FileType, Stat},
    io::Errno,
};

use super::links::Future;
use crate::{
    git::Judge,
    runs::{
        beneath::{Beneath, DIRECTORY, at_and_above, name_of},
        changes::Change,
        index::{Entry, Name, Sum},
    },
};

/// What becomes of files that are not what was copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Force {
    Refuse,
    Overwrite,
}

/// What is there now, so that it is known again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Present {
    /// Its numbers, its size and its time: the number of a file that went is soon given to another.
    pub(super) identity: (u64, u64, i64, i64, u64),
    pub(super) mode: u32,
    pub(super) owner: (u32, u32),
}

impl From<&Stat> for Present {
    fn from(stat: &Stat) -> Self {
        let mode = stat.st_mode & 0o777;
        let identity = (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime, stat.st_mtime_nsec);
        Self { identity, mode, owner: (stat.st_uid, stat.st_gid) }
    }
}

/// One thing to be done. They are sorted by what must come first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Remove {
        path: Name,
        present: Present,
    },
    /// A directory that is no longer wanted; it stays if something is in it, unless something else comes in its place.
    RemoveDir {
        path: Name,
        is_needed: bool,
    },
    MakeDir {
        path: Name,
    },
    Put {
        path: Name,
        entry: Entry,
        present: Option<Present>,
    },
}

impl Step {
    pub(super) fn path(&self) -> &Name {
        match self {
            Self::Remove { path, .. } | Self::RemoveDir { path, .. } | Self::MakeDir { path } => path,
            Self::Put { path, .. } => path,
        }
    }

    /// Whether it is more than a directory that comes or goes with what is in it.
    pub(super) fn is_told(&self) -> bool {
        matches!(self, Self::Remove { .. } | Self::Put { .. })
    }

    /// As git would call it.
    pub(super) fn letter(&self) -> char {
        match self {
            Self::Remove { .. } | Self::RemoveDir { .. } => 'D',
            Self::MakeDir { .. } | Self::Put { present: None, .. } => 'A',
            Self::Put { .. } => 'M',
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Remove { .. } => 0,
            Self::RemoveDir { .. } => 1,
            Self::MakeDir { .. } => 2,
            Self::Put { .. } => 3,
        }
    }
}

/// All of it.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) steps: Vec<Step>,
    /// How many changes are there already.
    pub(super) already: usize,
    pub(super) conflicts: Vec<(Name, String)>,
    /// What is never brought back.
    pub(super) refused: Vec<(Name, String)>,
}

impl Plan {
    /// Looks at every path that changed, in both trees, and changes nothing.
    pub(super) fn make((target, judge): (&Beneath, &Judge), copy: &Beneath, changes: &[Change], force: Force) -> Self {
        let by_path = changes.iter().map(|change| (change.path.0.as_slice(), change)).collect();
        let mut planner = Planner { target, judge, copy, by_path, force, plan: Self::default() };
        for change in changes {
            planner.one(change);
        }
        let mut plan = planner.plan;
        // Directories go from the inside out, everything else from the outside in.
        plan.steps.sort_by(|one, other| {
            let by_path = match one {
                Step::RemoveDir { .. } => other.path().cmp(one.path()),
                _ => one.path().cmp(other.path()),
            };
            one.rank().cmp(&other.rank()).then(by_path)
        });
        if !plan.steps.iter().any(Step::is_told) && plan.already > 0 {
            // Directories alone are not worth another round.
            plan.steps.retain(|step| matches!(step, Step::MakeDir { .. }));
        }
        plan
    }
}

struct Planner<'a> {
    target: &'a Beneath,
    judge: &'a Judge,
    copy: &'a Beneath,
    by_path: BTreeMap<&'a [u8], &'a Change>,
    force: Force,
    plan: Plan,
}

/// What was found at a path.
enum Found {
    Nothing,
    Dir,
    Thing(Stat),
    /// Something in the way to it is not a directory.
    Blocked,
}

impl Planner<'_> {
    fn future(&self) -> Future<'_> {
        Future { target: self.target, judge: self.judge, by_path: &self.by_path }
    }

    fn one(&mut self, change: &Change) {
        let Change { path, old, new } = change;
        if let Some(reason) = self.judge.refusal(&path.0) {
            return self.plan.refused.push((path.clone(), reason.to_owned()));
        }
        if let Some(reason) = new.as_ref().and_then(|new| self.future().refusal(path, new)) {
            return self.plan.refused.push((path.clone(), reason));
        }
        let found = match self.find(&path.0) {
            Ok(found) => found,
            Err(error) => return self.conflict(path, &crate::failure::without_number(&error.to_string())),
        };
        match (&found, old, new) {
            (Found::Blocked, _, None) => self.plan.already += usize::from(change.is_shown()),
            (Found::Blocked, ..) => self.conflict(path, "a part of its path is a link or a file"),
            (Found::Dir, Some(Entry::Dir { .. }), None) => {
                self.plan.steps.push(Step::RemoveDir { path: path.clone(), is_needed: false })
            }
            (Found::Nothing, Some(Entry::Dir { .. }), None) | (Found::Dir, _, Some(Entry::Dir { .. })) => {}
            (Found::Nothing, None, Some(Entry::Dir { .. })) => {
                self.plan.steps.push(Step::MakeDir { path: path.clone() })
            }
            (Found::Nothing, _, None) => self.plan.already += 1,
            (Found::Dir, Some(Entry::Dir { .. }), Some(_)) => self.replace_dir(change),
            (Found::Dir, ..) => self.conflict(path, "it is a directory now"),
            (Found::Nothing, None, Some(new)) => self.put(path, new, None),
            (Found::Nothing, Some(_), Some(new)) => match self.force {
                Force::Refuse => self.conflict(path, "it was removed"),
                Force::Overwrite if matches!(new, Entry::Dir { .. }) => {
                    self.plan.steps.push(Step::MakeDir { path: path.clone() })
                }
                Force::Overwrite => self.put(path, new, None),
            },
            (Found::Thing(stat), ..) => self.thing(change, stat),
        }
    }

    /// A file or a link is there, or something odd.
    fn thing(&mut self, change: &Change, stat: &Stat) {
        let Change { path, old, new } = change;
        let kind = FileType::from_raw_mode(stat.st_mode);
        if !matches!(kind, FileType::RegularFile | FileType::Symlink) {
            return self.conflict(path, "it is neither a file nor a link now");
        }
        let is_as =
            |entry: &Option<Entry>, tree| entry.as_ref().map_or(Ok(false), |entry| self.is_as(path, stat, entry, tree));
        let (is_new, is_old) = match is_as(new, Some(self.copy)).and_then(|is_new| Ok((is_new, is_as(old, None)?))) {
            Ok(both) => both,
            Err(error) => return self.conflict(path, &crate::failure::without_number(&error.to_string())),
        };
        let has_mode = new.as_ref().and_then(Entry::git_mode) == Some(git_mode(stat));
        if is_new && has_mode {
            self.plan.already += 1;
            return;
        }
        if !is_old && !is_new && self.force == Force::Refuse {
            let reason = if old.is_none() { "somebody else made it" } else { "it was changed" };
            return self.conflict(path, reason);
        }
        let present = Present::from(stat);
        match new {
            None => self.plan.steps.push(Step::Remove { path: path.clone(), present }),
            Some(Entry::Dir { .. }) => {
                self.plan.steps.push(Step::Remove { path: path.clone(), present });
                self.plan.steps.push(Step::MakeDir { path: path.clone() });
            }
            Some(new) => self.put(path, new, Some(present)),
        }
    }

    fn put(&mut self, path: &Name, entry: &Entry, present: Option<Present>) {
        self.plan.steps.push(Step::Put { path: path.clone(), entry: entry.clone(), present });
    }

    fn conflict(&mut self, path: &Name, reason: &str) {
        self.plan.conflicts.push((path.clone(), reason.to_owned()));
    }

    /// A directory gives way to a file: only if nothing is in it that the run did not know.
    fn replace_dir(&mut self, change: &Change) {
        match self.stranger(&change.path.0, 0) {
            Ok(None) => {
                self.plan.steps.push(Step::RemoveDir { path: change.path.clone(), is_needed: true });
                if let Some(new) = &change.new {
                    self.put(&change.path, new, None);
                }
            }
            Ok(Some(name)) => {
                let name = crate::runs::unified::quoted("", &Name(name));
                self.conflict(&change.path, &format!("it is a directory with {name} in it, which was not copied"))
            }
            Err(error) => self.conflict(&change.path, &crate::failure::without_number(&error.to_string())),
        }
    }

    /// Something in a directory that will not go away.
    fn stranger(&self, path: &[u8], depth: usize) -> io::Result<Option<Vec<u8>>> {
        let dir = self.target.open_at(path, DIRECTORY)?;
        for entry in Dir::read_from(&dir)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            let inner = [path, name].join(&b'/');
            let goes = self.by_path.get(inner.as_slice()).is_some_and(|change| change.new.is_none());
            if !goes {
                return Ok(Some(name_of(&inner).to_vec()));
            }
            let is_dir = matches!(self.find(&inner)?, Found::Dir);
            if is_dir
                && depth < 256
                && let Some(found) = self.stranger(&inner, depth + 1)?
            {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    fn find(&self, path: &[u8]) -> io::Result<Found> {
        match self.target.stat(path) {
            Ok(None) => Ok(Found::Nothing),
            Ok(Some(stat)) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => Ok(Found::Dir),
            Ok(Some(stat)) => Ok(Found::Thing(stat)),
            Err(error) if is_blocked(&error) && self.gives_way(path) => Ok(Found::Nothing),
            Err(error) if is_blocked(&error) => Ok(Found::Blocked),
            Err(error) => Err(error),
        }
    }

    /// Whether what is in the way is a file or a link that becomes a directory.
    fn gives_way(&self, path: &[u8]) -> bool {
        at_and_above(path).skip(1).any(|above| {
            let change = self.by_path.get(above);
            change.is_some_and(|change| {
                matches!(change.new, Some(Entry::Dir { .. })) && !matches!(change.old, None | Some(Entry::Dir { .. }))
            })
        })
    }

    /// Whether what is there holds the same as an entry, whose content is in this tree if its digest is not known.
    fn is_as(&self, path: &Name, stat: &Stat, entry: &Entry, tree: Option<&Beneath>) -> io::Result<bool> {
        let kind = FileType::from_raw_mode(stat.st_mode);
        match (entry, kind) {
            (Entry::Link { to }, FileType::Symlink) => Ok(self.target.link(&path.0)? == to.0),
            (Entry::File { size, sha256, .. }, FileType::RegularFile) if *size == stat.st_size.unsigned_abs() => {
                let sum = |tree: &Beneath| Ok::<Sum, io::Error>(Sum::read(tree.file(&path.0)?.0, size + 1)?.0);
                let wanted = match (sha256, tree) {
                    (Some(sum), _) => *sum,
                    (None, Some(tree)) => sum(tree)?,
                    (None, None) => return Ok(false),
                };
                Ok(sum(self.target)? == wanted)
            }
            _ => Ok(false),
        }
    }
}

fn git_mode(stat: &Stat) -> u32 {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Symlink => 0o120_000,
        _ if stat.st_mode & 0o100 == 0 => 0o100_644,
        _ => 0o100_755,
    }
}

pub(super) fn is_blocked(error: &io::Error) -> bool {
    let codes = [Errno::LOOP, Errno::NOTDIR, Errno::XDEV].map(Errno::raw_os_error);
    error.raw_os_error().is_some_and(|code| codes.contains(&code))
}
