//! The runs of this user on this host, a directory each: its record, its working copy, and what that began as.

use std::{
    fs::{self, DirBuilder, File, Permissions},
    io::{self, BufWriter, Read, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use jiff::Timestamp;
use rustix::{
    fs::{FallocateFlags, FlockOperation, OFlags, flock},
    io::Errno,
};
use serde::{Serialize, de::DeserializeOwned};
use uuid::Uuid;

use super::{
    index::{self, Index},
    record::{RunRecord, RunStatus},
};
use crate::failure::Failure;

/// A record is never larger than this.
const RECORD_LIMIT: u64 = 16 << 20;

/// Nor is the index of a working copy.
const INDEX_LIMIT: u64 = 1 << 30;

/// As much of an id must be given.
const PART: usize = 4;

/// What follows the id in the name of a run that is not one yet, and of one that is no longer.
const BEGUN: &str = ".begun";
const REMOVED: &str = ".removed";

/// Longer than it takes to lock a directory that was just made.
const MAKING: Duration = Duration::from_secs(60);

/// Room that a run sets aside for its own end, so that a disk that fills up does not keep its record from being written.
const RESERVE: u64 = 64 << 10;

/// The directory of all runs.
#[derive(Clone, Debug)]
pub(crate) struct RunStore {
    dir: PathBuf,
}

/// A run whose record cannot be used.
#[derive(Clone, Debug)]
pub(crate) struct DamagedRun {
    pub(crate) id: String,
    pub(crate) reason: String,
}

impl RunStore {
    /// The store in this user's directory of state.
    pub(crate) fn open() -> Result<Self, Failure> {
        Self::at(crate::session::state_directory()?.join("runs"))
    }

    /// The same, if there is one.
    pub(crate) fn existing() -> Result<Option<Self>, Failure> {
        match crate::session::state_directory() {
            Ok(directory) if directory.join("runs").exists() => Self::open().map(Some),
            _ => Ok(None),
        }
    }

    /// The store in this directory, which is made if missing. One that others could write to is refused.
    pub(crate) fn at(dir: PathBuf) -> Result<Self, Failure> {
        let failed = |error| {
            let what = format!("cannot keep runs in {}", dir.display());
            Failure::new(what).because(error).next("set XDG_STATE_HOME to a directory of your own")
        };
        DirBuilder::new().recursive(true).mode(0o700).create(&dir).map_err(failed)?;
        let found = fs::symlink_metadata(&dir).map_err(failed)?;
        let own = rustix::process::geteuid().as_raw();
        if !found.is_dir() || found.uid() != own || found.mode() & 0o022 != 0 {
            let reason = "it is a link, belongs to somebody else, or others may write to it";
            return Err(failed(io::Error::other(reason)));
        }
        Ok(Self { dir })
    }

    /// A new run, with a record that says it is running and an empty workspace. It is held until this is dropped.
    pub(crate) fn begin(&self, prompt: &str) -> Result<RunDir, Failure> {
        let id = Uuid::now_v7().to_string();
        // It is no run before it has a record, so that none is without.
        let (begun, path) = (self.dir.join(format!(".{id}{BEGUN}")), self.dir.join(&id));
        let failed = |error| Failure::new(format!("cannot make {}", path.display())).because(error);
        let make = |path: &Path, mode| {
            DirBuilder::new().mode(0o700).create(path)?;
            fs::set_permissions(path, Permissions::from_mode(mode))
        };
        let fill = || {
            // Other users of the host end at the first; other users of the machine begin at the second.
            make(&begun, 0o700).and_then(|()| make(&begun.join("workspace"), 0o755)).map_err(failed)?;
            let hold = File::open(&begun).map_err(failed)?;
            flock(&hold, FlockOperation::NonBlockingLockExclusive).map_err(|error| failed(error.into()))?;
            let mut run = RunDir { hold, id: id.clone(), path: begun.clone() };
            run.set_reserve_aside().map_err(failed)?;
            let now = Timestamp::try_from(SystemTime::now()).unwrap_or(Timestamp::UNIX_EPOCH);
            run.save(&RunRecord::new(&id, prompt, now))?;
            fs::rename(&begun, &path).map_err(failed)?;
            run.path.clone_from(&path);
            Ok(run)
        };
        fill().inspect_err(|_| {
            let _swept_later = fs::remove_dir_all(&begun);
        })
    }

    /// The run with this id, or the only one whose id begins or ends so.
    pub(crate) fn find(&self, given: &str) -> Result<(RunDir, RunRecord), Failure> {
        let id = self.find_id(given)?;
        let run = self.dir_of(&id)?;
        let record = run.record().map_err(|reason| damaged(&DamagedRun { id, reason }))?;
        Ok((run, record))
    }

    /// The id that is meant, even if its record is damaged.
    pub(crate) fn find_id(&self, given: &str) -> Result<String, Failure> {
        let missing = |reason: &str| {
            let failure = Failure::new(format!("run {given:?}: {reason}")).code("run_not_found");
            Err(failure.next("`sandbar runs ls` shows them all"))
        };
        let ids = self.ids()?;
        if ids.iter().any(|id| id == given) {
            return Ok(given.to_owned());
        }
        let part = |id: &&String| given.len() >= PART && (id.starts_with(given) || id.ends_with(given));
        let mut fits = ids.iter().filter(part);
        match (fits.next(), fits.next()) {
            (None, _) if given.len() < PART => missing(&format!("a part of an id has at least {PART} characters")),
            (None, _) => missing("there is none of this id"),
            (Some(one), None) => Ok(one.clone()),
            (Some(_), Some(_)) => missing("several runs fit; give the whole id"),
        }
    }

    /// All runs, newest first, and those whose record is damaged.
    pub(crate) fn list(&self) -> Result<(Vec<RunRecord>, Vec<DamagedRun>), Failure> {
        let (mut sound, mut broken) = (Vec::new(), Vec::new());
        for id in self.ids()? {
            match self.dir_of(&id)?.record() {
                Ok(record) => sound.push(record),
                Err(reason) => broken.push(DamagedRun { id, reason }),
            }
        }
        sound.sort_by(|one, other| (other.created_at, &other.id).cmp(&(one.created_at, &one.id)));
        Ok((sound, broken))
    }

    /// Removes a run and everything in it, unless somebody is at it.
    pub(crate) fn remove(&self, id: &str) -> Result<(), Failure> {
        let run = self.dir_of(id)?;
        let failed = |error| Failure::new(format!("cannot remove the run {id}")).because(error);
        if run.is_held() {
            let failure = Failure::new(format!("the run {id} is still running")).code("run_busy");
            return Err(failure.next("end it first"));
        }
        // Whatever happens from here on, it is no longer a run.
        let doomed = self.dir.join(format!(".{id}{REMOVED}"));
        match fs::rename(&run.path, &doomed) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        super::removal::remove_tree(&doomed).map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => failed(error)
                .next(format!("another user of its machine closed it; as root, remove {}", doomed.display())),
            _ => failed(error),
        })
    }

    /// Removes what is left of runs that were never whole, or are no longer.
    pub(crate) fn sweep(&self) {
        for part in self.parts() {
            let _tried_again_next_time = self.remove_part(&part);
        }
    }

    /// What is left of such runs.
    pub(crate) fn parts(&self) -> Vec<RunPart> {
        let entries = fs::read_dir(&self.dir).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        names.filter_map(|name| RunPart::of(name, &self.dir)).collect()
    }

    /// Removes one of them.
    pub(crate) fn remove_part(&self, part: &RunPart) -> io::Result<()> {
        super::removal::remove_tree(&self.dir.join(&part.name))
    }

    fn ids(&self) -> Result<Vec<String>, Failure> {
        let failed = |error| Failure::new(format!("cannot read {}", self.dir.display())).because(error);
        let mut ids = Vec::new();
        for entry in fs::read_dir(&self.dir).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if let Some(name) = entry.file_name().to_str().filter(|name| is_dir && is_id(name)) {
                ids.push(name.to_owned());
            }
        }
        ids.sort();
        Ok(ids)
    }

    fn dir_of(&self, id: &str) -> Result<RunDir, Failure> {
        let path = self.dir.join(id);
        let failed = |error| Failure::new(format!("cannot read the run {id}")).because(error);
        if !is_id(id) {
            return Err(failed(io::Error::other("this is not an id")));
        }
        Ok(RunDir { hold: File::open(&path).map_err(failed)?, id: id.to_owned(), path })
    }
}

