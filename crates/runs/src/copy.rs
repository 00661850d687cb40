//! A working copy of a directory: all files that ignore rules do not exclude, read by handles and hashed on the way.

mod contents;
mod plan;
pub(crate) mod stream;

use std::{
    fmt,
    fs::{self, File},
    io,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};

use parking_lot::Mutex;
use rustix::fs::{AtFlags, Mode, OFlags, Timespec, Timestamps};
use sandbar_host_files::{ConfinedDir, RuleFileError, as_path, permissions, remove_tree};
use tokio_util::sync::CancellationToken;

use self::{
    contents::Contents,
    plan::{Item, Plan},
};
use crate::{
    Error, ErrorKind, Result,
    git::is_git,
    index::{self, Digest, Index, IndexEntry, PathBytes},
    rules,
    store::{RunDir, damaged},
};

/// Threads that copy.
const THREADS: usize = 2;

/// Larger files in `.git` are not hashed: their names depend on their content.
pub(crate) const GIT_HASH_LIMIT: u64 = 1 << 20;

/// Smallest file for which a reflink is tried.
const REFLINK_SIZE: u64 = 64 << 10;

/// Limits of a copy.
#[derive(Clone, Copy, Debug)]
pub struct CopyLimits {
    /// Maximum number of files, directories and links.
    pub entries: usize,
    /// Maximum size of all files.
    pub bytes: u64,
}

impl Default for CopyLimits {
    fn default() -> Self {
        Self { entries: 1_000_000, bytes: 64 << 30 }
    }
}

/// Progress of a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopyProgress {
    /// Entries copied so far.
    pub done: usize,
    /// Entries in all.
    pub total: usize,
}

/// A callback for the progress of a copy; it is called from several threads.
type Progress = Arc<dyn Fn(CopyProgress) + Send + Sync>;

/// How to make a working copy.
#[derive(Clone, Default)]
pub struct CopyOptions {
    limits: CopyLimits,
    progress: Option<Progress>,
    cancel: CancellationToken,
}

impl CopyOptions {
    /// Sets the limits.
    #[must_use]
    pub fn limits(mut self, limits: CopyLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Calls this with the progress, again and again, from several threads.
    #[must_use]
    pub fn progress(mut self, progress: impl Fn(CopyProgress) + Send + Sync + 'static) -> Self {
        self.progress = Some(Arc::new(progress));
        self
    }

    /// Stops the copy soon after this token is cancelled, with an empty workspace.
    #[must_use]
    pub fn cancel(mut self, token: CancellationToken) -> Self {
        self.cancel = token;
        self
    }

    fn report(&self, done: usize, total: usize) {
        if let Some(progress) = &self.progress {
            progress(CopyProgress { done, total });
        }
    }
}

impl fmt::Debug for CopyOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CopyOptions").field("limits", &self.limits).finish_non_exhaustive()
    }
}

/// What was copied, and what was not.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct CopyReport {
    /// Source directory, with links resolved.
    pub source: PathBuf,
    /// Files that were copied.
    pub files: usize,
    /// Size of these files.
    pub bytes: u64,
    /// Paths that ignore rules exclude; a directory counts once.
    pub ignored: usize,
    /// Paths that cannot be copied, and why.
    pub left_out: Vec<(String, &'static str)>,
}

impl RunDir {
    /// Copies a directory to the empty workspace of this run, and saves the directory's path and the index of the copy. After
    /// an error the workspace is empty.
    pub fn copy_in(&self, source: &Path, options: &CopyOptions) -> Result<CopyReport> {
        let failed = |error: io::Error| Error::io(format!("cannot copy {}", source.display()), error);
        let resolved = fs::canonicalize(source).map_err(failed)?;
        let from = ConfinedDir::open(&resolved).map_err(failed)?;
        // Saved before the copy, so that an interrupted copy is recognized.
        self.save_source(&resolved)?;
        let plan = Plan::make((&resolved, &from), self, options).map_err(|error| error.naming(source))?;
        plan.fits(self).map_err(|error| error.naming(source))?;
        let copied = self.copy_plan(&from, &plan, options);
        if copied.is_err() {
            let emptied = remove_tree(&self.workspace()).and_then(|()| fs::create_dir(self.workspace()));
            if let Err(error) = emptied {
                tracing::warn!(%error, "cannot remove everything of an interrupted copy");
            }
            let _was_never_made = fs::remove_file(self.contents_path());
        }
        copied.map_err(|error| error.naming(source))?;
        Ok(CopyReport {
            source: resolved,
            files: plan.items.iter().filter(|item| item.is_file()).count(),
            bytes: plan.bytes,
            ignored: plan.ignored,
            left_out: plan.left_out.iter().map(|(path, why)| (PathBytes(path.clone()).to_string(), *why)).collect(),
        })
    }

