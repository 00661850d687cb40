//! A directory of the host that is written to through an isolated machine, whose guest cannot write outside of it.

use std::{
    ffi::OsStr,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use rustix::fs::{Mode, OFlags};
use sandbar::{
    Access, FileIdentity, HostMount, Machine, MachineError, MachinePath, MachineSpec, SandboxClient, Target, Workspace,
    client::UnixLocal, machine::Demand,
};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::unless_cancelled;
use crate::{
    Error, ErrorKind, Result,
    git::{GitAccess, Guard},
};

/// Time limit for the guest to finish cancelled requests.
const SETTLING: Duration = Duration::from_secs(5);

/// Path of the directory on machines with their own file tree.
const SHOWN: &str = "/workspace/out";

/// An open directory. If its path leads to another directory later, that one is not written to.
#[derive(Debug)]
pub struct OpenDir {
    path: PathBuf,
    /// While the directory is open, its inode number is not reused.
    place: File,
}

impl OpenDir {
    /// Opens the directory, unless the path is a symbolic link without a slash after it.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(Self { path: path.to_owned(), place: rustix::fs::open(path, flags, Mode::empty())?.into() })
    }

    fn mount(&self, isolation: Demand) -> Result<HostMount> {
        let bad = |error: io::Error| Error::io(format!("cannot copy to {}", self.path.display()), error);
        let inside = match isolation {
            Demand::Full => MachinePath::new(SHOWN)?,
            _ => MachinePath::new(fs::canonicalize(&self.path).map_err(bad)?)?,
        };
        let identity = FileIdentity::from(&self.place.metadata().map_err(bad)?);
        Ok(HostMount { host: self.path.clone(), inside, access: Access::ReadWrite, identity: Some(identity) })
    }
}

/// A directory with its machine.
#[derive(Debug)]
pub struct HostSide {
    machine: Arc<dyn Machine>,
    root: MachinePath,
}

impl HostSide {
    /// Starts a machine that shows the directory.
    pub async fn open(path: PathBuf, access: Access, isolation: Demand) -> Result<Self> {
        let spec = MachineSpec::default().workspace(Workspace::Host { path, access }).isolation(isolation);
        let machine = UnixLocal::new().create(spec).await?;
        Ok(Self { root: machine.features().workspace.clone(), machine })
    }

    /// Starts a machine that can write to exactly the opened directory. Repositories in the directory are read-only.
    pub async fn writing(
        dir: &OpenDir,
        name: Option<&OsStr>,
        isolation: Demand,
        git: GitAccess,
    ) -> Result<(Self, Guard)> {
        let mount = dir.mount(isolation)?;
        let root = mount.inside.clone();
        let mut mounts = vec![mount];
        let mut guard = Guard::default();
        if git != GitAccess::Writable {
            let (own, protected) = Guard::for_copy_to((&dir.path, &root), name)?;
            guard = own;
            mounts.extend(protected);
        }
        let spec = MachineSpec::default().mounts(mounts).isolation(isolation);
        let refuse = |error: MachineError| Error::io(format!("cannot copy to {}", dir.path.display()), error);
        Ok((Self { machine: UnixLocal::new().create(spec).await.map_err(refuse)?, root }, guard))
    }

    /// The machine that shows the directory.
    pub fn machine(&self) -> Arc<dyn Machine> {
        self.machine.clone()
    }

    /// Path of the directory on the machine.
    pub fn root(&self) -> MachinePath {
        self.root.clone()
    }

    /// Target for an entry of the directory, or for the directory itself.
    pub fn target(&self, name: Option<&OsStr>) -> Result<Target> {
        let root = self.root();
        let path = name.map_or_else(|| Ok(root.clone()), |name| root.join(name))?;
        Ok(Target::from(path).beneath(root))
    }

    /// Runs work on the directory until the token is cancelled. Cancelled requests have finished when this returns; the machine
    /// lives until [`close`](Self::close).
    pub async fn during(&self, work: impl Future<Output = Result<()>>, cancel: &CancellationToken) -> Result<()> {
        let done = unless_cancelled(work, cancel).await;
        if done.as_ref().is_err_and(|error| error.kind() == ErrorKind::Cancelled) {
            // The guest handles requests in order: when this one is answered, the cancelled ones have finished.
            let _settled = timeout(SETTLING, self.machine.stat(&Target::from(self.root()))).await;
        }
        done
    }

    /// Stops the machine.
    pub async fn close(&self) {
        if let Err(error) = self.machine.stop().await {
            tracing::warn!(%error, "the machine of the directory did not stop cleanly");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replaced_directory_is_not_written_to() {
        let temp = tempfile::tempdir().unwrap();
        let at = |name: &str| temp.path().join(name);
        let refused = |dir: &OpenDir| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            match runtime.block_on(HostSide::writing(dir, None, Demand::Full, GitAccess::Protected)) {
                Ok(_) => panic!("another directory would be written to"),
                Err(error) => crate::error::full(&error),
            }
        };
        fs::create_dir(at("dir")).unwrap();
        fs::create_dir(at("victim")).unwrap();
        let dir = OpenDir::open(&at("dir")).unwrap();
        fs::rename(at("dir"), at("old")).unwrap();
        std::os::unix::fs::symlink(at("victim"), at("dir")).unwrap();
        assert!(refused(&dir).contains("changed since it was judged"));
        assert!(OpenDir::open(&at("dir")).is_err());
        fs::remove_file(at("dir")).unwrap();
        fs::rename(at("victim"), at("dir")).unwrap();
        assert!(refused(&dir).contains("changed since it was judged"));
    }
}