fn damaged(run: &DamagedRun) -> Failure {
    let DamagedRun { id, reason } = run;
    let failure = Failure::new(format!("the record of run {id} is damaged: {reason}")).code("run_damaged");
    failure.next(format!("`sandbar runs rm {id}` removes it"))
}

/// A directory that was to become a run and did not, or was one and is being removed.
#[derive(Clone, Debug)]
pub(crate) struct RunPart {
    pub(crate) name: String,
    /// Why it is no run.
    pub(crate) why: &'static str,
}

impl RunPart {
    fn of(name: String, dir: &Path) -> Option<Self> {
        let rest = name.strip_prefix('.')?;
        if rest.strip_suffix(REMOVED).is_some_and(is_id) {
            return Some(Self { name, why: "its removal was not finished" });
        }
        let is_begun = rest.strip_suffix(BEGUN).is_some_and(is_id) && is_abandoned(&dir.join(&name));
        is_begun.then_some(Self { name, why: "it was never begun" })
    }
}

/// Whether the maker of a run died before it was one. The maker locks it, right after it is there.
fn is_abandoned(path: &Path) -> bool {
    let Ok(directory) = File::open(path) else { return false };
    let age = directory.metadata().and_then(|found| found.modified()).ok().and_then(|at| at.elapsed().ok());
    // The age first: a look takes the lock, which the maker of a young one is about to ask for.
    age.is_some_and(|age| age > MAKING) && flock(&directory, FlockOperation::NonBlockingLockExclusive).is_ok()
}

