//! Facets of a machine: what only some machines have, each one a trait that is there or not.

use std::ffi::OsString;

use async_trait::async_trait;

use crate::{
    ByteStream, DirEntry, Endpoint, Process, ProcessId, ProcessInfo, Result, ScanOptions, Signal, SnapshotId, Target,
    TreeIndex,
};

/// File operations that a machine does itself, faster or more strictly than POSIX tools on it would.
#[async_trait]
pub trait Files: Send + Sync {
    /// What is at a path, links not followed; `None` when nothing is.
    async fn stat(&self, target: &Target) -> Result<Option<DirEntry>>;

    /// A directory's entries, by name.
    async fn list(&self, target: &Target) -> Result<Vec<DirEntry>>;

    /// Makes a directory and its missing parents; one that exists is fine.
    async fn make_dir(&self, target: &Target) -> Result<()>;

    /// Removes a file, a link or a whole directory; what is not there is fine.
    async fn remove(&self, target: &Target) -> Result<()>;

    /// Gives a thing another name, replacing a file of that name.
    async fn rename(&self, from: &Target, to: &Target) -> Result<()>;

    /// The index of a tree.
    async fn scan(&self, root: &Target, options: &ScanOptions) -> Result<TreeIndex>;

    /// A tree as a tar stream, its root's own entry left out.
    async fn pack(&self, root: &Target, skip: &[OsString]) -> Result<ByteStream>;

    /// Unpacks a tar stream below a directory, which is made if missing. Members that would land outside it are refused.
    async fn unpack(&self, root: &Target, tar: ByteStream) -> Result<()>;
}

/// Commands as the machine knows them: by number, whichever client holds them. Only a machine with this facet keeps
/// commands that were started as [`kept`](crate::Command::kept) beyond the client that started them.
#[async_trait]
pub trait Commands: Send + Sync {
    /// Those that run, and those that ended without a holder and were not collected.
    async fn list(&self) -> Result<Vec<ProcessInfo>>;

    /// Takes over a command that outlived its holder: what it printed meanwhile comes first, at most the last mebibyte of
    /// it, then what it prints now; input, signals and sizes work as before. What the last holder had been sent but never
    /// took is sent again. One that ended without a holder gives its output and exit, and is then forgotten.
    ///
    /// `Ok(None)`: there is no such command, or no longer.
    ///
    /// # Errors
    /// [`MachineError::Held`](crate::MachineError::Held) while another client holds it.
    async fn adopt(&self, process: ProcessId) -> Result<Option<Process>>;

    /// Sends a signal to a command and everything it started, whichever client holds it; `false` when there is no such
    /// command.
    async fn signal(&self, process: ProcessId, signal: Signal) -> Result<bool>;
}

/// Ports inside that can be reached from outside.
#[async_trait]
pub trait Ports: Send + Sync {
    /// Makes a declared port reachable, and says where; the same answer every time.
    async fn open(&self, port: u16) -> Result<Endpoint>;
}

/// Snapshots that the provider takes and keeps. A machine is made from one by [`MachineSpec::snapshot`].
///
/// [`MachineSpec::snapshot`]: crate::MachineSpec::snapshot
#[async_trait]
pub trait Snapshots: Send + Sync {
    /// Saves the machine as it is now, and names the result.
    async fn take(&self) -> Result<SnapshotId>;
}
