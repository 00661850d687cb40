//! The runs of one user on this host: one directory per run, with its record, its working copy and its index.

use std::{
    fs::{self, DirBuilder, File, Permissions},
    io::{self, BufWriter, Read, Write},
    os::unix::{
        ffi::OsStrExt as _,
        fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    },
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, SystemTime},
};

use jiff::Timestamp;
use rustix::{
    fs::{FallocateFlags, FlockOperation, OFlags, flock},
    io::Errno,
};
use sandbar::{SandboxSession, SessionOptions};
use sandbar_host_files::remove_tree;
use serde::{Serialize, de::DeserializeOwned};
use uuid::Uuid;

use crate::{
    Error, ErrorKind, Result, StateDir,
    error::other,
    index::{self, Index, PathBytes},
    record::{RunRecord, RunStatus},
    writable_parent,
};

/// Largest `record.json`.
const RECORD_LIMIT: u64 = 16 << 20;

/// Largest `base.json`.
const INDEX_LIMIT: u64 = 1 << 30;

/// Shortest part of an id that [`RunStore::find`] accepts.
const PART: usize = 4;

/// Suffixes of directories that are being created, and that are being removed.
const BEGUN: &str = ".begun";
const REMOVED: &str = ".removed";

/// Longer than the time between creating and locking a directory.
const CREATION: Duration = Duration::from_secs(60);

/// Disk space that a run reserves for its last record, in case the disk fills up.
const RESERVE: u64 = 64 << 10;

/// The directory of all runs.
#[derive(Clone, Debug)]
pub struct RunStore {
    dir: PathBuf,
}

/// A run whose record cannot be read.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DamagedRun {
    /// Id of the run.
    pub id: String,
    /// Why the record cannot be read.
    pub reason: String,
}

impl RunStore {
    /// The store in a directory, which is created if it is missing. A directory that other users can write to is refused.
    pub fn at(dir: impl Into<PathBuf>) -> Result<Self> {
        let dir = dir.into();
        let failed = |error| {
            let message = format!("cannot keep runs in {}", dir.display());
            Error::new(ErrorKind::StateDir, message)
                .because(error)
                .with_advice("set XDG_STATE_HOME to a directory of your own")
        };
        DirBuilder::new().recursive(true).mode(0o700).create(&dir).map_err(failed)?;
        let found = fs::symlink_metadata(&dir).map_err(failed)?;
        let own = rustix::process::geteuid().as_raw();
        if !found.is_dir() || found.uid() != own || found.mode() & 0o022 != 0 {
            return Err(failed(other("it is a link, belongs to another user, or other users may write to it")));
        }
        Ok(Self { dir })
    }

    /// The store of a state directory, which is created if it is missing.
    pub fn open(state: &StateDir) -> Result<Self> {
        Self::at(state.runs())
    }

    /// The store of a state directory; `None` if there was never a run.
    pub fn existing(state: &StateDir) -> Result<Option<Self>> {
        if state.runs().exists() { Self::open(state).map(Some) } else { Ok(None) }
    }

