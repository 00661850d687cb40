//! The steps that bring changes to a directory, decided before anything is changed.

use std::{collections::BTreeMap, io};

use rustix::{
    fs::{Dir, FileType, Stat},
    io::Errno,
};
use sandbar_host_files::{ConfinedDir, DIRECTORY, at_and_above, name_of};

use super::{Overwrite, links::FutureTree};
use crate::{
    describe,
    diff::{Change, quoted},
    git::PathJudge,
    index::{Digest, IndexEntry, PathBytes},
};

/// The file at a path of the destination, as it was when the plan was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Present {
    /// Device, inode, size and modification time: an inode number alone is reused.
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

/// One step of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApplyStep {
    path: PathBytes,
    pub(super) action: Action,
}

/// What a step does. Steps are carried out in the order of these variants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Remove(Present),
    /// Removes a directory. One with other files in it stays, unless it must make room.
    RemoveDir {
        is_needed: bool,
    },
    MakeDir,
    Put {
        entry: IndexEntry,
        present: Option<Present>,
    },
}

impl ApplyStep {
    fn new(path: &PathBytes, action: Action) -> Self {
        Self { path: path.clone(), action }
    }

    /// Path below the destination.
    pub fn path(&self) -> &PathBytes {
        &self.path
    }

    /// Whether the step changes a file or a link, and not only a directory.
    pub fn is_shown(&self) -> bool {
        matches!(self.action, Action::Remove(_) | Action::Put { .. })
    }

    /// `A`, `M` or `D`, as in `git status`.
    pub fn letter(&self) -> char {
        match &self.action {
            Action::Remove(_) | Action::RemoveDir { .. } => 'D',
            Action::MakeDir | Action::Put { present: None, .. } => 'A',
            Action::Put { .. } => 'M',
        }
    }

    fn rank(&self) -> u8 {
        match &self.action {
            Action::Remove(_) => 0,
            Action::RemoveDir { .. } => 1,
            Action::MakeDir => 2,
            Action::Put { .. } => 3,
        }
    }
}

/// A whole plan.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) steps: Vec<ApplyStep>,
    /// Number of changes that the destination already has.
    pub(super) already: usize,
    pub(super) conflicts: Vec<(PathBytes, String)>,
    /// Paths that are never applied.
    pub(super) refused: Vec<(PathBytes, String)>,
}

impl Plan {
    /// Compares each changed path in both trees.
    pub(super) fn make(
        (target, judge): (&ConfinedDir, &PathJudge),
        copy: &ConfinedDir,
        changes: &[Change],
        overwrite: Overwrite,
    ) -> Self {
        let by_path = changes.iter().map(|change| (change.path.0.as_slice(), change)).collect();
        let mut planner = Planner { target, judge, copy, by_path, overwrite, plan: Self::default() };
        for change in changes {
            planner.one(change);
        }
        let mut plan = planner.plan;
        // Directories are removed from the inside out; everything else goes from the outside in.
        plan.steps.sort_by(|one, other| {
            let by_path = match one.action {
                Action::RemoveDir { .. } => other.path().cmp(one.path()),
                _ => one.path().cmp(other.path()),
            };
            one.rank().cmp(&other.rank()).then(by_path)
        });
        if !plan.steps.iter().any(ApplyStep::is_shown) && plan.already > 0 {
            // Removing empty directories alone is not worth another commit.
            plan.steps.retain(|step| step.action == Action::MakeDir);
        }
        plan
    }
}

struct Planner<'a> {
    target: &'a ConfinedDir,
    judge: &'a PathJudge,
    copy: &'a ConfinedDir,
    by_path: BTreeMap<&'a [u8], &'a Change>,
    overwrite: Overwrite,
    plan: Plan,
}

/// What the destination has at a path.
enum Existing {
    Nothing,
    Dir,
    /// A file, a link or a special file.
    File(Stat),
    /// A parent is not a directory.
    Blocked,
}

