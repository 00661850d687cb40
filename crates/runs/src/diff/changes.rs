//! The differences between a working copy and its index. Nothing in the copy is trusted, followed or waited for.

use std::{
    collections::BTreeSet,
    fs, io,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use parking_lot::Mutex;
use rustix::fs::FileType;
use sandbar_host_files::{
    ConfinedDir, Descend, Refusal, RuleFileError, Trust, Visitor, WalkEntry, at_and_above, name_of, parent_of,
    permissions, walk,
};

use super::unified::quoted;
use crate::{
    Error, ErrorKind, Result, describe,
    git::{is_git, is_part, repositories},
    index::{Digest, Index, IndexEntry, PathBytes},
    record::{RunRecord, RunStatus},
    rules::{self, walk_options},
    store::RunDir,
};

/// Maximum number of entries in a working copy.
const ENTRIES: usize = 4_000_000;

/// Threads that read files.
const THREADS: usize = 2;

/// Which new files are included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Files that the ignore rules of the copy do not exclude.
    NotIgnored,
    /// All files.
    All,
}

/// One path that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Path below the workspace.
    pub path: PathBytes,
    /// The entry at the start; `None` if the path is new.
    pub old: Option<IndexEntry>,
    /// The entry now; `None` if the path was deleted.
    pub new: Option<IndexEntry>,
}

impl Change {
    /// Whether a file or a link changed, and not only a directory.
    pub fn is_shown(&self) -> bool {
        let mode = |entry: &Option<IndexEntry>| entry.as_ref().and_then(IndexEntry::git_mode);
        mode(&self.old).is_some() || mode(&self.new).is_some()
    }

    /// `added`, `deleted`, `modified` or `type`.
    pub fn verb(&self) -> &'static str {
        let mode = |entry: &Option<IndexEntry>| entry.as_ref().and_then(IndexEntry::git_mode);
        match (mode(&self.old), mode(&self.new)) {
            (None, _) => "added",
            (_, None) => "deleted",
            (Some(old), Some(new)) if old >> 12 != new >> 12 => "type",
            _ => "modified",
        }
    }
}

/// All differences.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Changes {
    /// Changes sorted by path, without files that belong to git repositories.
    pub all: Vec<Change>,
    /// Number of changed files that belong to git repositories.
    pub in_git: usize,
    /// Directories that became git repositories.
    pub new_repositories: Vec<PathBytes>,
    /// New paths that ignore rules exclude; a directory counts once.
    pub ignored: usize,
    /// Pipes, sockets and devices.
    pub special: Vec<PathBytes>,
    /// Paths that cannot be read, and why. Their contents are not compared.
    pub unreadable: Vec<(PathBytes, String)>,
}

impl Changes {
    /// The changes that a diff shows.
    pub fn shown(&self) -> impl Iterator<Item = &Change> {
        self.all.iter().filter(|change| change.is_shown())
    }
}

impl RunDir {
    /// Compares the working copy with its start.
    pub fn changes(&self, scope: Scope) -> Result<Changes> {
        let index = self.index()?.ok_or_else(|| self.without_copy())?;
        let failed = |error: io::Error| Error::io(format!("cannot read {}", self.workspace().display()), error);
        let copy = ConfinedDir::open(&self.workspace()).map_err(failed)?;
        compare(&copy, &index, scope)
    }

    /// The error for a run without a working copy, which says where its files are.
    fn without_copy(&self) -> Error {
        let record = self.record().ok();
        let is_open = |record: &RunRecord| matches!(record.status, RunStatus::Running | RunStatus::Killed);
        if record.as_ref().is_some_and(|record| is_open(record) && record.source.is_some()) {
            let message = format!("the working copy of run {} was never completed", self.id());
            return Error::new(ErrorKind::IncompleteCopy, message).about(self.id());
        }
        let message = format!("the run {} did not work on a copy", self.id());
        let error = Error::new(ErrorKind::NoCopy, message).about(self.id());
        let workspace = self.workspace();
        let has_files = fs::read_dir(&workspace).is_ok_and(|mut entries| entries.next().is_some());
        let source = record.and_then(|record| record.source);
        error.with_advice(match source {
            _ if has_files => format!("its files are in {}", workspace.display()),
            Some(source) => format!("its files are in {}", quoted("", &source)),
            None => format!("its files are in the directory it was given; {} is empty", workspace.display()),
        })
    }

