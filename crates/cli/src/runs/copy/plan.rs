//! What is to be copied, found out before anything is: so that what is too much is refused with nothing done.

use std::{
    io,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
};

use rustix::fs::{FileType, Timestamps};

use super::{CopyError, CopyLimits, times};
use crate::{
    failure::Failure,
    progress::size,
    runs::{
        beneath::{Beneath, stat_in},
        ignored::{self, Outer, Trust, Unusable},
        store::RunDir,
        walk::{Met, Onward, Terms, Visitor, walk},
    },
};

/// What must stay free on the disk.
const RESERVE: u64 = 64 << 20;

/// What to do about a directory that is too large to copy.
const NEXT: &str = "leave out what is not needed with an .ignore file, or work on the directory itself with --in-place";

/// One thing to be made.
pub(super) enum Item {
    Dir { path: Vec<u8>, mode: u32, times: Timestamps },
    File { path: Vec<u8> },
    Link { path: Vec<u8>, to: Vec<u8> },
}

impl Item {
    pub(super) fn path(&self) -> &[u8] {
        match self {
            Self::Dir { path, .. } | Self::File { path } | Self::Link { path, .. } => path,
        }
    }

    pub(super) fn is_file(&self) -> bool {
        matches!(self, Self::File { .. })
    }
}

/// All of them, parents first.
#[derive(Default)]
pub(super) struct Plan {
    pub(super) items: Vec<Item>,
    pub(super) bytes: u64,
    /// What that takes on a disk: holes take nothing, and the smallest file takes a block.
    room: u64,
    pub(super) ignored: usize,
    /// The rules that came from above the tree.
    pub(super) outer: Vec<Outer>,
    pub(super) left_out: Vec<(Vec<u8>, &'static str)>,
}

impl Plan {
    pub(super) fn make(
        (dir, from): (&Path, &Beneath),
        run: &RunDir,
        limits: CopyLimits,
        cancelled: &AtomicBool,
    ) -> Result<Self, CopyError> {
        let own = own_directories(run.path())?;
        let root = rustix::fs::fstat(from.root()).map_err(io::Error::from)?;
        if own.contains(&(root.st_dev, root.st_ino)) {
            let failure = Failure::new("cannot copy the directory that sandbar keeps its own state in");
            return Err(CopyError::Told(failure.next("give a directory of your own")));
        }
        let outer = ignored::outer(dir).map_err(CopyError::Rules)?;
        let mut planner = Planner { plan: Self::default(), own, limits, cancelled };
        walk(from, &Terms { most: usize::MAX, outer: &outer, trust: Trust::Own }, &mut planner)?;
        planner.plan.outer = outer;
        Ok(planner.plan)
    }

    /// Refuses what does not fit on the disk.
    pub(super) fn fits(&self, run: &RunDir) -> Result<(), CopyError> {
        let disk = rustix::fs::statvfs(run.path()).map_err(io::Error::from)?;
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        let inodes_fit = disk.f_files == 0 || disk.f_favail >= self.items.len() as u64;
        if free >= self.room.saturating_add(RESERVE) && inodes_fit {
            return Ok(());
        }
        let (need, reserve, have) = (size(self.room), size(RESERVE), size(free));
        let what = match inodes_fit {
            true => format!(
                "no room for the working copy in {}: it needs {need} and {reserve} for what the run writes, and {have} are free",
                run.path().display()
            ),
            false => {
                format!("no room for the {} files of the working copy in {}", self.items.len(), run.path().display())
            }
        };
        let next = format!("free some space, set XDG_STATE_HOME to a directory that has some, or {NEXT}");
        Err(CopyError::Told(Failure::new(what).code("no_room").next(next)))
    }
}

/// Sandbar's own directories above and at a run: to copy these would be to copy the copy.
fn own_directories(run: &Path) -> io::Result<Vec<(u64, u64)>> {
    let identity = |path: &Path| {
        let stat = rustix::fs::stat(path)?;
        Ok((stat.st_dev, stat.st_ino))
    };
    run.ancestors().take(3).map(identity).collect()
}

struct Planner<'a> {
    plan: Plan,
    own: Vec<(u64, u64)>,
    limits: CopyLimits,
    cancelled: &'a AtomicBool,
}

impl Planner<'_> {
    fn too_much(&self, what: String) -> CopyError {
        CopyError::Told(Failure::new(what).code("limit_exceeded").next(NEXT))
    }

    fn add(&mut self, item: Item, bytes: u64, blocks: u64) -> Result<(), CopyError> {
        self.plan.bytes = self.plan.bytes.saturating_add(bytes);
        self.plan.room = self.plan.room.saturating_add(blocks.saturating_mul(512).max(4096));
        if self.plan.bytes > self.limits.bytes {
            return Err(self.too_much(format!("there is more than {} to copy", size(self.limits.bytes))));
        }
        if self.plan.items.len() >= self.limits.entries {
            return Err(self.overflow());
        }
        self.plan.items.push(item);
        Ok(())
    }
}

impl Visitor for Planner<'_> {
    type Halt = CopyError;

    fn meet(&mut self, met: &Met<'_>) -> Result<Onward, CopyError> {
        if self.cancelled.load(Ordering::Relaxed) {
            return Err(CopyError::Cancelled);
        }
        if met.is_ignored {
            self.plan.ignored += 1;
            return Ok(Onward::Past);
        }
        let path = met.path.to_vec();
        if sandbar::is_leftover(met.name.as_bytes()) {
            self.plan.left_out.push((path, "it was left by a command of sandbar that was interrupted"));
            return Ok(Onward::Past);
        }
        let failed = |error: rustix::io::Errno| CopyError::At(met.path.to_vec(), error.into());
        let stat = stat_in(met.dir, met.name.as_bytes()).map_err(failed)?;
        let blocks = stat.st_blocks.unsigned_abs();
        match met.kind {
            FileType::Directory if self.own.contains(&(stat.st_dev, stat.st_ino)) => {
                self.plan.left_out.push((path, "sandbar keeps its own state there"));
                return Ok(Onward::Past);
            }
            FileType::Directory => {
                self.add(Item::Dir { path, mode: stat.st_mode & 0o777, times: times(&stat) }, 0, blocks)?
            }
            FileType::RegularFile => self.add(Item::File { path }, stat.st_size.unsigned_abs(), blocks)?,
            FileType::Symlink => {
                let to = rustix::fs::readlinkat(met.dir, met.name, Vec::new()).map_err(failed)?.into_bytes();
                self.add(Item::Link { path, to }, 0, 0)?;
            }
            _ => self.plan.left_out.push((path, "it is a pipe, a socket or a device")),
        }
        Ok(Onward::Into)
    }

    fn miss(&mut self, path: &[u8], error: io::Error) -> Result<(), CopyError> {
        Err(CopyError::At(path.to_vec(), error))
    }

    fn unusable(&self, unusable: Unusable) -> CopyError {
        CopyError::Rules(unusable)
    }

    fn overflow(&self) -> CopyError {
        self.too_much(format!("there are more than {} files to copy", self.limits.entries))
    }
}