    /// Creates a run with an empty workspace. The run is locked until the value is dropped.
    pub fn begin(&self, prompt: &str) -> Result<RunDir> {
        let id = Uuid::now_v7().to_string();
        // The directory gets its final name once it has a record.
        let (begun, path) = (self.dir.join(format!(".{id}{BEGUN}")), self.dir.join(&id));
        let failed = |error: io::Error| Error::io(format!("cannot create {}", path.display()), error);
        let make = |path: &Path, mode| {
            DirBuilder::new().mode(0o700).create(path)?;
            fs::set_permissions(path, Permissions::from_mode(mode))
        };
        let fill = || {
            // Other users of the host cannot enter the first; other users of the machine need the second.
            make(&begun, 0o700).and_then(|()| make(&begun.join("workspace"), 0o755)).map_err(failed)?;
            let hold = File::open(&begun).map_err(failed)?;
            flock(&hold, FlockOperation::NonBlockingLockExclusive).map_err(|error| failed(error.into()))?;
            let mut run = RunDir {
                hold,
                id: id.clone(),
                path: begun.clone(),
                is_creator: true,
                is_locked: AtomicBool::new(true),
            };
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

    /// The run with this id, or the only one whose id starts or ends with it.
    pub fn find(&self, given: &str) -> Result<(RunDir, RunRecord)> {
        let id = self.find_id(given)?;
        let run = self.dir_of(&id)?;
        let record = run.record().map_err(|reason| damaged(&id, &reason))?;
        Ok((run, record))
    }

    /// The id of such a run, even if its record is damaged.
    pub fn find_id(&self, given: &str) -> Result<String> {
        let missing = |reason: &str| Err(Error::new(ErrorKind::RunNotFound, format!("run {given:?}: {reason}")));
        let ids = self.ids()?;
        if ids.iter().any(|id| id == given) {
            return Ok(given.to_owned());
        }
        let part = |id: &&String| given.len() >= PART && (id.starts_with(given) || id.ends_with(given));
        let mut fits = ids.iter().filter(part);
        match (fits.next(), fits.next()) {
            (None, _) if given.len() < PART => missing(&format!("a part of an id has at least {PART} characters")),
            (None, _) => missing("there is no run with this id"),
            (Some(one), None) => Ok(one.clone()),
            (Some(_), Some(_)) => missing("several runs match; give the whole id"),
        }
    }

    /// All runs, newest first, and the runs whose record is damaged.
    pub fn list(&self) -> Result<(Vec<RunRecord>, Vec<DamagedRun>)> {
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

    /// Removes a run and everything in it, unless a process works on it.
    pub fn remove(&self, id: &str) -> Result<()> {
        let run = self.dir_of(id)?;
        let failed = |error: io::Error| Error::io(format!("cannot remove the run {id}"), error).about(id);
        if run.is_held() {
            return Err(busy(id).with_advice("end it first"));
        }
        // From here on, an interrupted removal leaves a remnant and no run.
        let doomed = self.dir.join(format!(".{id}{REMOVED}"));
        match fs::rename(&run.path, &doomed) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        remove_tree(&doomed).map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => failed(error).with_advice(format!(
                "another user of its machine owns a part of it; as root, remove {}",
                doomed.display()
            )),
            _ => failed(error),
        })
    }

    /// Removes the remnants of interrupted creations and removals.
    pub fn sweep(&self) {
        for remnant in self.remnants() {
            let _tried_again_next_time = self.remove_remnant(&remnant);
        }
    }

    /// The remnants of interrupted creations and removals.
    pub fn remnants(&self) -> Vec<RunRemnant> {
        let entries = fs::read_dir(&self.dir).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        names.filter_map(|name| RunRemnant::of(name, &self.dir)).collect()
    }

    /// Removes a remnant.
    pub fn remove_remnant(&self, remnant: &RunRemnant) -> io::Result<()> {
        remove_tree(&self.dir.join(&remnant.name))
    }

    fn ids(&self) -> Result<Vec<String>> {
        let failed = |error: io::Error| Error::io(format!("cannot read {}", self.dir.display()), error);
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

    fn dir_of(&self, id: &str) -> Result<RunDir> {
        let path = self.dir.join(id);
        let failed = |error: io::Error| Error::io(format!("cannot read the run {id}"), error).about(id);
        if !is_id(id) {
            return Err(failed(other("this is not an id")));
        }
        Ok(RunDir {
            hold: File::open(&path).map_err(failed)?,
            id: id.to_owned(),
            path,
            is_creator: false,
            is_locked: AtomicBool::new(false),
        })
    }
}

pub(crate) fn damaged(id: &str, reason: &str) -> Error {
    Error::new(ErrorKind::RunDamaged, format!("the record of run {id} is damaged: {reason}")).about(id)
}

pub(crate) fn busy(id: &str) -> Error {
    Error::new(ErrorKind::RunBusy, format!("the run {id} is still running")).about(id)
}

/// A directory that an interrupted creation or removal of a run left.
#[derive(Clone, Debug)]
pub struct RunRemnant {
    name: String,
    why: &'static str,
}

impl RunRemnant {
    /// Name of the directory.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What was interrupted.
    pub fn why(&self) -> &'static str {
        self.why
    }

    fn of(name: String, dir: &Path) -> Option<Self> {
        let rest = name.strip_prefix('.')?;
        if rest.strip_suffix(REMOVED).is_some_and(is_id) {
            return Some(Self { name, why: "its removal was not finished" });
        }
        let is_begun = rest.strip_suffix(BEGUN).is_some_and(is_id) && is_abandoned(&dir.join(&name));
        is_begun.then_some(Self { name, why: "it was never begun" })
    }
}

/// Whether the process that created the directory died. It locks the directory right after creating it.
fn is_abandoned(path: &Path) -> bool {
    let Ok(directory) = File::open(path) else { return false };
    let age = directory.metadata().and_then(|found| found.modified()).ok().and_then(|at| at.elapsed().ok());
    // Age first: the test takes the lock that the creator of a new directory is about to take.
    age.is_some_and(|age| age > CREATION) && flock(&directory, FlockOperation::NonBlockingLockExclusive).is_ok()
}

fn is_id(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
    !text.is_empty() && text.len() <= 64 && text.chars().all(plain)
}

/// The directory of one run.
#[derive(Debug)]
pub struct RunDir {
    id: String,
    path: PathBuf,
    /// Locked by the process that works on the run.
    hold: File,
    /// Whether this value created the run, and works on it.
    is_creator: bool,
    /// Whether this value locked a run that another process created.
    is_locked: AtomicBool,
}

impl RunDir {
    /// Refuses a sandbox that could change the records of this run.
    pub fn check_sandbox(&self, options: &SessionOptions) -> Result<()> {
        let Some(place) = writable_parent(&self.audit_path(), options) else { return Ok(()) };
        Err(Error::new(ErrorKind::StateDir, format!("cannot let an agent change {}", place.display()))
            .because("the records of its runs are there")
            .with_advice("set XDG_STATE_HOME to a directory outside of it"))
    }

