//! The log of a commit, undone in reverse order.

use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Mode, RenameFlags};
use sandbar_host_files::{ConfinedDir, name_of};

use crate::index::PathBytes;

/// One completed operation.
#[derive(Clone, Debug)]
pub(super) enum Done {
    /// The old file was moved to this name in the staging directory.
    MovedOut(PathBytes, String),
    /// Old and new file were exchanged; the old one has this name in the staging directory.
    Exchanged(PathBytes, String),
    /// A new file was put in place.
    Put(PathBytes),
    MadeDir(PathBytes),
    RemovedDir(PathBytes, u32),
}

impl Done {
    fn path(&self) -> &PathBytes {
        match self {
            Self::MovedOut(path, _) | Self::Exchanged(path, _) | Self::Put(path) | Self::MadeDir(path) => path,
            Self::RemovedDir(path, _) => path,
        }
    }

    fn undo(&self, target: &ConfinedDir, staging: &OwnedFd) -> std::io::Result<()> {
        let path = self.path();
        let (parent, name) = (target.parent(&path.0)?, name_of(&path.0));
        match self {
            Self::MovedOut(_, slot) => {
                rustix::fs::renameat_with(staging, slot.as_str(), &parent, name, RenameFlags::NOREPLACE)?
            }
            Self::Exchanged(_, slot) => {
                rustix::fs::renameat_with(staging, slot.as_str(), &parent, name, RenameFlags::EXCHANGE)?
            }
            Self::Put(_) => rustix::fs::unlinkat(&parent, name, AtFlags::empty())?,
            Self::MadeDir(_) => rustix::fs::unlinkat(&parent, name, AtFlags::REMOVEDIR)?,
            Self::RemovedDir(_, mode) => {
                rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(*mode))?;
            }
        }
        Ok(())
    }
}

/// Undoes all operations. Returns the paths that could not be restored.
pub(super) fn all(done: &[Done], target: &ConfinedDir, staging: &OwnedFd) -> Vec<PathBytes> {
    let failed = done.iter().rev().filter(|one| one.undo(target, staging).is_err());
    failed.map(|one| one.path().clone()).collect()
}
