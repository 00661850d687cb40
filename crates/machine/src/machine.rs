//! The machine itself: six things every one can do, eight more with POSIX fallbacks, five only some have.

use std::{fmt, net::SocketAddr};

use async_trait::async_trait;

use crate::{
    ByteStream, Command, DirEntry, Features, MachineError, MachineHandle, Process, ProcessId, ProcessInfo, Result,
    ScanOptions, Signal, Target, TreeIndex, posix,
};

/// Where a port of a machine can be reached from the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The address to connect to.
    pub address: SocketAddr,
}

/// A computer that acts. Everything above the waist talks to machines through this and nothing else.
#[async_trait]
// tidy: allow(trait-size) — six have to be provided, and all others have defaults
pub trait Machine: Send + Sync + fmt::Debug {
    /// What finds it again.
    fn handle(&self) -> MachineHandle;

    /// What it turned out to be.
    fn features(&self) -> Features;

    /// Starts a command. A program that does not exist or cannot be executed is not an error here: it exits 127 or 126.
    async fn spawn(&self, command: Command) -> Result<Process>;

    /// A regular file's bytes.
    async fn read(&self, target: &Target) -> Result<ByteStream>;

    /// Replaces or makes a file in one step: readers see the old bytes or the new, never a mixture. Missing parents are
    /// made; an existing file keeps its permissions; a symbolic link at the path is refused.
    async fn write(&self, target: &Target, data: ByteStream) -> Result<()>;

    /// Ends every process. Stopping a stopped machine is fine. A detached machine ends for everyone who holds it.
    async fn stop(&self) -> Result<()>;

    /// The commands it knows: those that run, and those that ended alone and were not collected. A machine that does not
    /// know its commands by number has none.
    async fn processes(&self) -> Result<Vec<ProcessInfo>> {
        Ok(Vec::new())
    }

    /// Takes over a command that outlived its holder: what it printed meanwhile comes first, at most the last mebibyte of
    /// it, then what it prints now; input, signals and sizes work as before. What the last holder had been sent but never
    /// took is sent again. One that ended alone gives its output and exit, and is then forgotten.
    ///
    /// `Ok(None)`: there is no such command, or no longer.
    ///
    /// # Errors
    /// [`MachineError::Held`] while another client holds it.
    async fn adopt(&self, process: ProcessId) -> Result<Option<Process>> {
        let _knows_none = process;
        Ok(None)
    }

    /// Sends a signal to a command and everything it started, whoever holds it; `false` when there is no such command.
    async fn signal(&self, process: ProcessId, signal: Signal) -> Result<bool> {
        let _knows_none = (process, signal);
        Ok(false)
    }

    /// Makes a declared port reachable from the host.
    async fn port(&self, port: u16) -> Result<Endpoint> {
        let _no_fallback = port;
        Err(MachineError::Unsupported("expose ports"))
    }

    /// What is at a path, links not followed; `None` when nothing is.
    async fn stat(&self, target: &Target) -> Result<Option<DirEntry>> {
        posix::stat(self, target).await
    }

    /// A directory's entries, by name.
    async fn list(&self, target: &Target) -> Result<Vec<DirEntry>> {
        posix::list(self, target).await
    }

    /// Makes a directory and its missing parents; one that exists is fine.
    async fn make_dir(&self, target: &Target) -> Result<()> {
        posix::make_dir(self, target).await
    }

    /// Removes a file, a link or a whole directory; what is not there is fine.
    async fn remove(&self, target: &Target) -> Result<()> {
        posix::remove(self, target).await
    }

    /// Gives a thing another name, replacing a file of that name.
    async fn rename(&self, from: &Target, to: &Target) -> Result<()> {
        posix::rename(self, from, to).await
    }

    /// The index of a tree.
    async fn scan(&self, root: &Target, options: &ScanOptions) -> Result<TreeIndex> {
        posix::scan(self, root, options).await
    }

    /// A tree as a tar stream, its root's own entry left out.
    async fn pack(&self, root: &Target, skip: &[std::ffi::OsString]) -> Result<ByteStream> {
        posix::pack(self, root, skip).await
    }

    /// Unpacks a tar stream below a directory, which is made if missing. Members that would land outside it are refused.
    async fn unpack(&self, root: &Target, tar: ByteStream) -> Result<()> {
        posix::unpack(self, root, tar).await
    }

    /// Saves the machine in the provider's own way and names the result.
    async fn snapshot(&self) -> Result<String> {
        Err(MachineError::Unsupported("take snapshots of its own"))
    }
}
