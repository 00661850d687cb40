//! What is different in a working copy from what it began as. Nothing in the copy is believed, followed or waited for.

use std::{
    collections::BTreeSet,
    fs, io,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use rustix::fs::FileType;

use super::{
    beneath::{Beneath, at_and_above, name_of, parent_of, stat_in},
    ignored::{Trust, Unusable},
    index::{Entry, Index, Name, Sum},
    record::{RunRecord, RunStatus},
    store::RunDir,
    unified::quoted,
    walk::{Met, Onward, Terms, Visitor, walk},
};
use crate::{
    failure::Failure,
    git::{is_git, is_part, repositories},
};

/// A copy with more things in it is not looked through.
const ENTRIES: usize = 4_000_000;

/// How many threads read files.
const THREADS: usize = 2;

/// Which new files count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Those that the copy's own rules do not ignore.
    Wanted,
    /// Every one.
    All,
}

/// One path that is different.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) path: Name,
    pub(crate) old: Option<Entry>,
    pub(crate) new: Option<Entry>,
}

impl Change {
    /// Whether files or links are concerned, and not only directories.
    pub(crate) fn is_shown(&self) -> bool {
        let mode = |entry: &Option<Entry>| entry.as_ref().and_then(Entry::git_mode);
        mode(&self.old).is_some() || mode(&self.new).is_some()
    }

    pub(crate) fn verb(&self) -> &'static str {
        let mode = |entry: &Option<Entry>| entry.as_ref().and_then(Entry::git_mode);
        match (mode(&self.old), mode(&self.new)) {
            (None, _) => "added",
            (_, None) => "deleted",
            (Some(old), Some(new)) if old >> 12 != new >> 12 => "type",
            _ => "modified",
        }
    }
}

/// All that is different.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// Sorted by path, without anything that is a repository's own.
    pub(crate) all: Vec<Change>,
    /// How many files that are repositories' own are different.
    pub(crate) in_git: usize,
    /// Directories that have become repositories, by what is in them.
    pub(crate) new_repositories: Vec<Name>,
    /// How many new things the copy's rules ignore; a directory is one.
    pub(crate) ignored: usize,
    /// What is neither file nor directory nor link.
    pub(crate) special: Vec<Name>,
    /// What cannot be read, and why. Nothing is said about what is in it.
    pub(crate) unreadable: Vec<(Name, String)>,
}

impl Changes {
    /// The changes that a diff shows.
    pub(crate) fn shown(&self) -> impl Iterator<Item = &Change> {
        self.all.iter().filter(|change| change.is_shown())
    }
}

impl RunDir {
    /// Compares the working copy with what it began as.
    pub(crate) fn changes(&self, scope: Scope) -> Result<Changes, Failure> {
        let index = self.index()?.ok_or_else(|| self.without_copy())?;
        let failed = |error| Failure::new(format!("cannot read {}", self.workspace().display())).because(error);
        let copy = Beneath::open(&self.workspace()).map_err(failed)?;
        compare(&copy, &index, scope)
    }

    /// Says that there is no copy, and where the files are instead.
    fn without_copy(&self) -> Failure {
        let record = self.record().ok();
        let is_open = |record: &RunRecord| matches!(record.status, RunStatus::Running | RunStatus::Lost);
        if record.as_ref().is_some_and(|record| is_open(record) && record.source.is_some()) {
            let what = format!("the working copy of run {} was never completed", self.id());
            return Failure::new(what).code("no_copy").next(format!("`sandbar runs rm {}` removes it", self.id()));
        }
        let failure = Failure::new(format!("the run {} did not work on a copy", self.id())).code("no_copy");
        let workspace = self.workspace();
        let has_files = fs::read_dir(&workspace).is_ok_and(|mut entries| entries.next().is_some());
        let source = record.and_then(|record| record.source);
        failure.next(match source {
            _ if has_files => format!("its files are in {}", workspace.display()),
            Some(source) => format!("its files are in {}", quoted("", &source)),
            None => format!("its files are in the directory it was given; {} is empty", workspace.display()),
        })
    }

    /// Takes everything that is in the working copy by now, and was not copied, for something that the run was given.
    pub(crate) fn take_as_given(&self) -> Result<(), Failure> {
        let Some(mut index) = self.index()? else { return Ok(()) };
        let changes = self.changes(Scope::All)?;
        index.given.extend(changes.all.into_iter().map(|change| change.path));
        self.save_index(&index)
    }
}

fn compare(copy: &Beneath, index: &Index, scope: Scope) -> Result<Changes, Failure> {
    let mut look = Look { index, scope, found: Vec::new(), hidden: BTreeSet::new(), changes: Changes::default() };
    walk(copy, &Terms { most: ENTRIES, outer: &index.outer, trust: Trust::Copy }, &mut look)?;
    let Look { found, hidden, mut changes, .. } = look;
    let found = judge(copy, index, found, &mut changes);
    let seen: BTreeSet<&Name> = found.iter().map(|(path, _)| path).collect();
    let own = Own::of(index, &found);
    let is_hidden = |path: &Name| at_and_above(&path.0).any(|above| hidden.contains(&Name(above.to_vec())));
    for (path, old) in &index.entries {
        if !seen.contains(path) && !is_hidden(path) && !index.given.contains(path) {
            note(&mut changes, &own, Change { path: path.clone(), old: Some(old.clone()), new: None });
        }
    }
    for (path, new) in found {
        let old = index.entries.get(&path);
        if !old.is_some_and(|old| is_same(old, &new)) && !index.given.contains(&path) {
            note(&mut changes, &own, Change { path, old: old.cloned(), new: Some(new) });
        }
    }
    changes.new_repositories = own.new.into_iter().map(Name).collect();
    changes.all.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(changes)
}

