//! The steps of a plan being done: everything is made ready beside its place first, and all is taken back if one fails.

use std::{
    collections::BTreeMap,
    fmt,
    fs::File,
    io::{self, BufWriter, Write},
    os::fd::OwnedFd,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
};

use rustix::{
    fs::{AtFlags, Dir, FlockOperation, Gid, Mode, OFlags, RenameFlags, Uid, flock},
    io::Errno,
};
use serde_json::json;
use uuid::Uuid;

use super::{
    plan::{Present, Step},
    undo::{self, Done},
};
use crate::{
    failure::without_number,
    runs::{
        beneath::{Beneath, DIRECTORY, as_path, name_of, parent_of, stat_in},
        copy::stream,
        index::{Entry, Name},
        removal::remove_at,
        show::lossy,
        unified::quoted,
    },
};

/// How the directory is called where new things wait and old ones are kept, and in it the list of them.
const STAGING: &str = ".sandbar-apply-";
pub(super) const LIST: &str = "moved.json";

/// A file in it that says whose changes were being applied.
const RUN: &str = "run";

/// An id is never longer.
const ID_LIMIT: usize = 64;

/// As many files are brought to the disk one by one; more of them by telling the system to bring everything there.
const FLUSHED: usize = 500;

/// So many of those that were left are named.
const LEFT: usize = 10;

/// Why a plan was not carried out.
#[derive(Debug)]
pub(super) struct Broken {
    path: Name,
    reason: String,
    /// What could not be taken back, and where the old things are.
    left: Option<(Vec<Name>, String)>,
}

impl Broken {
    /// Whether everything is as it was.
    pub(super) fn is_undone(&self) -> bool {
        self.left.is_none()
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", quoted("", &self.path), self.reason)?;
        let Some((names, staging)) = &self.left else { return Ok(()) };
        let names = names.iter().map(|name| quoted("", name)).collect::<Vec<_>>().join(", ");
        write!(f, "; these could not be put back: {names}; what was there is in {staging}")
    }
}

/// What was left in a directory by something that was killed while it applied changes there.
pub(super) fn left_behind(target: &Beneath) -> Vec<Name> {
    let is_idle = |name: &[u8]| {
        let opened = rustix::fs::openat(target.root(), name, DIRECTORY, Mode::empty());
        opened.is_ok_and(|dir| flock(&dir, FlockOperation::NonBlockingLockExclusive).is_ok())
    };
    let Ok(entries) = Dir::read_from(target.root()) else { return Vec::new() };
    let names = entries.flatten().map(|entry| entry.file_name().to_bytes().to_vec());
    names.filter(|name| name.starts_with(STAGING.as_bytes()) && is_idle(name)).take(LEFT).map(Name).collect()
}

/// Removes what applies of this run left there that were killed, now that everything of it is in its place.
pub(super) fn remove_left(target: &Beneath, left: &mut Vec<Name>, run: &str) {
    left.retain(|name| {
        let is_own = owner(target, name).is_some_and(|owner| owner == run.as_bytes());
        !(is_own && remove_at(target.root(), as_path(&name.0)).is_ok())
    });
}

/// The run whose changes were being applied.
fn owner(target: &Beneath, staging: &Name) -> Option<Vec<u8>> {
    let dir = rustix::fs::openat(target.root(), staging.0.as_slice(), DIRECTORY, Mode::empty()).ok()?;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::openat(&dir, RUN, flags, Mode::empty()).ok()?;
    let mut id = vec![0; ID_LIMIT];
    let count = rustix::io::read(&file, &mut id[..]).ok()?;
    id.truncate(count);
    Some(id)
}

/// What is applied: the steps, and the run they are of.
pub(super) struct Order<'a> {
    pub(super) run: &'a str,
    pub(super) steps: &'a [Step],
}

/// Does all of it, or nothing.
pub(super) fn all(target: &Beneath, copy: &Beneath, order: &Order<'_>, cancelled: &AtomicBool) -> Result<(), Broken> {
    let name = format!("{STAGING}{}", Uuid::now_v7().simple());
    let broken = |error: Errno| Broken { path: Name(name.clone().into()), reason: plain(error.into()), left: None };
    rustix::fs::mkdirat(target.root(), name.as_str(), Mode::RWXU).map_err(broken)?;
    let opened = rustix::fs::openat(target.root(), name.as_str(), DIRECTORY, Mode::empty());
    let staging = opened.map_err(broken)?;
    // As long as this is held, it is not something that was left.
    let _tells_the_next_one = flock(&staging, FlockOperation::NonBlockingLockExclusive);
    let mut commit = Commit { target, copy, staging, done: Vec::new(), slots: 0, cancelled };
    let ended = commit.run(order);
    let left = if ended.is_err() { undo::all(&commit.done, target, &commit.staging) } else { Vec::new() };
    if left.is_empty() {
        if let Err(error) = remove_at(target.root(), Path::new(&name)) {
            tracing::warn!(%error, name, "something is left beside the files");
        }
        return ended.map_err(|(path, reason)| Broken { path, reason, left: None });
    }
    ended.map_err(|(path, reason)| Broken { path, reason, left: Some((left, name)) })
}

