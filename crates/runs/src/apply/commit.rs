//! Carries out a plan: new files are staged beside the destination first, and everything is undone if a step fails.

use std::{
    collections::BTreeMap,
    fmt,
    fs::File,
    io::{self, BufWriter, Write},
    os::fd::OwnedFd,
    path::Path,
};

use rustix::{
    fs::{AtFlags, Dir, FlockOperation, Gid, Mode, OFlags, RenameFlags, Uid, flock},
    io::Errno,
};
use sandbar_host_files::{ConfinedDir, DIRECTORY, as_path, name_of, parent_of, remove_at, stat_in};
use serde_json::json;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{
    plan::{Action, ApplyStep, Present},
    undo::{self, Done},
};
use crate::{
    copy::stream,
    describe,
    diff::quoted,
    index::{IndexEntry, PathBytes},
};

/// Prefix of the staging directory, which holds new files before a commit and old files after it.
const STAGING: &str = ".sandbar-apply-";

/// Name of the list of files in a staging directory.
pub const LIST: &str = "moved.json";

/// Name of the file with the id of the run in a staging directory.
const RUN: &str = "run";

/// Longest id of a run.
const ID_LIMIT: usize = 64;

/// Up to this number, files are flushed one by one; above it, the whole file system is flushed.
const FLUSH_LIMIT: usize = 500;

/// Maximum number of leftovers that are reported.
const LEFTOVERS: usize = 10;

/// Why a plan was not carried out.
#[derive(Debug)]
pub(super) struct CommitError {
    path: PathBytes,
    reason: String,
    /// Paths that could not be restored, and the staging directory with the old files.
    not_restored: Option<(Vec<PathBytes>, String)>,
}

impl CommitError {
    /// Whether the destination is unchanged.
    pub(super) fn is_undone(&self) -> bool {
        self.not_restored.is_none()
    }
}

impl fmt::Display for CommitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", quoted("", &self.path), self.reason)?;
        let Some((names, staging)) = &self.not_restored else { return Ok(()) };
        let names = names.iter().map(|name| quoted("", name)).collect::<Vec<_>>().join(", ");
        write!(f, "; these could not be restored: {names}; the old files are in {staging}")
    }
}

/// Staging directories of killed commits.
pub(super) fn leftovers(target: &ConfinedDir) -> Vec<PathBytes> {
    let is_idle = |name: &[u8]| {
        let opened = rustix::fs::openat(target.root(), name, DIRECTORY, Mode::empty());
        opened.is_ok_and(|dir| flock(&dir, FlockOperation::NonBlockingLockExclusive).is_ok())
    };
    let Ok(entries) = Dir::read_from(target.root()) else { return Vec::new() };
    let names = entries.flatten().map(|entry| entry.file_name().to_bytes().to_vec());
    names.filter(|name| name.starts_with(STAGING.as_bytes()) && is_idle(name)).take(LEFTOVERS).map(PathBytes).collect()
}

/// Removes the leftovers of earlier commits of this run, whose changes are all applied now.
pub(super) fn remove_leftovers(target: &ConfinedDir, leftovers: &mut Vec<PathBytes>, run: &str) {
    leftovers.retain(|name| {
        let is_own = owner(target, name).is_some_and(|owner| owner == run.as_bytes());
        !(is_own && remove_at(target.root(), as_path(&name.0)).is_ok())
    });
}

/// The id of the run that a staging directory belongs to.
fn owner(target: &ConfinedDir, staging: &PathBytes) -> Option<Vec<u8>> {
    let dir = rustix::fs::openat(target.root(), staging.0.as_slice(), DIRECTORY, Mode::empty()).ok()?;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::openat(&dir, RUN, flags, Mode::empty()).ok()?;
    let mut id = vec![0; ID_LIMIT];
    let count = rustix::io::read(&file, &mut id[..]).ok()?;
    id.truncate(count);
    Some(id)
}

