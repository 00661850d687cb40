//! A working copy of a directory: what its rules do not ignore, read by handles, hashed on the way.

mod contents;
mod plan;
pub(super) mod stream;

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};

use rustix::fs::{AtFlags, Mode, OFlags, Timespec, Timestamps};

use self::{
    contents::Contents,
    plan::{Item, Plan},
};
use super::{
    beneath::Beneath,
    ignored::Unusable,
    index::{self, Entry, Index, Name, Sum},
    store::RunDir,
};
use crate::{failure::Failure, git::is_git};

/// How many threads copy.
const THREADS: usize = 2;

/// Larger files in a repository's own directory are not hashed: they are called by their content.
pub(super) const GIT_HASH_LIMIT: u64 = 1 << 20;

/// From this size on it is worth asking the file system to share the content.
const SHARED: u64 = 64 << 10;

/// How much may be copied.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CopyLimits {
    pub(crate) entries: usize,
    pub(crate) bytes: u64,
}

impl Default for CopyLimits {
    fn default() -> Self {
        Self { entries: 1_000_000, bytes: 64 << 30 }
    }
}

/// How far a copy is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CopyProgress {
    pub(crate) done: usize,
    pub(crate) total: usize,
}

/// Who watches a copy, and may end it.
pub(crate) struct CopyWatch<'a> {
    /// Told again and again, from any thread.
    pub(crate) progress: &'a (dyn Fn(CopyProgress) + Sync),
    /// Once true, the copy ends soon and leaves nothing.
    pub(crate) cancelled: &'a AtomicBool,
}

/// What was copied, and what was not.
#[derive(Debug, Default)]
pub(crate) struct Copied {
    /// The directory that was copied, as it is called without links.
    pub(crate) source: PathBuf,
    pub(crate) files: usize,
    pub(crate) bytes: u64,
    /// How many things the tree's rules ignore; a directory is one.
    pub(crate) ignored: usize,
    /// What cannot be copied, and why.
    pub(crate) left_out: Vec<(String, &'static str)>,
}

/// Why there is no copy.
#[derive(Debug)]
pub(crate) enum NotCopied {
    Cancelled,
    Failed(Box<Failure>),
}

impl From<Failure> for NotCopied {
    fn from(failure: Failure) -> Self {
        Self::Failed(Box::new(failure))
    }
}

impl RunDir {
    /// Copies a directory to the workspace of this run, which is empty, and remembers what it was. If that cannot be, or
    /// somebody ends it, the workspace is empty again.
    pub(crate) fn copy_in(
        &self,
        source: &Path,
        limits: CopyLimits,
        watch: &CopyWatch<'_>,
    ) -> Result<Copied, NotCopied> {
        let failed = |error| Failure::new(format!("cannot copy {}", source.display())).because(error);
        let resolved = fs::canonicalize(source).map_err(failed)?;
        let from = Beneath::open(&resolved).map_err(failed)?;
        let plan =
            Plan::make((&resolved, &from), self, limits, watch.cancelled).map_err(|error| error.naming(source))?;
        plan.fits(self).map_err(|error| error.naming(source))?;
        let copied = self.copy_plan(&from, &plan, watch);
        if copied.is_err() {
            let emptied =
                super::removal::remove_tree(&self.workspace()).and_then(|()| fs::create_dir(self.workspace()));
            if let Err(error) = emptied {
                tracing::warn!(%error, "something of a copy that was given up may be left");
            }
            let _was_never_made = fs::remove_file(self.contents_path());
        }
        copied.map_err(|error| error.naming(source))?;
        Ok(Copied {
            source: resolved,
            files: plan.items.iter().filter(|item| item.is_file()).count(),
            bytes: plan.bytes,
            ignored: plan.ignored,
            left_out: plan.left_out.iter().map(|(path, why)| (Name(path.clone()).to_string(), *why)).collect(),
        })
    }

    fn copy_plan(&self, from: &Beneath, plan: &Plan, watch: &CopyWatch<'_>) -> Result<(), CopyError> {
        let to = Beneath::open(&self.workspace())?;
        let work = Work {
            from,
            to: &to,
            plan,
            watch,
            contents: Contents::create(&self.contents_path())?,
            next: AtomicUsize::new(0),
            failed: AtomicBool::new(false),
            found: Mutex::default(),
        };
        work.make_dirs()?;
        (watch.progress)(CopyProgress { done: 0, total: plan.items.len() });
        work.make_all()?;
        work.finish_dirs()?;
        let mut index = Index { version: index::VERSION, outer: plan.outer.clone(), ..Index::default() };
        for (at, entry) in work.found.into_inner().unwrap_or_else(PoisonError::into_inner) {
            index.entries.insert(Name(plan.items[at].path().to_vec()), entry);
        }
        self.save_index(&index).map_err(CopyError::Told)
    }
}

/// Why a copy ended early.
#[derive(Debug)]
enum CopyError {
    Cancelled,
    Told(Failure),
    /// Something of the tree cannot be copied.
    At(Vec<u8>, io::Error),
    /// It cannot be told what must not be copied.
    Rules(Unusable),
    Other(io::Error),
}

impl From<io::Error> for CopyError {
    fn from(error: io::Error) -> Self {
        Self::Other(error)
    }
}

impl CopyError {
    fn naming(self, source: &Path) -> NotCopied {
        let next = "leave it out with a line in .ignore, or work on the directory itself with --in-place";
        match self {
            Self::Cancelled => NotCopied::Cancelled,
            Self::Told(failure) => failure.into(),
            Self::At(path, error) => {
                let path = source.join(super::beneath::as_path(&path));
                Failure::new(format!("cannot copy {}", path.display())).because(error).next(next).into()
            }
            Self::Rules(Unusable { path, reason }) => {
                let what = format!("cannot follow the ignore rules in {}: {reason}", source.join(path).display());
                let next = "make it shorter, or work on the directory itself with --in-place";
                Failure::new(what).code("ignore_rules").next(next).into()
            }
            Self::Other(error) => Failure::new(format!("cannot copy {}", source.display())).because(error).into(),
        }
    }
}

/// A copy being made by several threads.
struct Work<'a> {
    from: &'a Beneath,
    to: &'a Beneath,
    plan: &'a Plan,
    watch: &'a CopyWatch<'a>,
    contents: Contents,
    next: AtomicUsize,
    failed: AtomicBool,
    /// What each item of the plan turned out to be.
    found: Mutex<Vec<(usize, Entry)>>,
}

