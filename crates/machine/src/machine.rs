//! A machine: six required methods, and four optional facets.

use std::{ffi::OsString, fmt};

use async_trait::async_trait;

use crate::{
    ByteStream, Command, Commands, DirEntry, Features, Files, MachineHandle, Ports, Process, Result, ScanOptions,
    Snapshots, Target, TreeIndex, posix,
};

/// A computer that runs commands and holds files. All code above the clients uses machines only through this trait.
///
/// A provider implements six methods. Each optional ability is a *facet*: a method that returns `Some` if the machine has it.
/// The operations of [`Files`] work on every machine: [`stat`](#method.stat), [`list`](#method.list) and the other methods of
/// `dyn Machine` use the facet if the machine has it, and POSIX tools on the machine otherwise.
///
/// Methods can be called at the same time from several tasks; one request that waits does not block the others. After the
/// machine stopped, every method fails promptly with [`MachineError::Gone`](crate::MachineError::Gone) or
/// [`MachineError::Transport`](crate::MachineError::Transport). Dropping the last reference to a machine with
/// [`Lifetime::WithOwner`](crate::Lifetime::WithOwner) stops it.
#[async_trait]
pub trait Machine: Send + Sync + fmt::Debug {
    /// Reference with which [`SandboxClient::attach`](crate::SandboxClient::attach) finds this machine again. It is the same
    /// for every attachment, and can be serialized.
    fn handle(&self) -> MachineHandle;

    /// Actual properties of the machine. They do not change.
    fn features(&self) -> &Features;

    /// Starts a command, with the guarantees of [`Process`].
    ///
    /// The environment is the machine's and the command's; no variable of the calling process reaches the command. A program
    /// that does not exist is not an error of this call: the command exits with 127, or with 126 if the program cannot be
    /// executed, and its standard error names the program.
    ///
    /// # Errors
    /// - [`MachineError::Invalid`](crate::MachineError::Invalid): there is no program, or an argument contains a NUL byte.
    /// - [`MachineError::NotFound`](crate::MachineError::NotFound): [`Command::cwd`] does not exist.
    /// - [`MachineError::Unsupported`](crate::MachineError::Unsupported): the machine has no terminals, no standard input or
    ///   no other users, see [`Features::refuse_lacking`]. The command is not run without them.
    /// - [`MachineError::Exhausted`](crate::MachineError::Exhausted): a limit on processes is reached.
    ///
    /// A command with an unknown [`Command::user`] is refused too.
    async fn spawn(&self, command: Command) -> Result<Process>;

    /// Reads a regular file. Symbolic links are followed, as far as [`Target::beneath`] allows.
    ///
    /// # Errors
    /// [`MachineError::NotFound`](crate::MachineError::NotFound) that names the path. A directory, FIFO, socket or device is
    /// refused promptly, with [`MachineError::File`](crate::MachineError::File) or another kind. Errors may come from this call
    /// or from the stream.
    async fn read(&self, target: &Target) -> Result<ByteStream>;

    /// Creates or replaces a regular file atomically: a reader sees the old bytes or the new bytes, never a mixture.
    ///
    /// Missing parent directories are created with mode 0755. A new file has mode 0644 and a replaced file keeps its mode,
    /// unless [`Target::mode`] is set.
    ///
    /// # Errors
    /// After an error, also one from `data`, the old file is unchanged and no partial file is left.
    ///
    /// - [`MachineError::Denied`](crate::MachineError::Denied): a symbolic link is at the path; it is never followed.
    /// - [`MachineError::Changed`](crate::MachineError::Changed): [`Target::expected`] is not met.
    /// - [`MachineError::Exhausted`](crate::MachineError::Exhausted): the disk is full.
    async fn write(&self, target: &Target, data: ByteStream) -> Result<()>;

    /// Ends every process of the machine, daemons included, for every client that is attached to it. Stopping a stopped
    /// machine succeeds.
    async fn stop(&self) -> Result<()>;

    /// File operations that the machine implements itself; `None` if POSIX tools on the machine do the work.
    fn files(&self) -> Option<&dyn Files> {
        None
    }

    /// Access to commands by id; without it, no command survives the client that started it.
    fn commands(&self) -> Option<&dyn Commands> {
        None
    }

    /// Ports that can be reached from outside.
    fn ports(&self) -> Option<&dyn Ports> {
        None
    }

    /// Snapshots that the provider takes and stores.
    fn snapshots(&self) -> Option<&dyn Snapshots> {
        None
    }
}

/// File operations on any machine: through [`Files`] if the machine has that facet, and through [`posix`] otherwise.
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