/// The steps to carry out, and the id of their run.
pub(super) struct Order<'a> {
    pub(super) run: &'a str,
    pub(super) steps: &'a [ApplyStep],
}

/// Carries out all steps, or none.
pub(super) fn all(
    target: &ConfinedDir,
    copy: &ConfinedDir,
    order: &Order<'_>,
    cancel: &CancellationToken,
) -> Result<(), CommitError> {
    let name = format!("{STAGING}{}", Uuid::now_v7().simple());
    let failed = |error: Errno| CommitError {
        path: PathBytes(name.clone().into()),
        reason: describe(&io::Error::from(error)),
        not_restored: None,
    };
    rustix::fs::mkdirat(target.root(), name.as_str(), Mode::RWXU).map_err(failed)?;
    let opened = rustix::fs::openat(target.root(), name.as_str(), DIRECTORY, Mode::empty());
    let staging = opened.map_err(failed)?;
    // While the lock is held, the staging directory is not a leftover.
    let _tells_the_next_one = flock(&staging, FlockOperation::NonBlockingLockExclusive);
    let mut commit = Commit { target, copy, staging, done: Vec::new(), slots: 0, cancel };
    let ended = commit.run(order);
    let failed = if ended.is_err() { undo::all(&commit.done, target, &commit.staging) } else { Vec::new() };
    if failed.is_empty() {
        if let Err(error) = remove_at(target.root(), Path::new(&name)) {
            tracing::warn!(%error, name, "cannot remove the staging directory");
        }
        return ended.map_err(|(path, reason)| CommitError { path, reason, not_restored: None });
    }
    ended.map_err(|(path, reason)| CommitError { path, reason, not_restored: Some((failed, name)) })
}

fn cancelled() -> io::Error {
    io::Error::other("cancelled")
}

struct Commit<'a> {
    target: &'a ConfinedDir,
    copy: &'a ConfinedDir,
    /// A directory in the destination for new files before the commit and old files after it.
    staging: OwnedFd,
    done: Vec<Done>,
    slots: usize,
    cancel: &'a CancellationToken,
}

