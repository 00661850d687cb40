//! The record of a patch while it is applied to a directory of the host: whatever interrupts it, the next one takes it back.
//!
//! It lies outside of the directory, where nothing that runs in a sandbox can write: what it says is believed.

use std::{
    fmt,
    fs::{self, File},
    io::{self, Read as _, Write as _},
    os::{
        fd::OwnedFd,
        unix::{
            ffi::OsStrExt as _,
            fs::{MetadataExt as _, OpenOptionsExt as _},
        },
    },
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use rustix::{
    fs::{FlockOperation, Mode, OFlags, ResolveFlags},
    io::Errno,
};
use sandbar_machine::BoxError;
use sha2::{Digest as _, Sha256};

use super::record::Record;
use crate::{Result, SandboxError, session::private_directory};

/// How long another patch to the same directory is waited for.
const PATIENCE: Duration = Duration::from_secs(30);

/// How often a file that is locked is looked at again.
const PAUSE: Duration = Duration::from_millis(20);

/// How many files are flushed one by one; more are flushed with everything else on their file system.
const ONE_BY_ONE: usize = 64;

type Probe = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// Where the patch that is being applied to one directory of the host is recorded, so that one that was interrupted (by
/// `kill -9` or a power cut) is taken back by the next. Cheap to clone.
#[derive(Clone)]
pub struct PatchJournal {
    dir: PathBuf,
    workspace: PathBuf,
    key: String,
    lives: Option<Probe>,
}

impl PatchJournal {
    /// The journal of a directory, in another one that only this user can write to, and that no sandbox may; it is made if
    /// missing.
    ///
    /// # Errors
    /// `session_store_error` when the journal's directory cannot be used, or the other one is not there.
    pub fn open(dir: impl Into<PathBuf>, workspace: &Path) -> Result<Self> {
        let dir = dir.into();
        private_directory(&dir)?;
        let failed = |cause: io::Error| {
            let place = workspace.display().to_string();
            SandboxError::session_store_error(place, "the directory cannot be used").because(cause)
        };
        let workspace = fs::canonicalize(workspace).map_err(failed)?;
        // By its path, which is the same after a restart; the number of its device need not be.
        let digest = Sha256::digest(workspace.as_os_str().as_bytes());
        let key = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        Ok(Self { dir, workspace, key, lives: None })
    }

    /// Asks this whether a machine still lives, by the id in its handle: what an interrupted patch asked of it may still happen
    /// until it does not.
    #[must_use]
    pub fn probing(mut self, lives: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        self.lives = Some(Arc::new(lives));
        self
    }

    pub(super) fn lives(&self, machine: &str) -> bool {
        self.lives.as_ref().is_some_and(|lives| lives(machine))
    }

    fn place(&self, ending: &str) -> PathBuf {
        self.dir.join(format!("{}.{ending}", self.key))
    }

    fn failed(&self, ending: &str, cause: impl Into<BoxError>) -> SandboxError {
        SandboxError::apply_patch_write_error(self.place(ending).display().to_string(), true).because(cause)
    }

    /// Waits until no other patch is applied to the directory.
    pub(super) async fn lock(&self) -> Result<JournalLock> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.try_lock().map_err(|cause| self.failed("lock", cause))? {
                Some(file) => return Ok(JournalLock { journal: self.clone(), _file: file }),
                None if Instant::now() < deadline => tokio::time::sleep(PAUSE).await,
                None => {
                    let cause = io::Error::other("another patch is being applied to the same directory");
                    return Err(SandboxError::apply_patch_write_error(self.workspace.display().to_string(), true)
                        .because(cause));
                }
            }
        }
    }

    fn try_lock(&self) -> io::Result<Option<File>> {
        let place = self.place("lock");
        let file = File::options().write(true).create(true).truncate(false).mode(0o600).open(&place)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        // The holder before may have removed it after it was opened here.
        let is_same = fs::metadata(&place).is_ok_and(|found| file.metadata().is_ok_and(|own| own.ino() == found.ino()));
        Ok(is_same.then_some(file))
    }
}

