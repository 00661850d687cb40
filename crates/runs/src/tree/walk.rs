//! A walk through a tree by directory handles: sorted, bounded, without following links, with ignore rules applied.

use std::{ffi::CString, io, os::fd::OwnedFd};

use rustix::fs::{Dir, FileType, Mode};

use super::{
    confined_dir::{ConfinedDir, DIRECTORY, stat_in},
    ignore_rules::{IgnoreRules, OuterRules, RULE_FILES, RuleFileError, Trust},
};

/// Maximum nesting; each level holds a descriptor.
const DEPTH_LIMIT: usize = 200;

/// One entry of the tree.
pub(crate) struct WalkEntry<'a> {
    /// Path below the root.
    pub(crate) path: &'a [u8],
    /// Parent directory, and the name in it.
    pub(crate) dir: &'a OwnedFd,
    pub(crate) name: &'a CString,
    pub(crate) kind: FileType,
    /// Whether ignore rules exclude the entry.
    pub(crate) is_ignored: bool,
}

/// Whether the walk enters a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Descend {
    Into,
    Skip,
}

/// Receives the entries of a walk.
pub(crate) trait Visitor {
    /// Why a walk ends early.
    type Stop;

    /// Visits an entry; the answer matters for directories only.
    fn visit(&mut self, entry: &WalkEntry<'_>) -> Result<Descend, Self::Stop>;

    /// Reports an entry that cannot be read.
    fn unreadable(&mut self, path: &[u8], error: io::Error) -> Result<(), Self::Stop>;

    /// Reports an ignore file of a trusted tree that cannot be followed.
    fn rule_error(&self, error: RuleFileError) -> Self::Stop;

    /// Reports that the tree has more entries than the walk may visit.
    fn overflow(&self) -> Self::Stop;
}

/// Options of a walk.
pub(crate) struct WalkOptions<'a> {
    /// Maximum number of entries.
    pub(crate) most: usize,
    /// Ignore rules from above the tree.
    pub(crate) outer: &'a [OuterRules],
    /// How to treat the tree's own ignore files.
    pub(crate) trust: Trust,
}

/// Visits everything below the root.
pub(crate) fn walk<V: Visitor>(root: &ConfinedDir, terms: &WalkOptions<'_>, visitor: &mut V) -> Result<(), V::Stop> {
    let mut walk = Walk { visitor, rules: IgnoreRules::new(terms.outer, terms.trust), left: terms.most };
    match root.root().try_clone() {
        Ok(root) => walk.directory(&root, &mut Vec::new(), Level { depth: 0, is_ignored: false, in_git: false }),
        Err(error) => walk.visitor.unreadable(b"", error),
    }
}

struct Walk<'a, V> {
    visitor: &'a mut V,
    rules: IgnoreRules,
    left: usize,
}

#[derive(Clone, Copy)]
struct Level {
    depth: usize,
    /// Whether a parent directory is ignored.
    is_ignored: bool,
    /// Whether this is inside `.git`, where no ignore rules apply.
    in_git: bool,
}

impl<V: Visitor> Walk<'_, V> {
    fn directory(&mut self, dir: &OwnedFd, path: &mut Vec<u8>, level: Level) -> Result<(), V::Stop> {
        if level.depth > DEPTH_LIMIT {
            let deep = io::Error::other(format!("it is more than {DEPTH_LIMIT} directories deep"));
            return self.visitor.unreadable(path, deep);
        }
        let names = match self.names(dir) {
            Ok(Some(names)) => names,
            Ok(None) => return Err(self.visitor.overflow()),
            Err(error) => return self.visitor.unreadable(path, error),
        };
        if !level.in_git && !level.is_ignored {
            self.enter_rules(dir, &names, path, level.depth)?;
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
        self.rules.leave(level.depth);
        Ok(())
    }

    fn one(
        &mut self,
        dir: &OwnedFd,
        (name, kind): (&CString, FileType),
        path: &mut Vec<u8>,
        level: Level,
    ) -> Result<(), V::Stop> {
        // Some file systems do not return the file type in a listing.
        let kind = match kind {
            FileType::Unknown => match stat_in(dir, name.as_bytes()) {
                Ok(stat) => FileType::from_raw_mode(stat.st_mode),
                Err(error) => return self.visitor.unreadable(path, error.into()),
            },
            known => known,
        };
        let is_dir = kind == FileType::Directory;
        let in_git = level.in_git || name.as_bytes() == b".git";
        let is_ignored = !in_git && (level.is_ignored || self.rules.matches(path, is_dir));
        let entry = WalkEntry { path, dir, name, kind, is_ignored };
        if self.visitor.visit(&entry)? == Descend::Skip || !is_dir {
            return Ok(());
        }
        match rustix::fs::openat(dir, name, DIRECTORY, Mode::empty()) {
            Ok(child) => self.directory(&child, path, Level { depth: level.depth + 1, is_ignored, in_git }),
            Err(error) => self.visitor.unreadable(path, error.into()),
        }
    }

    /// The sorted names in a directory; `None` if the limit of entries is reached.
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

    fn enter_rules(
        &mut self,
        dir: &OwnedFd,
        names: &[(CString, FileType)],
        path: &[u8],
        depth: usize,
    ) -> Result<(), V::Stop> {
        for file in RULE_FILES {
            let first = file.split('/').next().unwrap_or(file);
            if names.iter().any(|(name, _)| name.as_bytes() == first.as_bytes()) {
                self.rules.enter(depth, (dir, path), file).map_err(|error| self.visitor.rule_error(error))?;
            }
        }
        Ok(())
    }
}