fn given_up() -> io::Error {
    io::Error::other("it was given up")
}

fn plain(error: io::Error) -> String {
    without_number(&error.to_string())
}

struct Commit<'a> {
    target: &'a Beneath,
    copy: &'a Beneath,
    /// A directory in the target where new things wait and old ones are kept.
    staging: OwnedFd,
    done: Vec<Done>,
    slots: usize,
    /// Once true, everything is taken back.
    cancelled: &'a AtomicBool,
}

impl Commit<'_> {
    fn run(&mut self, order: &Order<'_>) -> Result<(), (Name, String)> {
        let steps = order.steps;
        self.sign(order.run).map_err(|error| (Name(RUN.into()), plain(error)))?;
        let slots: Vec<Option<String>> = steps.iter().map(|step| step.is_told().then(|| self.slot())).collect();
        self.list(steps, &slots).map_err(|error| (Name(LIST.into()), plain(error)))?;
        for (step, slot) in steps.iter().zip(&slots) {
            if let (Step::Put { path, entry, present }, Some(slot)) = (step, slot) {
                self.stage((path, slot), entry, *present).map_err(|error| (path.clone(), plain(error)))?;
            }
        }
        // A power cut must find the old contents or the new ones: the new are on the disk before they take their places, and
        // the places before the old are removed.
        self.flush_staged(&slots).map_err(|error| (Name(LIST.into()), plain(error)))?;
        for (step, slot) in steps.iter().zip(slots) {
            self.step(step, slot).map_err(|error| (step.path().clone(), plain(error)))?;
        }
        self.flush_places(steps).map_err(|error| (Name(LIST.into()), plain(error)))
    }

    /// Writes down whose changes these are.
    fn sign(&self, run: &str) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.staging, RUN, flags, Mode::RUSR | Mode::WUSR)?;
        File::from(file).write_all(run.as_bytes())
    }

    fn flush_staged(&self, slots: &[Option<String>]) -> io::Result<()> {
        if slots.len() > FLUSHED {
            rustix::fs::sync();
            return Ok(());
        }
        for slot in slots.iter().flatten() {
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            match rustix::fs::openat(&self.staging, slot.as_str(), flags, Mode::empty()) {
                Ok(file) => rustix::fs::fsync(&file)?,
                // A link, something to be removed, or a file that its owner may not read.
                Err(Errno::LOOP | Errno::NOENT | Errno::ACCESS) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(rustix::fs::fsync(&self.staging)?)
    }

    fn flush_places(&self, steps: &[Step]) -> io::Result<()> {
        if steps.len() > FLUSHED {
            rustix::fs::sync();
            return Ok(());
        }
        let parents: BTreeMap<&[u8], &Name> =
            steps.iter().map(|step| (parent_of(&step.path().0).unwrap_or_default(), step.path())).collect();
        for path in parents.into_values() {
            // One that was removed needs none.
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

    /// Writes down whose each slot is, for somebody who finds them after this was killed.
    fn list(&self, steps: &[Step], slots: &[Option<String>]) -> io::Result<()> {
        let slots = steps.iter().zip(slots).filter_map(|(step, slot)| {
            let (slot, path) = (slot.as_ref()?, lossy(step.path()));
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

    /// Makes something ready. What it replaces lends it its permissions and its owner.
    fn stage(&self, (path, slot): (&Name, &str), entry: &Entry, present: Option<Present>) -> io::Result<()> {
        let mode = match entry {
            Entry::Dir { .. } => return Ok(()),
            Entry::Link { to } => return Ok(rustix::fs::symlinkat(to.0.as_slice(), &self.staging, slot)?),
            Entry::File { mode, .. } => *mode,
        };
        let is_program = mode & 0o100 != 0;
        // What else is in the caller's mask is taken away by the kernel.
        let fresh = Mode::from_raw_mode(if is_program { 0o777 } else { 0o666 });
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::openat(&self.staging, slot, flags, fresh)?);
        let (source, stat) = self.copy.file(&path.0)?;
        let copied =
            stream::copy((&source, stat.st_size.unsigned_abs()), &file, &mut vec![0; 256 << 10], self.cancelled)?;
        copied.ok_or_else(given_up)?;
        if let Some(present) = present {
            let (uid, gid) = (Uid::from_raw(present.owner.0), Gid::from_raw(present.owner.1));
            let _only_root_may = rustix::fs::fchown(&file, Some(uid), Some(gid));
            let readers = (present.mode & 0o444) >> 2;
            let mode = if is_program { present.mode | readers } else { present.mode & !0o111 };
            rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))?;
        }
        Ok(())
    }

    fn step(&mut self, step: &Step, slot: Option<String>) -> io::Result<()> {
        if self.cancelled.load(Ordering::Relaxed) {
            return Err(given_up());
        }
        match (step, slot) {
            (Step::Remove { path, present }, Some(slot)) => self.move_out(path, slot, *present),
            (Step::RemoveDir { path, is_needed }, _) => self.remove_dir(path, *is_needed),
            (Step::MakeDir { path }, _) => self.make_dirs(&path.0),
            (Step::Put { path, present: Some(present), .. }, Some(slot)) => self.exchange(path, slot, *present),
            (Step::Put { path, present: None, .. }, Some(slot)) => self.put(path, &slot),
            (Step::Remove { .. } | Step::Put { .. }, None) => Err(io::Error::other("it was not made ready")),
        }
    }

    fn move_out(&mut self, path: &Name, slot: String, present: Present) -> io::Result<()> {
        let parent = self.target.parent(&path.0)?;
        rustix::fs::renameat_with(&parent, name_of(&path.0), &self.staging, slot.as_str(), RenameFlags::NOREPLACE)?;
        self.done.push(Done::MovedOut(path.clone(), slot.clone()));
        self.is_still(&slot, present)
    }

    /// What was taken away must be what was looked at; otherwise somebody changed it just now.
    fn is_still(&self, slot: &str, present: Present) -> io::Result<()> {
        let stat = stat_in(&self.staging, slot.as_bytes())?;
        match Present::from(&stat).identity == present.identity {
            true => Ok(()),
            false => Err(io::Error::other("it changed while changes were being applied")),
        }
    }

    fn exchange(&mut self, path: &Name, slot: String, present: Present) -> io::Result<()> {
        let parent = self.target.parent(&path.0)?;
        let flags = RenameFlags::EXCHANGE;
        match rustix::fs::renameat_with(&self.staging, slot.as_str(), &parent, name_of(&path.0), flags) {
            // Not every file system can.
            Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
                self.move_out(path, format!("{slot}-old"), present)?;
                return self.put(path, &slot);
            }
            exchanged => exchanged?,
        }
        self.done.push(Done::Exchanged(path.clone(), slot.clone()));
        self.is_still(&slot, present)
    }

    fn put(&mut self, path: &Name, slot: &str) -> io::Result<()> {
        if let Some(parent) = parent_of(&path.0) {
            self.make_dirs(parent)?;
        }
        let parent = self.target.parent(&path.0)?;
        rustix::fs::renameat_with(&self.staging, slot, &parent, name_of(&path.0), RenameFlags::NOREPLACE)?;
        self.done.push(Done::Put(path.clone()));
        Ok(())
    }

    /// Makes a directory, and those above it that are missing.
    fn make_dirs(&mut self, path: &[u8]) -> io::Result<()> {
        if self.target.stat(path)?.is_some() {
            return Ok(());
        }
        if let Some(above) = parent_of(path) {
            self.make_dirs(above)?;
        }
        rustix::fs::mkdirat(self.target.parent(path)?, name_of(path), Mode::from_raw_mode(0o777))?;
        self.done.push(Done::MadeDir(Name(path.to_vec())));
        Ok(())
    }

    fn remove_dir(&mut self, path: &Name, is_needed: bool) -> io::Result<()> {
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

/// The list of slots, of a commit that goes no further.
#[cfg(test)]
pub(super) fn listed(target: &Beneath, copy: &Beneath, steps: &[Step]) -> Vec<u8> {
    let temp = tempfile::tempdir().unwrap();
    let staging = rustix::fs::open(temp.path(), DIRECTORY, Mode::empty()).unwrap();
    let mut commit = Commit { target, copy, staging, done: Vec::new(), slots: 0, cancelled: &AtomicBool::new(true) };
    assert!(commit.run(&Order { run: "x", steps }).is_err());
    std::fs::read(temp.path().join(LIST)).unwrap()
}
