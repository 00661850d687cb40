//! A walk through a tree by directory handles: sorted, bounded, without following links, with ignore rules applied.

use std::{
    ffi::CString,
    fs::File,
    io,
    os::fd::{AsFd, OwnedFd},
};

use rustix::fs::{FileType, Mode, Stat};

use super::{
    confined_dir::{DIRECTORY, READING, names, regular, stat_in},
    ignore_rules::{IgnoreRules, RuleFileError, Rules},
};

/// One entry of the tree.
#[derive(Debug)]
pub struct WalkEntry<'a> {
    /// Path below the root.
    pub path: &'a [u8],
    /// Parent directory.
    pub dir: &'a OwnedFd,
    /// Name in the parent directory.
    pub name: &'a CString,
    /// Type of the entry when its directory was listed.
    pub kind: FileType,
    /// Whether ignore rules exclude the entry.
    pub is_ignored: bool,
}

impl WalkEntry<'_> {
    /// The metadata of the entry.
    pub fn stat(&self) -> io::Result<Stat> {
        Ok(stat_in(self.dir, self.name.as_bytes())?)
    }

    /// The target of a symbolic link.
    pub fn link(&self) -> io::Result<Vec<u8>> {
        Ok(rustix::fs::readlinkat(self.dir, self.name, Vec::new())?.into_bytes())
    }

    /// Opens a file for reading. An entry that is not a regular file any more is an error without a number of the system.
    pub fn file(&self) -> io::Result<(File, Stat)> {
        regular(rustix::fs::openat(self.dir, self.name, READING, Mode::empty())?)
    }
}

/// Whether the walk enters a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Descend {
    /// The walk visits what is in the directory.
    Into,
    /// The walk passes the directory.
    Skip,
}

/// Why a walk cannot go on.
#[derive(Debug)]
pub enum Refusal {
    /// An ignore file of a trusted tree cannot be followed.
    Rules(RuleFileError),
    /// The tree has more entries than the walk may visit.
    TooManyEntries,
}

/// Receives the entries of a walk.
pub trait Visitor {
    /// Why a walk ends early.
    type Stop;

    /// Visits an entry; the answer matters for directories only.
    fn visit(&mut self, entry: &WalkEntry<'_>) -> Result<Descend, Self::Stop>;

    /// Receives the handle of a directory before the walk visits what is in it.
    fn enter(&mut self, _path: &[u8], _dir: &OwnedFd) -> Result<(), Self::Stop> {
        Ok(())
    }

    /// Reports an entry that cannot be read.
    fn unreadable(&mut self, path: &[u8], error: io::Error) -> Result<(), Self::Stop>;

    /// The error of a walk that cannot go on.
    fn refused(&self, refusal: Refusal) -> Self::Stop;
}

/// Options of a walk.
#[derive(Clone, Copy, Debug)]
pub struct WalkOptions<'a> {
    /// Maximum number of entries.
    pub entries: usize,
    /// Maximum nesting of directories; each level holds a descriptor.
    pub depth: usize,
    /// Rules that mark entries as ignored.
    pub rules: Rules<'a>,
}

/// Visits everything below the root.
pub fn walk<V: Visitor>(root: &impl AsFd, options: &WalkOptions<'_>, visitor: &mut V) -> Result<(), V::Stop> {
    let rules = IgnoreRules::new(&options.rules);
    let mut walk = Walk { visitor, rules, left: options.entries, depth: options.depth };
    match root.as_fd().try_clone_to_owned() {
        Ok(root) => walk.directory(&root, &mut Vec::new(), Level { depth: 0, is_ignored: false, in_git: false }),
        Err(error) => walk.visitor.unreadable(b"", error),
    }
}

struct Walk<'a, V> {
    visitor: &'a mut V,
    rules: IgnoreRules<'a>,
    left: usize,
    depth: usize,
}

#[derive(Clone, Copy)]
struct Level {
    depth: usize,
    /// Whether a parent directory is ignored.
    is_ignored: bool,
    /// Whether this is inside `.git`, if no ignore rules apply there.
    in_git: bool,
}

