//! A machine in memory whose changes and reads a test takes part in.

use std::{ffi::OsString, fmt};

use async_trait::async_trait;
use sandbar_machine::{
    ByteStream, Command, DirEntry, Features, Files, Machine, MachineHandle, MemoryMachine, Process, Result,
    ScanOptions, Target, TreeIndex,
};

/// What a test does at each step.
#[async_trait]
pub(super) trait Watch: Send + Sync + fmt::Debug {
    /// Before a file is written or removed; an error stands for it.
    async fn before_change(&self) -> Result<()> {
        Ok(())
    }

    /// After a file was read.
    async fn after_read(&self, _machine: &MemoryMachine, _target: &Target) -> Result<()> {
        Ok(())
    }
}

#[derive(Debug)]
pub(super) struct Watched<W> {
    pub(super) machine: MemoryMachine,
    pub(super) watch: W,
}

#[async_trait]
impl<W: Watch> Machine for Watched<W> {
    fn handle(&self) -> MachineHandle {
        self.machine.handle()
    }

    fn features(&self) -> &Features {
        self.machine.features()
    }

    async fn spawn(&self, command: Command) -> Result<Process> {
        self.machine.spawn(command).await
    }

    async fn read(&self, target: &Target) -> Result<ByteStream> {
        let bytes = self.machine.read(target).await?;
        self.watch.after_read(&self.machine, target).await?;
        Ok(bytes)
    }

    async fn write(&self, target: &Target, data: ByteStream) -> Result<()> {
        self.watch.before_change().await?;
        self.machine.write(target, data).await
    }

    async fn stop(&self) -> Result<()> {
        self.machine.stop().await
    }

    fn files(&self) -> Option<&dyn Files> {
        Some(self)
    }
}

#[async_trait]
impl<W: Watch> Files for Watched<W> {
    async fn stat(&self, target: &Target) -> Result<Option<DirEntry>> {
        self.machine.stat(target).await
    }

    async fn list(&self, target: &Target) -> Result<Vec<DirEntry>> {
        self.machine.list(target).await
    }

    async fn make_dir(&self, target: &Target) -> Result<()> {
        self.machine.make_dir(target).await
    }

    async fn remove(&self, target: &Target) -> Result<()> {
        self.watch.before_change().await?;
        self.machine.remove(target).await
    }

    async fn rename(&self, from: &Target, to: &Target) -> Result<()> {
        self.machine.rename(from, to).await
    }

    async fn scan(&self, root: &Target, options: &ScanOptions) -> Result<TreeIndex> {
        self.machine.scan(root, options).await
    }

    async fn pack(&self, root: &Target, skip: &[OsString]) -> Result<ByteStream> {
        self.machine.pack(root, skip).await
    }

    async fn unpack(&self, root: &Target, tar: ByteStream) -> Result<()> {
        self.machine.unpack(root, tar).await
    }
}