    /// Adds the session that this run works in, and the directory that was copied, to the record.
    pub fn save_session(&self, session: &SandboxSession, source: Option<&Path>) -> Result<RunRecord> {
        let mut record = self.record().map_err(|reason| {
            Error::new(ErrorKind::RunDamaged, format!("cannot read the run; {reason}")).about(self.id())
        })?;
        record.session_id = Some(session.id().to_owned());
        if let Some(source) = source {
            record.source = Some(PathBytes(source.as_os_str().as_bytes().to_vec()));
        }
        self.save(&record)?;
        Ok(record)
    }

    /// Id of the run.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Path of the working copy.
    pub fn workspace(&self) -> PathBuf {
        self.path.join("workspace")
    }

    /// Path of the audit log.
    pub fn audit_path(&self) -> PathBuf {
        self.path.join("audit.jsonl")
    }

    /// Path of the trace.
    pub fn trace_path(&self) -> PathBuf {
        self.path.join("trace.jsonl")
    }

    /// Path of the text files as they were copied, concatenated.
    pub(crate) fn contents_path(&self) -> PathBuf {
        self.path.join("base.data")
    }

    fn index_path(&self) -> PathBuf {
        self.path.join("base.json")
    }

    /// Whether a process works on the run.
    pub fn is_held(&self) -> bool {
        // Another open file description: a lock held by this value counts too, and is not released.
        let probe = File::open(&self.path);
        probe.is_ok_and(|probe| flock(&probe, FlockOperation::NonBlockingLockExclusive).is_err())
    }

    /// Locks the run until the value is dropped. Returns false if another process works on it.
    #[must_use]
    pub fn lock(&self) -> bool {
        let is_locked = flock(&self.hold, FlockOperation::NonBlockingLockExclusive).is_ok();
        self.is_locked.fetch_or(is_locked, Ordering::Relaxed);
        is_locked
    }

    /// Whether the process that created the run ended without saving how the run ended.
    fn is_abandoned(&self) -> bool {
        !self.is_creator && (self.is_locked.load(Ordering::Relaxed) || !self.is_held())
    }

    /// The open directory with its lock, for a value that outlives this one.
    pub(crate) fn share_lock(&self) -> io::Result<File> {
        self.hold.try_clone()
    }

    /// Replaces the record. On a full disk the reserved space is used, and if that is not enough, long texts are dropped.
    pub fn save(&self, record: &RunRecord) -> Result<()> {
        let mut record = record.clone().bounded();
        // `Killed` is derived, and not a status that is stored.
        if record.status == RunStatus::Killed {
            record.status = RunStatus::Running;
        }
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
            // The file system cannot reserve space.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => fs::remove_file(self.reserve_path()),
            other => Ok(other?),
        }
    }

    fn reserve_path(&self) -> PathBuf {
        self.path.join("reserve")
    }

    /// Replaces the saved run state.
    pub fn save_state(&self, text: &str) -> Result<()> {
        self.replace("state.json", |file| file.write_all(text.as_bytes()))
    }

    /// The record, or why it cannot be read.
    pub fn record(&self) -> Result<RunRecord, String> {
        let record: RunRecord =
            read(&self.path.join("record.json"), RECORD_LIMIT).map_err(|error| error.to_string())?;
        let mut record = record.check(&self.id)?;
        if record.status == RunStatus::Running && self.is_abandoned() {
            record.status = RunStatus::Killed;
        }
        Ok(record)
    }

    pub(crate) fn save_index(&self, index: &Index) -> Result<()> {
        self.write("base.json", index)
    }

    /// The index of the working copy; `None` if the run has no working copy.
    pub(crate) fn index(&self) -> Result<Option<Index>> {
        let path = self.index_path();
        let failed = |error: io::Error| Error::io(format!("cannot read {}", path.display()), error).about(&self.id);
        match read::<Index>(&path, INDEX_LIMIT) {
            Ok(index) if index.entries.keys().any(|name| !name.is_plain()) => {
                Err(failed(other("it names a path outside of the copy")))
            }
            Ok(index) if index.version == index::VERSION => Ok(Some(index)),
            Ok(index) => Err(failed(other(format!("it has version {}", index.version)))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }

    fn write(&self, name: &str, document: &impl Serialize) -> Result<()> {
        self.replace(name, |file| {
            serde_json::to_writer(&mut *file, document)?;
            file.write_all(b"\n")
        })
    }

    /// Writes a temporary file and renames it.
    fn replace(&self, name: &str, fill: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> Result<()> {
        let temporary = self.path.join(format!(".{name}.{}", Uuid::now_v7().simple()));
        let written = File::options().write(true).create_new(true).mode(0o600).open(&temporary).and_then(|file| {
            let mut file = BufWriter::new(file);
            fill(&mut file)?;
            file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
            fs::rename(&temporary, self.path.join(name))
        });
        written.map_err(|error| {
            let _was_never_made = fs::remove_file(&temporary);
            Error::io(format!("cannot write {}", self.path.join(name).display()), error).about(&self.id)
        })
    }
}

fn read<T: DeserializeOwned>(path: &Path, limit: u64) -> io::Result<T> {
    // A link is not followed, and a pipe does not block.
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