impl Planner<'_> {
    fn future(&self) -> FutureTree<'_> {
        FutureTree { target: self.target, judge: self.judge, by_path: &self.by_path }
    }

    fn one(&mut self, change: &Change) {
        let Change { path, old, new } = change;
        if let Some(reason) = self.judge.refusal(&path.0) {
            return self.plan.refused.push((path.clone(), reason.to_owned()));
        }
        if let Some(reason) = new.as_ref().and_then(|new| self.future().refusal(path, new)) {
            return self.plan.refused.push((path.clone(), reason));
        }
        let existing = match self.find(&path.0) {
            Ok(existing) => existing,
            Err(error) => return self.conflict(path, &describe(&error)),
        };
        match (&existing, old, new) {
            (Existing::Blocked, _, None) => self.plan.already += usize::from(change.is_shown()),
            (Existing::Blocked, ..) => self.conflict(path, "a part of its path is a link or a file"),
            (Existing::Dir, Some(IndexEntry::Dir { .. }), None) => {
                self.push(path, Action::RemoveDir { is_needed: false })
            }
            (Existing::Nothing, Some(IndexEntry::Dir { .. }), None)
            | (Existing::Dir, _, Some(IndexEntry::Dir { .. })) => {}
            (Existing::Nothing, None, Some(IndexEntry::Dir { .. })) => self.push(path, Action::MakeDir),
            (Existing::Nothing, _, None) => self.plan.already += 1,
            (Existing::Dir, Some(IndexEntry::Dir { .. }), Some(_)) => self.replace_dir(change),
            (Existing::Dir, ..) => self.conflict(path, "it is a directory now"),
            (Existing::Nothing, None, Some(new)) => self.put(path, new, None),
            (Existing::Nothing, Some(_), Some(new)) => match self.overwrite {
                Overwrite::Refuse => self.conflict(path, "it was removed"),
                Overwrite::Force if matches!(new, IndexEntry::Dir { .. }) => self.push(path, Action::MakeDir),
                Overwrite::Force => self.put(path, new, None),
            },
            (Existing::File(stat), ..) => self.file(change, stat),
        }
    }

    /// The destination has a file, a link or a special file at the path.
    fn file(&mut self, change: &Change, stat: &Stat) {
        let Change { path, old, new } = change;
        let kind = FileType::from_raw_mode(stat.st_mode);
        if !matches!(kind, FileType::RegularFile | FileType::Symlink) {
            return self.conflict(path, "it is neither a file nor a link now");
        }
        let equals = |entry: &Option<IndexEntry>, tree| {
            entry.as_ref().map_or(Ok(false), |entry| self.equals(path, stat, entry, tree))
        };
        let (is_new, is_old) = match equals(new, Some(self.copy)).and_then(|is_new| Ok((is_new, equals(old, None)?))) {
            Ok(both) => both,
            Err(error) => return self.conflict(path, &describe(&error)),
        };
        let has_mode = new.as_ref().and_then(IndexEntry::git_mode) == Some(git_mode(stat));
        if is_new && has_mode {
            self.plan.already += 1;
            return;
        }
        if !is_old && !is_new && self.overwrite == Overwrite::Refuse {
            let reason = if old.is_none() { "it was created meanwhile" } else { "it was changed" };
            return self.conflict(path, reason);
        }
        let present = Present::from(stat);
        match new {
            None => self.push(path, Action::Remove(present)),
            Some(IndexEntry::Dir { .. }) => {
                self.push(path, Action::Remove(present));
                self.push(path, Action::MakeDir);
            }
            Some(new) => self.put(path, new, Some(present)),
        }
    }

    fn push(&mut self, path: &PathBytes, action: Action) {
        self.plan.steps.push(ApplyStep::new(path, action));
    }

    fn put(&mut self, path: &PathBytes, entry: &IndexEntry, present: Option<Present>) {
        self.push(path, Action::Put { entry: entry.clone(), present });
    }

    fn conflict(&mut self, path: &PathBytes, reason: &str) {
        self.plan.conflicts.push((path.clone(), reason.to_owned()));
    }

    /// A file replaces a directory, which must not contain files that were not copied.
    fn replace_dir(&mut self, change: &Change) {
        match self.foreign_file(&change.path.0, 0) {
            Ok(None) => {
                self.push(&change.path, Action::RemoveDir { is_needed: true });
                if let Some(new) = &change.new {
                    self.put(&change.path, new, None);
                }
            }
            Ok(Some(name)) => {
                let name = quoted("", &PathBytes(name));
                self.conflict(&change.path, &format!("it is a directory with {name} in it, which was not copied"))
            }
            Err(error) => self.conflict(&change.path, &describe(&error)),
        }
    }

    /// A file in a directory that the run does not delete.
    fn foreign_file(&self, path: &[u8], depth: usize) -> io::Result<Option<Vec<u8>>> {
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
            let is_dir = matches!(self.find(&inner)?, Existing::Dir);
            if is_dir
                && depth < 256
                && let Some(found) = self.foreign_file(&inner, depth + 1)?
            {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    fn find(&self, path: &[u8]) -> io::Result<Existing> {
        match self.target.stat(path) {
            Ok(None) => Ok(Existing::Nothing),
            Ok(Some(stat)) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => Ok(Existing::Dir),
            Ok(Some(stat)) => Ok(Existing::File(stat)),
            Err(error) if is_blocked(&error) && self.becomes_dir(path) => Ok(Existing::Nothing),
            Err(error) if is_blocked(&error) => Ok(Existing::Blocked),
            Err(error) => Err(error),
        }
    }

    /// Whether a parent is a file or a link that becomes a directory.
    fn becomes_dir(&self, path: &[u8]) -> bool {
        at_and_above(path).skip(1).any(|above| {
            let change = self.by_path.get(above);
            change.is_some_and(|change| {
                matches!(change.new, Some(IndexEntry::Dir { .. }))
                    && !matches!(change.old, None | Some(IndexEntry::Dir { .. }))
            })
        })
    }

    /// Whether the destination's file equals an entry. If the entry has no digest, its content is read from `tree`.
    fn equals(
        &self,
        path: &PathBytes,
        stat: &Stat,
        entry: &IndexEntry,
        tree: Option<&ConfinedDir>,
    ) -> io::Result<bool> {
        let kind = FileType::from_raw_mode(stat.st_mode);
        match (entry, kind) {
            (IndexEntry::Link { to }, FileType::Symlink) => Ok(self.target.link(&path.0)? == to.0),
            (IndexEntry::File { size, sha256, .. }, FileType::RegularFile) if *size == stat.st_size.unsigned_abs() => {
                let sum =
                    |tree: &ConfinedDir| Ok::<Digest, io::Error>(Digest::read(tree.file(&path.0)?.0, size + 1)?.0);
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
