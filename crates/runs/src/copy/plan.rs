//! The plan of a copy, made before anything is copied: a directory that is too large is refused with nothing done.

use std::{io, path::Path};

use rustix::fs::{FileType, Timestamps};
use sandbar_host_files::{
    ConfinedDir, Descend, OuterRules, Refusal, Trust, Visitor, WalkEntry, outer_rules, permissions, walk,
};
use tokio_util::sync::CancellationToken;

use super::{CopyError, CopyLimits, CopyOptions, times};
use crate::{Error, ErrorKind, format_size, rules::walk_options, store::RunDir};

/// Space that must stay free on the disk.
const RESERVE: u64 = 64 << 20;

/// Advice for a directory that is too large.
const TOO_LARGE: &str = "leave out what is not needed with an .ignore file";

/// One entry to create.
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

/// All entries, parents first.
#[derive(Default)]
pub(super) struct Plan {
    pub(super) items: Vec<Item>,
    pub(super) bytes: u64,
    /// Disk space of the copy: holes take nothing, and the smallest file takes a block.
    room: u64,
    pub(super) ignored: usize,
    /// Ignore rules from above the tree.
    pub(super) outer: Vec<OuterRules>,
    pub(super) left_out: Vec<(Vec<u8>, &'static str)>,
}

impl Plan {
    pub(super) fn make(
        (dir, from): (&Path, &ConfinedDir),
        run: &RunDir,
        options: &CopyOptions,
    ) -> Result<Self, CopyError> {
        let own = own_directories(run.path())?;
        let root = rustix::fs::fstat(from.root()).map_err(io::Error::from)?;
        if own.contains(&(root.st_dev, root.st_ino)) {
            let error =
                Error::new(ErrorKind::StateDir, "cannot copy the directory that sandbar keeps its own state in");
            return Err(CopyError::Final(error.with_advice("give a directory of your own")));
        }
        let outer = outer_rules(dir).map_err(CopyError::Rules)?;
        let mut planner = Planner { plan: Self::default(), own, limits: options.limits, cancel: &options.cancel };
        walk(from, &walk_options(usize::MAX, Trust::Source, &outer), &mut planner)?;
        planner.plan.outer = outer;
        Ok(planner.plan)
    }

    /// Refuses a copy that does not fit on the disk.
    pub(super) fn fits(&self, run: &RunDir) -> Result<(), CopyError> {
        let disk = rustix::fs::statvfs(run.path()).map_err(io::Error::from)?;
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        let inodes_fit = disk.f_files == 0 || disk.f_favail >= self.items.len() as u64;
        if free >= self.room.saturating_add(RESERVE) && inodes_fit {
            return Ok(());
        }
        let (need, reserve, have) = (format_size(self.room), format_size(RESERVE), format_size(free));
        let what = match inodes_fit {
            true => format!(
                "no room for the working copy in {}: it needs {need} and {reserve} for what the run writes, and {have} are free",
                run.path().display()
            ),
            false => {
                format!("no room for the {} files of the working copy in {}", self.items.len(), run.path().display())
            }
        };
        let advice = format!("free some space, set XDG_STATE_HOME to a directory that has some, or {TOO_LARGE}");
        Err(CopyError::Final(Error::new(ErrorKind::NoSpace, what).with_advice(advice)))
    }
}

/// The directories of the store, from the run upwards: copying them would copy the copy.
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
    cancel: &'a CancellationToken,
}

impl Planner<'_> {
    fn too_much(&self, what: String) -> CopyError {
        CopyError::Final(Error::new(ErrorKind::LimitExceeded, what).with_advice(TOO_LARGE))
    }

    fn overflow(&self) -> CopyError {
        self.too_much(format!("there are more than {} files to copy", self.limits.entries))
    }

    fn add(&mut self, item: Item, bytes: u64, blocks: u64) -> Result<(), CopyError> {
        self.plan.bytes = self.plan.bytes.saturating_add(bytes);
        self.plan.room = self.plan.room.saturating_add(blocks.saturating_mul(512).max(4096));
        if self.plan.bytes > self.limits.bytes {
            return Err(self.too_much(format!("there is more than {} to copy", format_size(self.limits.bytes))));
        }
        if self.plan.items.len() >= self.limits.entries {
            return Err(self.overflow());
        }
        self.plan.items.push(item);
        Ok(())
    }
}

impl Visitor for Planner<'_> {
    type Stop = CopyError;

    fn visit(&mut self, entry: &WalkEntry<'_>) -> Result<Descend, CopyError> {
        if self.cancel.is_cancelled() {
            return Err(CopyError::Cancelled);
        }
        if entry.is_ignored {
            self.plan.ignored += 1;
            return Ok(Descend::Skip);
        }
        let path = entry.path.to_vec();
        if sandbar::sandbox::is_leftover(entry.name.as_bytes()) {
            self.plan.left_out.push((path, "it was left by a command of sandbar that was interrupted"));
            return Ok(Descend::Skip);
        }
        let failed = |error| CopyError::Entry(entry.path.to_vec(), error);
        let stat = entry.stat().map_err(failed)?;
        let blocks = stat.st_blocks.unsigned_abs();
        match entry.kind {
            FileType::Directory if self.own.contains(&(stat.st_dev, stat.st_ino)) => {
                self.plan.left_out.push((path, "sandbar keeps its own state there"));
                return Ok(Descend::Skip);
            }
            FileType::Directory => {
                self.add(Item::Dir { path, mode: permissions(&stat), times: times(&stat) }, 0, blocks)?
            }
            FileType::RegularFile => self.add(Item::File { path }, stat.st_size.unsigned_abs(), blocks)?,
            FileType::Symlink => {
                self.add(Item::Link { path, to: entry.link().map_err(failed)? }, 0, 0)?;
            }
            _ => self.plan.left_out.push((path, "it is a pipe, a socket or a device")),
        }
        Ok(Descend::Into)
    }

    fn unreadable(&mut self, path: &[u8], error: io::Error) -> Result<(), CopyError> {
        Err(CopyError::Entry(path.to_vec(), error))
    }

    fn refused(&self, refusal: Refusal) -> CopyError {
        match refusal {
            Refusal::Rules(error) => CopyError::Rules(error),
            Refusal::TooManyEntries => self.overflow(),
        }
    }
}
