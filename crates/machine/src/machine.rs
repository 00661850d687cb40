//! The machine itself: six things every one can do, and four facets that only some have.

use std::{ffi::OsString, fmt};

use async_trait::async_trait;

use crate::{
    ByteStream, Command, Commands, DirEntry, Features, Files, MachineHandle, Ports, Process, Result, ScanOptions,
    Snapshots, Target, TreeIndex, posix,
};

/// A computer that acts. Everything above the waist talks to machines through this and nothing else.
///
/// Six methods have to be provided. Everything optional is a *facet*: a machine has it or not, and nothing else says so.
/// What [`Files`] does can be done without it, by POSIX tools: call [`stat`](#method.stat), [`list`](#method.list) and the
/// other methods of `dyn Machine`, which take the facet where there is one.
#[async_trait]
pub trait Machine: Send + Sync + fmt::Debug {
    /// What finds it again.
    fn handle(&self) -> MachineHandle;

    /// What it turned out to be.
    fn features(&self) -> &Features;

    /// Starts a command. A program that does not exist or cannot be executed is not an error here: it exits 127 or 126.
    async fn spawn(&self, command: Command) -> Result<Process>;

    /// A regular file's bytes.
    async fn read(&self, target: &Target) -> Result<ByteStream>;

    /// Replaces or makes a file in one step: readers see the old bytes or the new, never a mixture. Missing parents are
    /// made; an existing file keeps its permissions; a symbolic link at the path is refused.
    async fn write(&self, target: &Target, data: ByteStream) -> Result<()>;

    /// Ends every process. Stopping a stopped machine is fine. A detached machine ends for every client attached to it.
    async fn stop(&self) -> Result<()>;

    /// File operations of its own; without them, POSIX tools on the machine do the same.
    fn files(&self) -> Option<&dyn Files> {
        None
    }

    /// Commands that are known by number and can outlive the client that started them.
    fn commands(&self) -> Option<&dyn Commands> {
        None
    }

    /// Ports that can be reached from outside.
    fn ports(&self) -> Option<&dyn Ports> {
        None
    }

    /// Snapshots in the provider's own way.
    fn snapshots(&self) -> Option<&dyn Snapshots> {
        None
    }
}

/// File operations of any machine: its own where it has them, POSIX tools where it has none.
impl dyn Machine + '_ {
    /// See [`Files::stat`].
    ///
    /// # Errors
    /// Those of [`Files::stat`] or [`posix::stat`].
    pub async fn stat(&self, target: &Target) -> Result<Option<DirEntry>> {
        match self.files() {
            Some(files) => files.stat(target).await,
            None => posix::stat(self, target).await,
        }
    }

    /// See [`Files::list`].
    ///
    /// # Errors
    /// Those of [`Files::list`] or [`posix::list`].
    pub async fn list(&self, target: &Target) -> Result<Vec<DirEntry>> {
        match self.files() {
            Some(files) => files.list(target).await,
            None => posix::list(self, target).await,
        }
    }

    /// See [`Files::make_dir`].
    ///
    /// # Errors
    /// Those of [`Files::make_dir`] or [`posix::make_dir`].
    pub async fn make_dir(&self, target: &Target) -> Result<()> {
        match self.files() {
            Some(files) => files.make_dir(target).await,
            None => posix::make_dir(self, target).await,
        }
    }

    /// See [`Files::remove`].
    ///
    /// # Errors
    /// Those of [`Files::remove`] or [`posix::remove`].
    pub async fn remove(&self, target: &Target) -> Result<()> {
        match self.files() {
            Some(files) => files.remove(target).await,
            None => posix::remove(self, target).await,
        }
    }

    /// See [`Files::rename`].
    ///
    /// # Errors
    /// Those of [`Files::rename`] or [`posix::rename`].
    pub async fn rename(&self, from: &Target, to: &Target) -> Result<()> {
        match self.files() {
            Some(files) => files.rename(from, to).await,
            None => posix::rename(self, from, to).await,
        }
    }

    /// See [`Files::scan`].
    ///
    /// # Errors
    /// Those of [`Files::scan`] or [`posix::scan`].
    pub async fn scan(&self, root: &Target, options: &ScanOptions) -> Result<TreeIndex> {
        match self.files() {
            Some(files) => files.scan(root, options).await,
            None => posix::scan(self, root, options).await,
        }
    }

    /// See [`Files::pack`].
    ///
    /// # Errors
    /// Those of [`Files::pack`] or [`posix::pack`].
    pub async fn pack(&self, root: &Target, skip: &[OsString]) -> Result<ByteStream> {
        match self.files() {
            Some(files) => files.pack(root, skip).await,
            None => posix::pack(self, root, skip).await,
        }
    }

    /// See [`Files::unpack`].
    ///
    /// # Errors
    /// Those of [`Files::unpack`] or [`posix::unpack`].
    pub async fn unpack(&self, root: &Target, tar: ByteStream) -> Result<()> {
        match self.files() {
            Some(files) => files.unpack(root, tar).await,
            None => posix::unpack(self, root, tar).await,
        }
    }
}