    /// Records everything that was added to the working copy since the copy as given, so that diffs do not show it.
    pub fn mark_additions_as_given(&self) -> Result<()> {
        let Some(mut index) = self.index()? else { return Ok(()) };
        let changes = self.changes(Scope::All)?;
        index.given.extend(changes.all.into_iter().map(|change| change.path));
        self.save_index(&index)
    }
}

fn compare(copy: &ConfinedDir, index: &Index, scope: Scope) -> Result<Changes> {
    let mut comparison =
        Comparison { index, scope, found: Vec::new(), hidden: BTreeSet::new(), changes: Changes::default() };
    walk(copy, &walk_options(ENTRIES, Trust::Copy, &index.outer), &mut comparison)?;
    let Comparison { found, hidden, mut changes, .. } = comparison;
    let found = with_digests(copy, index, found, &mut changes);
    let seen: BTreeSet<&PathBytes> = found.iter().map(|(path, _)| path).collect();
    let own = RepositoryPaths::of(index, &found);
    let is_hidden = |path: &PathBytes| at_and_above(&path.0).any(|above| hidden.contains(&PathBytes(above.to_vec())));
    for (path, old) in &index.entries {
        if !seen.contains(path) && !is_hidden(path) && !index.given.contains(path) {
            add(&mut changes, &own, Change { path: path.clone(), old: Some(old.clone()), new: None });
        }
    }
    for (path, new) in found {
        let old = index.entries.get(&path);
        if !old.is_some_and(|old| is_same(old, &new)) && !index.given.contains(&path) {
            add(&mut changes, &own, Change { path, old: old.cloned(), new: Some(new) });
        }
    }
    changes.new_repositories = own.new.into_iter().map(PathBytes).collect();
    changes.all.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(changes)
}

/// The directories of a copy that are git repositories.
struct RepositoryPaths {
    /// Repositories at the start: everything in them belongs to git.
    old: BTreeSet<Vec<u8>>,
    /// New ones: only the files that make them repositories belong to git.
    new: BTreeSet<Vec<u8>>,
}

impl RepositoryPaths {
    fn of(index: &Index, found: &[(PathBytes, IndexEntry)]) -> Self {
        let old = repositories(index.entries.keys().map(|path| path.0.as_slice()));
        let mut new = repositories(found.iter().map(|(path, _)| path.0.as_slice()));
        new.retain(|path| !is_git(path) && !at_and_above(path).any(|above| old.contains(above)));
        Self { old, new }
    }

    fn has(&self, path: &[u8]) -> bool {
        let is_part = |at: &[u8]| is_part(name_of(at)) && self.new.contains(parent_of(at).unwrap_or_default());
        is_git(path) || at_and_above(path).any(|above| self.old.contains(above) || is_part(above))
    }
}

fn add(changes: &mut Changes, own: &RepositoryPaths, change: Change) {
    match own.has(&change.path.0) {
        true => changes.in_git += usize::from(change.is_shown()),
        false => changes.all.push(change),
    }
}

/// Whether git would see no difference.
fn is_same(old: &IndexEntry, new: &IndexEntry) -> bool {
    match (old, new) {
        (IndexEntry::Dir { .. }, IndexEntry::Dir { .. }) => true,
        (IndexEntry::Link { to: old }, IndexEntry::Link { to: new }) => old == new,
        (IndexEntry::File { size: a, sha256: one, .. }, IndexEntry::File { size: b, sha256: other, .. }) => {
            old.git_mode() == new.git_mode() && a == b && one == other
        }
        _ => false,
    }
}