impl<V: Visitor> Walk<'_, V> {
    fn directory(&mut self, dir: &OwnedFd, path: &mut Vec<u8>, level: Level) -> Result<(), V::Stop> {
        if level.depth > self.depth {
            let deep = io::Error::other(format!("more than {} directories deep", self.depth));
            return self.visitor.unreadable(path, deep);
        }
        let names = match self.names(dir) {
            Ok(Some(names)) => names,
            Ok(None) => return Err(self.visitor.refused(Refusal::TooManyEntries)),
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
            self.entry(dir, (name, *kind), path, level)?;
            path.truncate(length);
        }
        self.rules.leave(level.depth);
        Ok(())
    }

    fn entry(
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
        let in_git = level.in_git || self.rules.exempts(name.as_bytes());
        let is_ignored = !in_git && (level.is_ignored || self.rules.matches(path, is_dir));
        let entry = WalkEntry { path, dir, name, kind, is_ignored };
        if self.visitor.visit(&entry)? == Descend::Skip || !is_dir {
            return Ok(());
        }
        match rustix::fs::openat(dir, name, DIRECTORY, Mode::empty()) {
            Ok(child) => {
                self.visitor.enter(path, &child)?;
                self.directory(&child, path, Level { depth: level.depth + 1, is_ignored, in_git })
            }
            Err(error) => self.visitor.unreadable(path, error.into()),
        }
    }

    /// The sorted names in a directory; `None` if the limit of entries is reached.
    fn names(&mut self, dir: &OwnedFd) -> io::Result<Option<Vec<(CString, FileType)>>> {
        let mut sorted = Vec::new();
        for entry in names(dir)? {
            let entry = entry?;
            let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
            self.left = left;
            sorted.push(entry);
        }
        sorted.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        Ok(Some(sorted))
    }

    fn enter_rules(
        &mut self,
        dir: &OwnedFd,
        names: &[(CString, FileType)],
        path: &[u8],
        depth: usize,
    ) -> Result<(), V::Stop> {
        for file in self.rules.files() {
            let first = file.split('/').next().unwrap_or(file);
            if names.iter().any(|(name, _)| name.as_bytes() == first.as_bytes()) {
                let entered = self.rules.enter(depth, (dir, path), file);
                entered.map_err(|error| self.visitor.refused(Refusal::Rules(error)))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::{Dialect, Patterns, Trust};

    /// Writes one line per entry.
    #[derive(Default)]
    struct Lines(Vec<String>);

    impl Visitor for Lines {
        type Stop = String;

        fn visit(&mut self, entry: &WalkEntry<'_>) -> Result<Descend, String> {
            let mark = if entry.is_ignored { "-" } else { "+" };
            self.0.push(format!("{mark}{}", String::from_utf8_lossy(entry.path)));
            Ok(if entry.is_ignored { Descend::Skip } else { Descend::Into })
        }

        fn unreadable(&mut self, path: &[u8], error: io::Error) -> Result<(), String> {
            Err(format!("{}: {error}", String::from_utf8_lossy(path)))
        }

        fn refused(&self, refusal: Refusal) -> String {
            format!("{refusal:?}")
        }
    }

    fn lines(root: &std::path::Path, options: &WalkOptions<'_>) -> Result<String, String> {
        let mut lines = Lines::default();
        walk(&File::open(root).unwrap(), options, &mut lines)?;
        Ok(lines.0.join(" "))
    }

    #[test]
    fn the_dialect_decides_which_rules_apply_and_where() {
        let temp = tempfile::tempdir().unwrap();
        for (path, text) in [
            ("a.log", ""),
            ("b.tmp", ""),
            ("c.env", ""),
            (".gitignore", "*.log\n"),
            (".ignore", "*.tmp\n"),
            (".git/x.log", ""),
            ("d/.gitignore", "!a.log\n"),
            ("d/a.log", ""),
        ] {
            fs::create_dir_all(temp.path().join(path).parent().unwrap()).unwrap();
            fs::write(temp.path().join(path), text).unwrap();
        }
        let patterns = Patterns::new(&["*.env".to_owned()]).unwrap();
        let with = |dialect, patterns| {
            let rules = Rules { dialect, trust: Trust::Source, outer: &[], patterns };
            lines(temp.path(), &WalkOptions { entries: 99, depth: 9, rules }).unwrap()
        };
        let own = "+.git +.git/x.log +.gitignore +.ignore -a.log -b.tmp +c.env +d +d/.gitignore +d/a.log";
        assert_eq!(with(Dialect::Repository, None), own);
        let given = "+.git -.git/x.log +.gitignore +.ignore -a.log +b.tmp -c.env +d +d/.gitignore +d/a.log";
        assert_eq!(with(Dialect::GitIgnore, Some(&patterns)), given);
        let none = "+.git +.git/x.log +.gitignore +.ignore +a.log +b.tmp -c.env +d +d/.gitignore +d/a.log";
        assert_eq!(with(Dialect::None, Some(&patterns)), none);
    }

    #[test]
    fn a_walk_has_limits() {
        let temp = tempfile::tempdir().unwrap();
        fs::create_dir_all(temp.path().join("a/b/c")).unwrap();
        let within = |entries, depth| lines(temp.path(), &WalkOptions { entries, depth, rules: Rules::default() });
        assert_eq!(within(3, 3), Ok("+a +a/b +a/b/c".to_owned()));
        assert_eq!(within(2, 3), Err("TooManyEntries".to_owned()));
        assert_eq!(within(3, 2), Err("a/b/c: more than 2 directories deep".to_owned()));
    }

    #[test]
    fn what_trust_means_for_an_ignore_file_that_is_too_large() {
        let temp = tempfile::tempdir().unwrap();
        let large = format!("*.log\n#{}", "x".repeat(1 << 20));
        fs::write(temp.path().join(".gitignore"), large).unwrap();
        fs::write(temp.path().join("a.log"), "").unwrap();
        let with = |trust| {
            let rules = Rules { dialect: Dialect::GitIgnore, trust, ..Rules::default() };
            lines(temp.path(), &WalkOptions { entries: 99, depth: 9, rules })
        };
        assert!(with(Trust::Source).is_err_and(|refusal| refusal.contains("TooLarge")));
        assert_eq!(with(Trust::Copy).as_deref(), Ok("+.gitignore +a.log"));
        assert_eq!(with(Trust::Hint).as_deref(), Ok("+.gitignore -a.log"));
    }
}