/// The directories of a copy that are repositories, whatever they are called.
struct Own {
    /// All of what is in these is theirs.
    old: BTreeSet<Vec<u8>>,
    /// Without what makes them repositories, these are ordinary directories.
    new: BTreeSet<Vec<u8>>,
}

impl Own {
    fn of(index: &Index, found: &[(Name, Entry)]) -> Self {
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

fn note(changes: &mut Changes, own: &Own, change: Change) {
    match own.has(&change.path.0) {
        true => changes.in_git += usize::from(change.is_shown()),
        false => changes.all.push(change),
    }
}

/// Whether nothing changed that git would call a change.
fn is_same(old: &Entry, new: &Entry) -> bool {
    match (old, new) {
        (Entry::Dir { .. }, Entry::Dir { .. }) => true,
        (Entry::Link { to: old }, Entry::Link { to: new }) => old == new,
        (Entry::File { size: a, sha256: one, .. }, Entry::File { size: b, sha256: other, .. }) => {
            old.git_mode() == new.git_mode() && a == b && one == other
        }
        _ => false,
    }
}

/// Reads the files that may be the same, and says of each what it is.
fn judge(copy: &Beneath, index: &Index, found: Vec<(Name, Entry)>, changes: &mut Changes) -> Vec<(Name, Entry)> {
    let next = AtomicUsize::new(0);
    let sums = Mutex::new(Vec::new());
    let worker = || {
        let mut own = Vec::new();
        while let Some((at, (path, entry))) = {
            let at = next.fetch_add(1, Ordering::Relaxed);
            found.get(at).map(|one| (at, one))
        } {
            if let Some(size) = read_size(index.entries.get(path), entry) {
                own.push((at, copy.file(&path.0).and_then(|(file, _)| Sum::read(file, size.saturating_add(1)))));
            }
        }
        sums.lock().unwrap_or_else(PoisonError::into_inner).append(&mut own);
    };
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(worker);
        }
    });
    let mut found: Vec<Option<(Name, Entry)>> = found.into_iter().map(Some).collect();
    for (at, sum) in sums.into_inner().unwrap_or_else(PoisonError::into_inner) {
        let Some((path, entry)) = &mut found[at] else { continue };
        match (sum, entry) {
            (Ok((sum, read)), Entry::File { size, sha256, .. }) => (*size, *sha256) = (read, Some(sum)),
            (Err(error), _) => {
                changes.unreadable.push((path.clone(), error.to_string()));
                // Told as it was, so that nobody takes it for gone.
                let old = index.entries.get(path).cloned();
                let known = old.map(|old| (path.clone(), old));
                found[at] = known;
            }
            (Ok(_), _) => {}
        }
    }
    found.into_iter().flatten().collect()
}

/// How much of a file must be read to know whether it is the same; nothing if its size says it already.
fn read_size(old: Option<&Entry>, new: &Entry) -> Option<u64> {
    match (old, new) {
        (Some(Entry::File { size: old, sha256: Some(_), .. }), Entry::File { size, .. }) if old == size => Some(*size),
        _ => None,
    }
}

/// The walk through the copy.
struct Look<'a> {
    index: &'a Index,
    scope: Scope,
    found: Vec<(Name, Entry)>,
    /// Paths of whose insides nothing is known.
    hidden: BTreeSet<Name>,
    changes: Changes,
}

impl Visitor for Look<'_> {
    type Halt = Failure;

    fn meet(&mut self, met: &Met<'_>) -> Result<Onward, Failure> {
        let path = Name(met.path.to_vec());
        let is_new = !self.index.entries.contains_key(&path);
        if met.is_ignored && is_new && self.scope == Scope::Wanted {
            self.changes.ignored += 1;
            return Ok(Onward::Past);
        }
        let entry = stat_in(met.dir, met.name.as_bytes()).map_err(io::Error::from).and_then(|stat| {
            let (mode, size) = (stat.st_mode & 0o777, stat.st_size.unsigned_abs());
            Ok(match met.kind {
                FileType::Directory => Some(Entry::Dir { mode }),
                FileType::RegularFile => Some(Entry::File { mode, size, sha256: None, at: None }),
                FileType::Symlink => {
                    let to = rustix::fs::readlinkat(met.dir, met.name, Vec::new())?.into_bytes();
                    Some(Entry::Link { to: Name(to) })
                }
                _ => None,
            })
        });
        match entry {
            Ok(Some(entry)) => self.found.push((path, entry)),
            Ok(None) => {
                self.hidden.insert(path.clone());
                self.changes.special.push(path);
            }
            Err(error) => self.miss(met.path, error)?,
        }
        Ok(Onward::Into)
    }

    fn miss(&mut self, path: &[u8], error: io::Error) -> Result<(), Failure> {
        let path = Name(path.to_vec());
        self.changes.unreadable.push((path.clone(), crate::failure::without_number(&error.to_string())));
        self.hidden.insert(path);
        Ok(())
    }

    fn unusable(&self, unusable: Unusable) -> Failure {
        Failure::new(format!("cannot follow {}: {}", unusable.path.display(), unusable.reason))
    }

    fn overflow(&self) -> Failure {
        Failure::new(format!("the working copy has more than {ENTRIES} files")).code("limit_exceeded")
    }
}