fn is_id(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
    !text.is_empty() && text.len() <= 64 && text.chars().all(plain)
}

/// The directory of one run.
#[derive(Debug)]
pub(crate) struct RunDir {
    id: String,
    path: PathBuf,
    /// Locked by whoever works on it.
    hold: File,
}

impl RunDir {
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The working copy.
    pub(crate) fn workspace(&self) -> PathBuf {
        self.path.join("workspace")
    }

    pub(crate) fn audit_path(&self) -> PathBuf {
        self.path.join("audit.jsonl")
    }

    pub(crate) fn trace_path(&self) -> PathBuf {
        self.path.join("trace.jsonl")
    }

    /// The contents that files of the working copy had at the beginning, one after the other.
    pub(crate) fn contents_path(&self) -> PathBuf {
        self.path.join("base.data")
    }

    fn index_path(&self) -> PathBuf {
        self.path.join("base.json")
    }

    /// Whether somebody works on it now.
    pub(crate) fn is_held(&self) -> bool {
        // Through another opening of it: a lock of one's own counts too, and is not lost.
        let probe = File::open(&self.path);
        probe.is_ok_and(|probe| flock(&probe, FlockOperation::NonBlockingLockExclusive).is_err())
    }

    /// Begins to work on it, until this is dropped; fails if somebody else does.
    pub(crate) fn seize(&self) -> bool {
        flock(&self.hold, FlockOperation::NonBlockingLockExclusive).is_ok()
    }

