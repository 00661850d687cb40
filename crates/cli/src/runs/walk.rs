//! A walk through a tree by directory handles: sorted, bounded, without following links, with a word on what is ignored.

use std::{ffi::CString, io, os::fd::OwnedFd};

use rustix::fs::{Dir, FileType, Mode};

use super::{
    beneath::{Beneath, DIRECTORY, stat_in},
    ignored::{Ignored, Outer, RULE_FILES, Trust, Unusable},
};

/// Directories inside directories; each level holds a descriptor.
const DEPTH_LIMIT: usize = 200;

/// Something that was met.
pub(super) struct Met<'a> {
    /// Its path below the root.
    pub(super) path: &'a [u8],
    /// The directory it is in, and what it is called there.
    pub(super) dir: &'a OwnedFd,
    pub(super) name: &'a CString,
    pub(super) kind: FileType,
    /// Whether the tree's rules leave it out.
    pub(super) is_ignored: bool,
}

/// What becomes of a directory that was met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Onward {
    Into,
    Past,
}

/// Who is told about what is met.
pub(super) trait Visitor {
    /// Why such a walk ends early.
    type Halt;

    /// Something was met; only of a directory the answer matters.
    fn meet(&mut self, met: &Met<'_>) -> Result<Onward, Self::Halt>;

    /// Something cannot be looked at.
    fn miss(&mut self, path: &[u8], error: io::Error) -> Result<(), Self::Halt>;

    /// A file of rules of a tree that is trusted cannot be followed.
    fn unusable(&self, unusable: Unusable) -> Self::Halt;

    /// There are more things than this walk may meet.
    fn overflow(&self) -> Self::Halt;
}

/// On which terms a walk goes.
pub(super) struct Terms<'a> {
    /// It meets at most so many things.
    pub(super) most: usize,
    /// What is ignored beside what the tree says itself.
    pub(super) outer: &'a [Outer],
    /// How much the tree's own rules count.
    pub(super) trust: Trust,
}

/// Tells the visitor everything below the root.
pub(super) fn walk<V: Visitor>(root: &Beneath, terms: &Terms<'_>, visitor: &mut V) -> Result<(), V::Halt> {
    let mut walk = Walk { visitor, ignored: Ignored::new(terms.outer, terms.trust), left: terms.most };
    match root.root().try_clone() {
        Ok(root) => walk.directory(&root, &mut Vec::new(), Level { depth: 0, is_ignored: false, in_git: false }),
        Err(error) => walk.visitor.miss(b"", error),
    }
}

struct Walk<'a, V> {
    visitor: &'a mut V,
    ignored: Ignored,
    left: usize,
}

#[derive(Clone, Copy)]
struct Level {
    depth: usize,
    /// Whether a directory above is ignored, and with it all that is in it.
    is_ignored: bool,
    /// Whether this is in a repository's own directory, where no rules hold.
    in_git: bool,
}

impl<V: Visitor> Walk<'_, V> {
    fn directory(&mut self, dir: &OwnedFd, path: &mut Vec<u8>, level: Level) -> Result<(), V::Halt> {
        if level.depth > DEPTH_LIMIT {
            let deep = io::Error::other(format!("it is more than {DEPTH_LIMIT} directories deep"));
            return self.visitor.miss(path, deep);
        }
        let names = match self.names(dir) {
            Ok(Some(names)) => names,
            Ok(None) => return Err(self.visitor.overflow()),
            Err(error) => return self.visitor.miss(path, error),
        };
        if !level.in_git && !level.is_ignored {
            self.rules(dir, &names, path, level.depth)?;
        }
        for (name, kind) in &names {
            let length = path.len();
            if length > 0 {
                path.push(b'/');
            }
            path.extend_from_slice(name.as_bytes());
            self.one(dir, (name, *kind), path, level)?;
            path.truncate(length);
        }
        self.ignored.leave(level.depth);
        Ok(())
    }

    fn one(
        &mut self,
        dir: &OwnedFd,
        (name, kind): (&CString, FileType),
        path: &mut Vec<u8>,
        level: Level,
    ) -> Result<(), V::Halt> {
        // Some file systems do not say it when they are listed.
        let kind = match kind {
            FileType::Unknown => match stat_in(dir, name.as_bytes()) {
                Ok(stat) => FileType::from_raw_mode(stat.st_mode),
                Err(error) => return self.visitor.miss(path, error.into()),
            },
            known => known,
        };
        let is_dir = kind == FileType::Directory;
        let in_git = level.in_git || name.as_bytes() == b".git";
        let is_ignored = !in_git && (level.is_ignored || self.ignored.names(path, is_dir));
        let met = Met { path, dir, name, kind, is_ignored };
        if self.visitor.meet(&met)? == Onward::Past || !is_dir {
            return Ok(());
        }
        match rustix::fs::openat(dir, name, DIRECTORY, Mode::empty()) {
            Ok(child) => self.directory(&child, path, Level { depth: level.depth + 1, is_ignored, in_git }),
            Err(error) => self.visitor.miss(path, error.into()),
        }
    }

    /// The names in a directory, sorted; none if there are too many.
    fn names(&mut self, dir: &OwnedFd) -> io::Result<Option<Vec<(CString, FileType)>>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(dir)? {
            let entry = entry?;
            if matches!(entry.file_name().to_bytes(), b"." | b"..") {
                continue;
            }
            let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
            self.left = left;
            names.push((entry.file_name().to_owned(), entry.file_type()));
        }
        names.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        Ok(Some(names))
    }

    fn rules(
        &mut self,
        dir: &OwnedFd,
        names: &[(CString, FileType)],
        path: &[u8],
        depth: usize,
    ) -> Result<(), V::Halt> {
        for file in RULE_FILES {
            let first = file.split('/').next().unwrap_or(file);
            if names.iter().any(|(name, _)| name.as_bytes() == first.as_bytes()) {
                self.ignored.enter(depth, (dir, path), file).map_err(|unusable| self.visitor.unusable(unusable))?;
            }
        }
        Ok(())
    }
}