impl Work<'_> {
    /// All directories first, as ones that this user can write to.
    fn make_dirs(&self) -> Result<(), CopyError> {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        for (at, item) in self.plan.items.iter().enumerate() {
            if let Item::Dir { path, mode, .. } = item {
                rustix::fs::mkdirat(self.to.root(), path.as_slice(), Mode::RWXU)
                    .map_err(|error| CopyError::At(path.clone(), error.into()))?;
                found.push((at, Entry::Dir { mode: *mode }));
            }
        }
        Ok(())
    }

    fn make_all(&self) -> Result<(), CopyError> {
        thread::scope(|scope| {
            let workers: Vec<_> = (0..THREADS).map(|_| scope.spawn(|| self.worker())).collect();
            // All are waited for before the first of them is believed.
            let lost = |_| Err(CopyError::Other(io::Error::other("a thread ended early")));
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
                (self.watch.progress)(CopyProgress { done: at, total: self.plan.items.len() });
            }
            if self.watch.cancelled.load(Ordering::Relaxed) {
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
        self.found.lock().unwrap_or_else(PoisonError::into_inner).append(&mut made);
        Ok(())
    }

    fn link(&self, path: &[u8], to: &[u8]) -> Result<Entry, CopyError> {
        rustix::fs::symlinkat(to, self.to.root(), path).map_err(|error| CopyError::At(path.to_vec(), error.into()))?;
        Ok(Entry::Link { to: Name(to.to_vec()) })
    }

    fn file(&self, path: &[u8], buffer: &mut [u8]) -> Result<Entry, CopyError> {
        let failed = |error: io::Error| CopyError::At(path.to_vec(), error);
        let (source, stat) = self.from.file(path).map_err(failed)?;
        // Without the bits that lend somebody's rights.
        let mode = stat.st_mode & 0o777;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let target = rustix::fs::openat(self.to.root(), path, flags, Mode::from_raw_mode(0o600));
        let target = File::from(target.map_err(|error| failed(error.into()))?);
        let copy = self.content(&source, &target, path, (stat.st_size.unsigned_abs(), buffer))?;
        rustix::fs::fchmod(&target, Mode::from_raw_mode(mode)).map_err(|error| failed(error.into()))?;
        rustix::fs::futimens(&target, &times(&stat)).map_err(|error| failed(error.into()))?;
        let (size, sha256, at) = copy;
        Ok(Entry::File { mode, size, sha256, at })
    }

    /// Copies what a file holds; its size, its digest, and where else it was put.
    fn content(
        &self,
        source: &File,
        target: &File,
        path: &[u8],
        (size, buffer): (u64, &mut [u8]),
    ) -> Result<(u64, Option<Sum>, Option<u64>), CopyError> {
        let failed = |error: io::Error| CopyError::At(path.to_vec(), error);
        let in_git = is_git(path);
        if size > SHARED && rustix::fs::ioctl_ficlone(target, source).is_ok() {
            let size = target.metadata().map_err(failed)?.len();
            let hash = !in_git || size <= GIT_HASH_LIMIT;
            let sum = hash.then(|| Sum::read(target, u64::MAX)).transpose().map_err(failed)?;
            return Ok((size, sum.map(|(sum, _)| sum), None));
        }
        let streamed = stream::copy((source, size), target, buffer, self.watch.cancelled).map_err(failed)?;
        let (sum, size) = streamed.ok_or(CopyError::Cancelled)?;
        let sum = (!in_git || size <= GIT_HASH_LIMIT).then_some(sum);
        let at = if in_git { None } else { self.contents.keep(target, size).map_err(failed)? };
        Ok((size, sum, at))
    }

    /// Their permissions and times at last, those inside first: files in them would have changed the times.
    fn finish_dirs(&self) -> Result<(), CopyError> {
        for item in self.plan.items.iter().rev() {
            let Item::Dir { path, mode, times } = item else { continue };
            let failed = |error: rustix::io::Errno| CopyError::At(path.clone(), error.into());
            rustix::fs::utimensat(self.to.root(), path.as_slice(), times, AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?;
            // A directory without these is of no use to the sandbox, which runs as its owner.
            let mode = Mode::from_raw_mode(*mode) | Mode::RWXU;
            rustix::fs::chmodat(self.to.root(), path.as_slice(), mode, AtFlags::empty()).map_err(failed)?;
        }
        (self.watch.progress)(CopyProgress { done: self.plan.items.len(), total: self.plan.items.len() });
        Ok(())
    }
}

/// When something was last changed, and no time of its last use.
fn times(stat: &rustix::fs::Stat) -> Timestamps {
    let modified = Timespec { tv_sec: stat.st_mtime, tv_nsec: stat.st_mtime_nsec.cast_signed() };
    Timestamps { last_access: modified, last_modification: modified }
}