    /// Writes the record, in one step. On a full disk the reserve is spent on it, and if that is not enough either, its
    /// texts are left out.
    pub(crate) fn save(&self, record: &RunRecord) -> Result<(), Failure> {
        let record = record.clone().bounded();
        let Err(full) = self.write("record.json", &record) else {
            if record.status != RunStatus::Running {
                let _none_there = fs::remove_file(self.reserve_path());
            }
            return Ok(());
        };
        if fs::remove_file(self.reserve_path()).is_err() {
            return Err(full);
        }
        self.write("record.json", &record).or_else(|_full| self.write("record.json", &record.without_texts()))
    }

    fn set_reserve_aside(&self) -> io::Result<()> {
        let file = File::options().write(true).create_new(true).mode(0o600).open(self.reserve_path())?;
        match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, RESERVE) {
            // The file system cannot: then there is none.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => fs::remove_file(self.reserve_path()),
            other => Ok(other?),
        }
    }

    fn reserve_path(&self) -> PathBuf {
        self.path.join("reserve")
    }

    /// Writes down the run itself, as it can be taken up again, in one step.
    pub(crate) fn save_state(&self, text: &str) -> Result<(), Failure> {
        self.replace("state.json", |file| file.write_all(text.as_bytes()))
    }

    /// What is known of it, or what is wrong with that.
    pub(crate) fn record(&self) -> Result<RunRecord, String> {
        let record: RunRecord =
            read(&self.path.join("record.json"), RECORD_LIMIT).map_err(|error| error.to_string())?;
        let mut record = record.check(&self.id)?;
        if record.status == RunStatus::Running && !self.is_held() {
            record.status = RunStatus::Lost;
        }
        Ok(record)
    }

    pub(super) fn save_index(&self, index: &Index) -> Result<(), Failure> {
        self.write("base.json", index)
    }

    /// What the working copy began as; nothing if there is none.
    pub(super) fn index(&self) -> Result<Option<Index>, Failure> {
        let path = self.index_path();
        let failed = |error| Failure::new(format!("cannot read {}", path.display())).because(error);
        match read::<Index>(&path, INDEX_LIMIT) {
            Ok(index) if index.entries.keys().any(|name| !name.is_plain()) => {
                Err(failed(io::Error::other("it names something outside of the copy")))
            }
            Ok(index) if index.version == index::VERSION => Ok(Some(index)),
            Ok(index) => Err(failed(io::Error::other(format!("it is of version {}", index.version)))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }

    fn write(&self, name: &str, document: &impl Serialize) -> Result<(), Failure> {
        self.replace(name, |file| {
            serde_json::to_writer(&mut *file, document)?;
            file.write_all(b"\n")
        })
    }

    /// Writes a file beside its place, and puts it there once it is whole.
    fn replace(&self, name: &str, fill: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> Result<(), Failure> {
        let temporary = self.path.join(format!(".{name}.{}", Uuid::now_v7().simple()));
        let written = File::options().write(true).create_new(true).mode(0o600).open(&temporary).and_then(|file| {
            let mut file = BufWriter::new(file);
            fill(&mut file)?;
            file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
            fs::rename(&temporary, self.path.join(name))
        });
        written.map_err(|error| {
            let _was_never_made = fs::remove_file(&temporary);
            Failure::new(format!("cannot write {}", self.path.join(name).display())).because(error)
        })
    }
}

fn read<T: DeserializeOwned>(path: &Path, limit: u64) -> io::Result<T> {
    // Whatever else may have been put there is neither followed nor waited for.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = File::options().read(true).custom_flags(flags.bits().cast_signed()).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut text = Vec::new();
    file.take(limit + 1).read_to_end(&mut text)?;
    if text.len() as u64 > limit {
        return Err(io::Error::other("it is too large"));
    }
    if text.is_empty() {
        return Err(io::Error::other("it is empty"));
    }
    Ok(serde_json::from_slice(&text)?)
}

/// How long ago a run was made.
pub(super) fn age(record: &RunRecord) -> Duration {
    let made = Duration::from_secs(record.created_at.as_second().max(0).unsigned_abs());
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().saturating_sub(made)
}