impl fmt::Debug for PatchJournal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PatchJournal")
            .field("dir", &self.dir)
            .field("workspace", &self.workspace)
            .finish_non_exhaustive()
    }
}

impl PartialEq for PatchJournal {
    fn eq(&self, other: &Self) -> bool {
        (&self.dir, &self.key) == (&other.dir, &other.key)
    }
}

impl Eq for PatchJournal {}

/// The only right to patch the directory. It ends with the process that holds it, however that ends.
#[derive(Debug)]
pub(super) struct JournalLock {
    journal: PatchJournal,
    _file: File,
}

impl Drop for JournalLock {
    fn drop(&mut self) {
        let _stays_behind = fs::remove_file(self.journal.place("lock"));
    }
}

impl JournalLock {
    pub(super) fn journal(&self) -> &PatchJournal {
        &self.journal
    }

    /// The directory's number.
    pub(super) fn inode(&self) -> Result<u64> {
        let found = fs::symlink_metadata(&self.journal.workspace);
        found.map(|found| found.ino()).map_err(|cause| self.journal.failed("journal", cause))
    }

    /// What an interrupted patch left.
    ///
    /// # Errors
    /// `apply_patch_write_error` when it cannot be read; nothing is patched until it is gone.
    pub(super) async fn read(&self) -> Result<Option<Record>> {
        let place = self.journal.place("journal");
        let read = blocking(move || {
            let mut bytes = Vec::new();
            match File::open(&place) {
                Ok(mut file) => file.read_to_end(&mut bytes)?,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(error),
            };
            Record::decode(&bytes).map(Some).ok_or_else(|| {
                let why = "the record of an interrupted patch is damaged; look at the files, then remove this one";
                io::Error::other(why)
            })
        });
        read.await.map_err(|cause| self.journal.failed("journal", cause))
    }

    /// Records what is about to change. It is on disk when this returns.
    pub(super) async fn write(&self, record: &Record) -> Result<()> {
        let (new, place, dir) = (self.journal.place("new"), self.journal.place("journal"), self.journal.dir.clone());
        let bytes = record.encode();
        let written = blocking(move || {
            let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
            file.write_all(&bytes)?;
            file.sync_all()?;
            fs::rename(&new, &place)?;
            File::open(&dir)?.sync_all()
        });
        written.await.map_err(|cause| self.journal.failed("journal", cause))
    }

    /// Forgets the patch, once the files below these paths are on disk.
    pub(super) async fn clear(&self, paths: Vec<Vec<u8>>) -> Result<()> {
        let (workspace, place) = (self.journal.workspace.clone(), self.journal.place("journal"));
        let cleared = blocking(move || {
            flush(&workspace, &paths)?;
            // If a power cut brings it back, every file is found to be what it says.
            fs::remove_file(&place)
        });
        cleared.await.map_err(|cause| self.journal.failed("journal", cause))
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}

/// Brings files and the directories they are in to the disk. Whatever is there by now is neither followed nor waited for.
fn flush(workspace: &Path, paths: &[Vec<u8>]) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(workspace, flags, Mode::empty())?;
    let mut names: Vec<&[u8]> = Vec::new();
    for path in paths.iter().filter(|path| !path.starts_with(b"/")) {
        names.push(path);
        let parents = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| &path[..at]);
        names.extend(parents.chain([b".".as_slice()]));
    }
    names.sort_unstable();
    names.dedup();
    if names.len() <= ONE_BY_ONE && names.iter().try_for_each(|name| flush_one(&root, name)).is_ok() {
        return Ok(());
    }
    Ok(rustix::fs::syncfs(&root)?)
}

fn flush_one(root: &OwnedFd, name: &[u8]) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    match rustix::fs::openat2(root, name, flags, Mode::empty(), resolve) {
        Ok(file) => {
            let file = File::from(file);
            let kind = file.metadata()?.file_type();
            if kind.is_file() || kind.is_dir() { file.sync_all() } else { Ok(()) }
        }
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