    fn save_source(&self, source: &Path) -> Result<()> {
        let mut record = self.record().map_err(|reason| damaged(self.id(), &reason))?;
        record.source = Some(PathBytes(source.as_os_str().as_bytes().to_vec()));
        self.save(&record)
    }

    fn copy_plan(&self, from: &ConfinedDir, plan: &Plan, options: &CopyOptions) -> Result<(), CopyError> {
        let to = ConfinedDir::open(&self.workspace())?;
        let work = Work {
            from,
            to: &to,
            plan,
            options,
            contents: Contents::create(&self.contents_path())?,
            next: AtomicUsize::new(0),
            failed: AtomicBool::new(false),
            entries: Mutex::default(),
        };
        work.make_dirs()?;
        options.report(0, plan.items.len());
        work.make_all()?;
        work.finish_dirs()?;
        let mut index = Index { version: index::VERSION, outer: plan.outer.clone(), ..Index::default() };
        for (at, entry) in work.entries.into_inner() {
            index.entries.insert(PathBytes(plan.items[at].path().to_vec()), entry);
        }
        self.save_index(&index).map_err(CopyError::Final)
    }
}

/// Why a copy ended early.
#[derive(Debug)]
enum CopyError {
    Cancelled,
    /// An error that needs no more context.
    Final(Error),
    /// An entry of the tree cannot be copied.
    Entry(Vec<u8>, io::Error),
    /// Ignore rules cannot be followed.
    Rules(RuleFileError),
    Other(io::Error),
}

impl From<io::Error> for CopyError {
    fn from(error: io::Error) -> Self {
        Self::Other(error)
    }
}

impl CopyError {
    fn naming(self, source: &Path) -> Error {
        let cannot = |path: &Path| format!("cannot copy {}", path.display());
        match self {
            Self::Cancelled => Error::new(ErrorKind::Cancelled, format!("{} was cancelled", cannot(source))),
            Self::Final(error) => error,
            Self::Entry(path, error) => Error::new(ErrorKind::NotCopied, cannot(&source.join(as_path(&path))))
                .because(error)
                .with_advice("leave it out with a line in .ignore"),
            Self::Rules(RuleFileError { path, problem }) => {
                let reason = rules::reason(&problem);
                let message = format!("cannot follow the ignore rules in {}: {reason}", source.join(path).display());
                Error::new(ErrorKind::IgnoreRules, message).with_advice("make it shorter")
            }
            Self::Other(error) => Error::io(cannot(source), error),
        }
    }
}

/// A copy in progress, shared by several threads.
struct Work<'a> {
    from: &'a ConfinedDir,
    to: &'a ConfinedDir,
    plan: &'a Plan,
    options: &'a CopyOptions,
    contents: Contents,
    next: AtomicUsize,
    failed: AtomicBool,
    /// The index entry of each copied item.
    entries: Mutex<Vec<(usize, IndexEntry)>>,
}

