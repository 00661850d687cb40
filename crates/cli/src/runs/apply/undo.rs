//! What was done to a directory, so that it can be taken back, the last thing first.

use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Mode, RenameFlags};

use crate::runs::{
    beneath::{Beneath, name_of},
    index::Name,
};

/// One thing that was done.
#[derive(Clone, Debug)]
pub(super) enum Done {
    /// What was at a path is in the staging directory, under this name.
    MovedOut(Name, String),
    /// What is at a path was exchanged with what is now in the staging directory.
    Exchanged(Name, String),
    /// Something new is at a path.
    Put(Name),
    MadeDir(Name),
    RemovedDir(Name, u32),
}

impl Done {
    fn path(&self) -> &Name {
        match self {
            Self::MovedOut(path, _) | Self::Exchanged(path, _) | Self::Put(path) | Self::MadeDir(path) => path,
            Self::RemovedDir(path, _) => path,
        }
    }

    fn take_back(&self, target: &Beneath, staging: &OwnedFd) -> std::io::Result<()> {
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

/// Takes everything back; the paths of what cannot be.
pub(super) fn all(done: &[Done], target: &Beneath, staging: &OwnedFd) -> Vec<Name> {
    let failed = done.iter().rev().filter(|one| one.take_back(target, staging).is_err());
    failed.map(|one| one.path().clone()).collect()
}
