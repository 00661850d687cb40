//! Facets: optional abilities of a machine, one trait each.

use std::ffi::OsString;

use async_trait::async_trait;

use crate::{
    ByteStream, DirEntry, Endpoint, Process, ProcessId, ProcessInfo, Result, ScanOptions, Signal, SnapshotId, Target,
    TreeIndex,
};

/// File operations that a machine implements itself, faster or stricter than POSIX tools on it would be.
///
/// Callers use the methods of the same name on `dyn Machine`, which fall back to [`posix`](crate::posix) if a machine lacks
/// this facet. Every method honours [`Target::user`] and [`Target::beneath`]; a path that leaves `beneath`, by its text or
/// through a symbolic link, is [`MachineError::Denied`](crate::MachineError::Denied), and so is what the user may not do. After
/// a stop every method fails with [`MachineError::Gone`](crate::MachineError::Gone) or
/// [`MachineError::Transport`](crate::MachineError::Transport).
#[async_trait]
pub trait Files: Send + Sync {
    /// Describes the entry at a path. A symbolic link in the last part is described, not followed. `None` if the path does not
    /// exist, also if a parent directory is missing.
    async fn stat(&self, target: &Target) -> Result<Option<DirEntry>>;

    /// Lists all entries of a directory, hidden ones included, sorted by the bytes of their names.
    ///
    /// # Errors
    /// [`MachineError::NotFound`](crate::MachineError::NotFound) if the directory does not exist.
    async fn list(&self, target: &Target) -> Result<Vec<DirEntry>>;

    /// Creates a directory with [`Target::mode`], and its missing parents with 0755. Succeeds if the directory exists; fails if
    /// a file is in the way.
    async fn make_dir(&self, target: &Target) -> Result<()>;

    /// Removes a file, a symbolic link (not its target) or a whole directory. Succeeds if the path does not exist.
    async fn remove(&self, target: &Target) -> Result<()>;

    /// Renames a file, symbolic link or directory. A file or symbolic link at the new name is replaced; a directory that is not
    /// empty is not, and nothing is moved into it.
    ///
    /// # Errors
    /// [`MachineError::NotFound`](crate::MachineError::NotFound) that names the path that is missing.
    async fn rename(&self, from: &Target, to: &Target) -> Result<()>;

    /// Indexes everything below a directory, as [`TreeIndex`] describes.
    ///
    /// # Errors
    /// [`MachineError::NotFound`](crate::MachineError::NotFound) if the directory does not exist.
    async fn scan(&self, root: &Target, options: &ScanOptions) -> Result<TreeIndex>;

    /// Packs everything below a directory into a tar stream. The entry of the root itself and the relative paths in `skip`,
    /// with everything below them, are left out.
    ///
    /// # Errors
    /// [`MachineError::NotFound`](crate::MachineError::NotFound), from this call and not from the stream, if the directory does
    /// not exist.
    async fn pack(&self, root: &Target, skip: &[OsString]) -> Result<ByteStream>;

    /// Unpacks a tar stream into a directory, which is created if it is missing. Files and symbolic links of the same name are
    /// replaced, everything else stays. Set-id bits are not granted.
    ///
    /// # Errors
    /// The archive is refused if a member would be written outside the directory (an absolute path, `..`, a path through a
    /// symbolic link, a hard link to the outside), if a member is a device or FIFO, or if the stream is not a complete archive.
    /// Members that were unpacked before the error may remain.
    async fn unpack(&self, root: &Target, tar: ByteStream) -> Result<()>;
}

/// Access to the commands of a machine by id, from every client that is attached to the machine.
///
/// Only on a machine with this facet do commands that were started as [`kept`](crate::Command::kept) survive the client that
/// started them.
#[async_trait]
pub trait Commands: Send + Sync {
    /// Lists the commands that run, and those that exited without a client and were not adopted since.
    async fn list(&self) -> Result<Vec<ProcessInfo>>;

    /// Attaches to a command that lost its client.
    ///
    /// The output that the command wrote meanwhile arrives first: at most its last mebibyte, after an
    /// [`Output::Omitted`](crate::Output::Omitted) if more was written. New output follows; input, signals and terminal sizes
    /// work as before. Output that was sent to the previous client but not received by it is sent again. A command that exited
    /// without a client delivers its output and exit once, and is then removed from the list.
    ///
    /// `Ok(None)` if there is no such command, or not any more.
    ///
    /// # Errors
    /// [`MachineError::Held`](crate::MachineError::Held) while another client is attached to the command.
    async fn adopt(&self, process: ProcessId) -> Result<Option<Process>>;

    /// Sends a signal to a command and everything it started, also while another client is attached to it. `false` if there
    /// is no such command.
    async fn signal(&self, process: ProcessId, signal: Signal) -> Result<bool>;
}

/// Ports of a machine that can be reached from outside.
#[async_trait]
pub trait Ports: Send + Sync {
    /// Makes a declared port reachable and returns its address, the same each time. A server inside may start to listen before
    /// or after this call.
    ///
    /// # Errors
    /// A port that is not in [`MachineSpec::ports`](crate::MachineSpec::ports) is refused.
    async fn open(&self, port: u16) -> Result<Endpoint>;
}

/// Snapshots that the provider takes and stores. [`MachineSpec::snapshot`] creates a machine from one.
///
/// [`MachineSpec::snapshot`]: crate::MachineSpec::snapshot
#[async_trait]
pub trait Snapshots: Send + Sync {
    /// Saves the current state of the machine and returns the id of the snapshot.
    async fn take(&self) -> Result<SnapshotId>;
}