impl Work<'_> {
    /// Creates all directories first, writable for this user.
    fn make_dirs(&self) -> Result<(), CopyError> {
        let mut entries = self.entries.lock();
        for (at, item) in self.plan.items.iter().enumerate() {
            if let Item::Dir { path, mode, .. } = item {
                rustix::fs::mkdirat(self.to.root(), path.as_slice(), Mode::RWXU)
                    .map_err(|error| CopyError::Entry(path.clone(), error.into()))?;
                entries.push((at, IndexEntry::Dir { mode: *mode }));
            }
        }
        Ok(())
    }

    fn make_all(&self) -> Result<(), CopyError> {
        thread::scope(|scope| {
            let workers: Vec<_> = (0..THREADS).map(|_| scope.spawn(|| self.worker())).collect();
            // Join all threads before returning the first error.
            let lost = |_| Err(CopyError::Other(io::Error::other("a thread panicked")));
            let ended: Vec<_> = workers.into_iter().map(|worker| worker.join().unwrap_or_else(lost)).collect();
            ended.into_iter().collect()
        })
    }

    fn worker(&self) -> Result<(), CopyError> {
        let mut buffer = vec![0; 256 << 10];
        let mut made = Vec::new();
        loop {
            let at = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = self.plan.items.get(at) else { break };
            if at > 0 && at.is_multiple_of(256) {
                self.options.report(at, self.plan.items.len());
            }
            if self.options.cancel.is_cancelled() {
                return Err(CopyError::Cancelled);
            }
            if self.failed.load(Ordering::Relaxed) {
                break;
            }
            let entry = match item {
                Item::Dir { .. } => continue,
                Item::Link { path, to } => self.link(path, to),
                Item::File { path } => self.file(path, &mut buffer),
            };
            match entry {
                Ok(entry) => made.push((at, entry)),
                Err(error) => {
                    self.failed.store(true, Ordering::Relaxed);
                    return Err(error);
                }
            }
        }
        self.entries.lock().append(&mut made);
        Ok(())
    }

    fn link(&self, path: &[u8], to: &[u8]) -> Result<IndexEntry, CopyError> {
        rustix::fs::symlinkat(to, self.to.root(), path)
            .map_err(|error| CopyError::Entry(path.to_vec(), error.into()))?;
        Ok(IndexEntry::Link { to: PathBytes(to.to_vec()) })
    }

    fn file(&self, path: &[u8], buffer: &mut [u8]) -> Result<IndexEntry, CopyError> {
        let failed = |error: io::Error| CopyError::Entry(path.to_vec(), error);
        let (source, stat) = self.from.file(path).map_err(failed)?;
        let mode = permissions(&stat);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let target = rustix::fs::openat(self.to.root(), path, flags, Mode::from_raw_mode(0o600));
        let target = File::from(target.map_err(|error| failed(error.into()))?);
        let copy = self.content(&source, &target, path, (stat.st_size.unsigned_abs(), buffer))?;
        rustix::fs::fchmod(&target, Mode::from_raw_mode(mode)).map_err(|error| failed(error.into()))?;
        rustix::fs::futimens(&target, &times(&stat)).map_err(|error| failed(error.into()))?;
        let (size, sha256, at) = copy;
        Ok(IndexEntry::File { mode, size, sha256, at })
    }

    /// Copies the content of a file. Returns its size, its digest and its offset in `base.data`.
    fn content(
        &self,
        source: &File,
        target: &File,
        path: &[u8],
        (size, buffer): (u64, &mut [u8]),
    ) -> Result<(u64, Option<Digest>, Option<u64>), CopyError> {
        let failed = |error: io::Error| CopyError::Entry(path.to_vec(), error);
        let in_git = is_git(path);
        if size > REFLINK_SIZE && rustix::fs::ioctl_ficlone(target, source).is_ok() {
            let size = target.metadata().map_err(failed)?.len();
            let hash = !in_git || size <= GIT_HASH_LIMIT;
            let sum = hash.then(|| Digest::read(target, u64::MAX)).transpose().map_err(failed)?;
            return Ok((size, sum.map(|(sum, _)| sum), None));
        }
        let streamed = stream::copy((source, size), target, buffer, &self.options.cancel).map_err(failed)?;
        let (sum, size) = streamed.ok_or(CopyError::Cancelled)?;
        let sum = (!in_git || size <= GIT_HASH_LIMIT).then_some(sum);
        let at = if in_git { None } else { self.contents.append(target, size).map_err(failed)? };
        Ok((size, sum, at))
    }

    /// Sets permissions and times of directories last, inner ones first: creating files changes the times.
    fn finish_dirs(&self) -> Result<(), CopyError> {
        for item in self.plan.items.iter().rev() {
            let Item::Dir { path, mode, times } = item else { continue };
            let failed = |error: rustix::io::Errno| CopyError::Entry(path.clone(), error.into());
            rustix::fs::utimensat(self.to.root(), path.as_slice(), times, AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?;
            // The sandbox runs as the owner and must be able to enter and write.
            let mode = Mode::from_raw_mode(*mode) | Mode::RWXU;
            rustix::fs::chmodat(self.to.root(), path.as_slice(), mode, AtFlags::empty()).map_err(failed)?;
        }
        self.options.report(self.plan.items.len(), self.plan.items.len());
        Ok(())
    }
}

/// The modification time, also as access time.
fn times(stat: &rustix::fs::Stat) -> Timestamps {
    let modified = Timespec { tv_sec: stat.st_mtime, tv_nsec: stat.st_mtime_nsec.cast_signed() };
    Timestamps { last_access: modified, last_modification: modified }
}