/// Adds the digests of files whose size did not change.
fn with_digests(
    copy: &ConfinedDir,
    index: &Index,
    found: Vec<(PathBytes, IndexEntry)>,
    changes: &mut Changes,
) -> Vec<(PathBytes, IndexEntry)> {
    let next = AtomicUsize::new(0);
    let sums = Mutex::new(Vec::new());
    let worker = || {
        let mut own = Vec::new();
        while let Some((at, (path, entry))) = {
            let at = next.fetch_add(1, Ordering::Relaxed);
            found.get(at).map(|one| (at, one))
        } {
            if let Some(size) = read_size(index.entries.get(path), entry) {
                own.push((at, copy.file(&path.0).and_then(|(file, _)| Digest::read(file, size.saturating_add(1)))));
            }
        }
        sums.lock().append(&mut own);
    };
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(worker);
        }
    });
    let mut found: Vec<Option<(PathBytes, IndexEntry)>> = found.into_iter().map(Some).collect();
    for (at, sum) in sums.into_inner() {
        let Some((path, entry)) = &mut found[at] else { continue };
        match (sum, entry) {
            (Ok((sum, read)), IndexEntry::File { size, sha256, .. }) => (*size, *sha256) = (read, Some(sum)),
            (Err(error), _) => {
                changes.unreadable.push((path.clone(), error.to_string()));
                // Reported as unchanged: an unreadable file is not a deleted one.
                let old = index.entries.get(path).cloned();
                let known = old.map(|old| (path.clone(), old));
                found[at] = known;
            }
            (Ok(_), _) => {}
        }
    }
    found.into_iter().flatten().collect()
}

/// Bytes that must be read to compare a file; `None` if its size already differs.
fn read_size(old: Option<&IndexEntry>, new: &IndexEntry) -> Option<u64> {
    match (old, new) {
        (Some(IndexEntry::File { size: old, sha256: Some(_), .. }), IndexEntry::File { size, .. }) if old == size => {
            Some(*size)
        }
        _ => None,
    }
}

/// The state of a walk through the copy.
struct Comparison<'a> {
    index: &'a Index,
    scope: Scope,
    found: Vec<(PathBytes, IndexEntry)>,
    /// Paths whose contents are unknown.
    hidden: BTreeSet<PathBytes>,
    changes: Changes,
}

impl Visitor for Comparison<'_> {
    type Stop = Error;

    fn visit(&mut self, entry: &WalkEntry<'_>) -> Result<Descend> {
        let path = PathBytes(entry.path.to_vec());
        let is_new = !self.index.entries.contains_key(&path);
        if entry.is_ignored && is_new && self.scope == Scope::NotIgnored {
            self.changes.ignored += 1;
            return Ok(Descend::Skip);
        }
        let found = entry.stat().and_then(|stat| {
            let (mode, size) = (permissions(&stat), stat.st_size.unsigned_abs());
            Ok(match entry.kind {
                FileType::Directory => Some(IndexEntry::Dir { mode }),
                FileType::RegularFile => Some(IndexEntry::File { mode, size, sha256: None, at: None }),
                FileType::Symlink => Some(IndexEntry::Link { to: PathBytes(entry.link()?) }),
                _ => None,
            })
        });
        match found {
            Ok(Some(found)) => self.found.push((path, found)),
            Ok(None) => {
                self.hidden.insert(path.clone());
                self.changes.special.push(path);
            }
            Err(error) => self.unreadable(entry.path, error)?,
        }
        Ok(Descend::Into)
    }

    fn unreadable(&mut self, path: &[u8], error: io::Error) -> Result<()> {
        let path = PathBytes(path.to_vec());
        self.changes.unreadable.push((path.clone(), describe(&error)));
        self.hidden.insert(path);
        Ok(())
    }

    fn refused(&self, refusal: Refusal) -> Error {
        match refusal {
            Refusal::Rules(RuleFileError { path, problem }) => {
                let message = format!("cannot follow {}: {}", path.display(), rules::reason(&problem));
                Error::new(ErrorKind::IgnoreRules, message)
            }
            Refusal::TooManyEntries => {
                Error::new(ErrorKind::LimitExceeded, format!("the working copy has more than {ENTRIES} files"))
            }
        }
    }
}