impl Commit<'_> {
    fn run(&mut self, order: &Order<'_>) -> Result<(), (PathBytes, String)> {
        let steps = order.steps;
        self.write_owner(order.run).map_err(|error| (PathBytes(RUN.into()), describe(&error)))?;
        let slots: Vec<Option<String>> = steps.iter().map(|step| step.is_shown().then(|| self.slot())).collect();
        self.list(steps, &slots).map_err(|error| (PathBytes(LIST.into()), describe(&error)))?;
        for (step, slot) in steps.iter().zip(&slots) {
            if let (Action::Put { entry, present }, Some(slot)) = (&step.action, slot) {
                let path = step.path();
                self.stage((path, slot), entry, *present).map_err(|error| (path.clone(), describe(&error)))?;
            }
        }
        // After a power cut each file is old or new: new files are flushed before they are renamed, and the renames before
        // the old files are removed.
        self.flush_staged(&slots).map_err(|error| (PathBytes(LIST.into()), describe(&error)))?;
        for (step, slot) in steps.iter().zip(slots) {
            self.step(step, slot).map_err(|error| (step.path().clone(), describe(&error)))?;
        }
        self.flush_parents(steps).map_err(|error| (PathBytes(LIST.into()), describe(&error)))
    }

    /// Writes the id of the run.
    fn write_owner(&self, run: &str) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.staging, RUN, flags, Mode::RUSR | Mode::WUSR)?;
        File::from(file).write_all(run.as_bytes())
    }

    fn flush_staged(&self, slots: &[Option<String>]) -> io::Result<()> {
        if slots.len() > FLUSH_LIMIT {
            rustix::fs::sync();
            return Ok(());
        }
        for slot in slots.iter().flatten() {
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            match rustix::fs::openat(&self.staging, slot.as_str(), flags, Mode::empty()) {
                Ok(file) => rustix::fs::fsync(&file)?,
                // A link, a slot for an old file, or a file that its owner may not read.
                Err(Errno::LOOP | Errno::NOENT | Errno::ACCESS) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(rustix::fs::fsync(&self.staging)?)
    }

    fn flush_parents(&self, steps: &[ApplyStep]) -> io::Result<()> {
        if steps.len() > FLUSH_LIMIT {
            rustix::fs::sync();
            return Ok(());
        }
        let parents: BTreeMap<&[u8], &PathBytes> =
            steps.iter().map(|step| (parent_of(&step.path().0).unwrap_or_default(), step.path())).collect();
        for path in parents.into_values() {
            // A removed directory needs no flush.
            if let Ok(parent) = self.target.parent(&path.0) {
                rustix::fs::fsync(&parent)?;
            }
        }
        Ok(())
    }

    fn slot(&mut self) -> String {
        self.slots += 1;
        self.slots.to_string()
    }

    /// Writes the list of slots, so that a user can restore files after a crash.
    fn list(&self, steps: &[ApplyStep], slots: &[Option<String>]) -> io::Result<()> {
        let slots = steps.iter().zip(slots).filter_map(|(step, slot)| {
            let (slot, path) = (slot.as_ref()?, step.path().to_lossy());
            Some(json!({"slot": slot, "path": path, "change": step.letter().to_string()}))
        });
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.staging, LIST, flags, Mode::RUSR | Mode::WUSR)?;
        let mut file = BufWriter::new(File::from(file));
        file.write_all(b"[")?;
        for (at, slot) in slots.enumerate() {
            write!(file, "{}\n  {slot}", if at == 0 { "" } else { "," })?;
        }
        file.write_all(b"\n]\n")?;
        file.flush()
    }

    /// Creates a new file in its slot, with the permissions and the owner of the file it replaces.
    fn stage(&self, (path, slot): (&PathBytes, &str), entry: &IndexEntry, present: Option<Present>) -> io::Result<()> {
        let mode = match entry {
            IndexEntry::Dir { .. } => return Ok(()),
            IndexEntry::Link { to } => return Ok(rustix::fs::symlinkat(to.0.as_slice(), &self.staging, slot)?),
            IndexEntry::File { mode, .. } => *mode,
        };
        let is_program = mode & 0o100 != 0;
        // The kernel applies the caller's umask.
        let fresh = Mode::from_raw_mode(if is_program { 0o777 } else { 0o666 });
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::openat(&self.staging, slot, flags, fresh)?);
        let (source, stat) = self.copy.file(&path.0)?;
        let copied = stream::copy((&source, stat.st_size.unsigned_abs()), &file, &mut vec![0; 256 << 10], self.cancel)?;
        copied.ok_or_else(cancelled)?;
        if let Some(present) = present {
            let (uid, gid) = (Uid::from_raw(present.owner.0), Gid::from_raw(present.owner.1));
            let _only_root_may = rustix::fs::fchown(&file, Some(uid), Some(gid));
            let readers = (present.mode & 0o444) >> 2;
            let mode = if is_program { present.mode | readers } else { present.mode & !0o111 };
            rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))?;
        }
        Ok(())
    }

    fn step(&mut self, step: &ApplyStep, slot: Option<String>) -> io::Result<()> {
        if self.cancel.is_cancelled() {
            return Err(cancelled());
        }
        let path = step.path();
        match (&step.action, slot) {
            (Action::Remove(present), Some(slot)) => self.move_out(path, slot, *present),
            (Action::RemoveDir { is_needed }, _) => self.remove_dir(path, *is_needed),
            (Action::MakeDir, _) => self.make_dirs(&path.0),
            (Action::Put { present: Some(present), .. }, Some(slot)) => self.exchange(path, slot, *present),
            (Action::Put { present: None, .. }, Some(slot)) => self.put(path, &slot),
            (Action::Remove(_) | Action::Put { .. }, None) => Err(io::Error::other("it was not staged")),
        }
    }

    fn move_out(&mut self, path: &PathBytes, slot: String, present: Present) -> io::Result<()> {
        let parent = self.target.parent(&path.0)?;
        rustix::fs::renameat_with(&parent, name_of(&path.0), &self.staging, slot.as_str(), RenameFlags::NOREPLACE)?;
        self.done.push(Done::MovedOut(path.clone(), slot.clone()));
        self.check_unchanged(&slot, present)
    }

    /// Checks that the old file is the one that the plan saw, and did not change in between.
    fn check_unchanged(&self, slot: &str, present: Present) -> io::Result<()> {
        let stat = stat_in(&self.staging, slot.as_bytes())?;
        match Present::from(&stat).identity == present.identity {
            true => Ok(()),
            false => Err(io::Error::other("it changed while changes were being applied")),
        }
    }

    fn exchange(&mut self, path: &PathBytes, slot: String, present: Present) -> io::Result<()> {
        let parent = self.target.parent(&path.0)?;
        let flags = RenameFlags::EXCHANGE;
        match rustix::fs::renameat_with(&self.staging, slot.as_str(), &parent, name_of(&path.0), flags) {
            // Not every file system can exchange files.
            Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
                self.move_out(path, format!("{slot}-old"), present)?;
                return self.put(path, &slot);
            }
            exchanged => exchanged?,
        }
        self.done.push(Done::Exchanged(path.clone(), slot.clone()));
        self.check_unchanged(&slot, present)
    }

    fn put(&mut self, path: &PathBytes, slot: &str) -> io::Result<()> {
        if let Some(parent) = parent_of(&path.0) {
            self.make_dirs(parent)?;
        }
        let parent = self.target.parent(&path.0)?;
        rustix::fs::renameat_with(&self.staging, slot, &parent, name_of(&path.0), RenameFlags::NOREPLACE)?;
        self.done.push(Done::Put(path.clone()));
        Ok(())
    }

    /// Creates a directory and its missing parents.
    fn make_dirs(&mut self, path: &[u8]) -> io::Result<()> {
        if self.target.stat(path)?.is_some() {
            return Ok(());
        }
        if let Some(above) = parent_of(path) {
            self.make_dirs(above)?;
        }
        rustix::fs::mkdirat(self.target.parent(path)?, name_of(path), Mode::from_raw_mode(0o777))?;
        self.done.push(Done::MadeDir(PathBytes(path.to_vec())));
        Ok(())
    }

    fn remove_dir(&mut self, path: &PathBytes, is_needed: bool) -> io::Result<()> {
        let Some(stat) = self.target.stat(&path.0)? else { return Ok(()) };
        let removed = rustix::fs::unlinkat(self.target.parent(&path.0)?, name_of(&path.0), AtFlags::REMOVEDIR);
        match removed {
            Err(Errno::NOTEMPTY | Errno::EXIST) if !is_needed => return Ok(()),
            removed => removed?,
        }
        self.done.push(Done::RemovedDir(path.clone(), stat.st_mode & 0o777));
        Ok(())
    }
}

/// The list of slots of a commit that is cancelled right after writing it.
#[cfg(test)]
pub(super) fn listed(target: &ConfinedDir, copy: &ConfinedDir, steps: &[ApplyStep]) -> Vec<u8> {
    let temp = tempfile::tempdir().unwrap();
    let staging = rustix::fs::open(temp.path(), DIRECTORY, Mode::empty()).unwrap();
    let cancel = CancellationToken::new();
    cancel.cancel();
    let mut commit = Commit { target, copy, staging, done: Vec::new(), slots: 0, cancel: &cancel };
    assert!(commit.run(&Order { run: "x", steps }).is_err());
    std::fs::read(temp.path().join(LIST)).unwrap()
}
