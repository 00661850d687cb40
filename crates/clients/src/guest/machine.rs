//! The methods of a machine and of its facets, as requests to the guest.

use std::{ffi::OsString, io, os::unix::ffi::OsStrExt, time::Duration};

use async_trait::async_trait;
use sandbar_guest::protocol::Open;
use sandbar_machine::{
    ByteStream, Command, Commands, DirEntry, Features, Files, Hashes, Machine, MachineError, MachineHandle, Ports,
    Process, ProcessId, ProcessInfo, Result, ScanOptions, Signal, Target, TreeIndex,
};

use super::{
    Channel, GuestMachine, commands, entries, environment,
    files::{self, FileOp, INDEX, at},
    lane::Shape,
    link::End,
    process,
};

/// How long a guest may take to end every process before the machine is ended from outside.
const STOP_PATIENCE: Duration = Duration::from_secs(3);

#[async_trait]
impl Machine for GuestMachine {
    fn handle(&self) -> MachineHandle {
        self.about.handle.clone()
    }

    fn features(&self) -> &Features {
        &self.about.features
    }

    async fn spawn(&self, command: Command) -> Result<Process> {
        let (spawn, cwd) = environment::compose(command, &self.about)?;
        process::start(&self.end, spawn, &cwd, self.about.output_buffer).await
    }

    async fn read(&self, target: &Target) -> Result<ByteStream> {
        files::download(&self.link, FileOp::new("read", target), Open::Read(at(target)?)).await
    }

    async fn write(&self, target: &Target, data: ByteStream) -> Result<()> {
        files::upload(&self.link, &FileOp::new("write", target), Open::Write(at(target)?), data).await
    }

    async fn stop(&self) -> Result<()> {
        self.link.stopping();
        if self.link.ended().is_none()
            && let Ok(channel) = Channel::open(&self.link, Shape::Plain, 0, Open::Stop).await
        {
            // `Done` or the end of the connection: both mean that the guest received the request. A silent guest is cut
            // off below.
            let _heard = tokio::time::timeout(STOP_PATIENCE, channel.next()).await;
        }
        self.link.end(End::Gone);
        if let Some(ports) = &self.ports {
            ports.close().await;
        }
        self.end.remove().await
    }

    fn files(&self) -> Option<&dyn Files> {
        Some(self)
    }

    fn commands(&self) -> Option<&dyn Commands> {
        Some(self)
    }

    fn ports(&self) -> Option<&dyn Ports> {
        self.ports.as_ref().map(|ports| ports as &dyn Ports)
    }
}

#[async_trait]
impl Commands for GuestMachine {
    async fn list(&self) -> Result<Vec<ProcessInfo>> {
        commands::list(&self.link).await
    }

    async fn adopt(&self, process: ProcessId) -> Result<Option<Process>> {
        process::adopt(&self.link, process, self.about.output_buffer).await
    }

    async fn signal(&self, process: ProcessId, signal: Signal) -> Result<bool> {
        commands::signal(&self.link, process, signal).await
    }
}

#[async_trait]
impl Files for GuestMachine {
    async fn stat(&self, target: &Target) -> Result<Option<DirEntry>> {
        let op = FileOp::new("stat", target);
        match files::records(&self.link, &op, Open::Stat(at(target)?), INDEX).await {
            Ok(records) => {
                let entry = entries::single(records, &target.path);
                entry.map(Some).map_err(|how| self.link.violated("stat", how))
            }
            Err(MachineError::NotFound(_)) => Ok(None),
            Err(MachineError::File { source, .. }) if source.kind() == io::ErrorKind::NotADirectory => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn list(&self, target: &Target) -> Result<Vec<DirEntry>> {
        let records = files::records(&self.link, &FileOp::new("list", target), Open::List(at(target)?), INDEX).await?;
        entries::directory(records).map_err(|how| self.link.violated("list", how))
    }

    async fn make_dir(&self, target: &Target) -> Result<()> {
        files::plain(&self.link, &FileOp::new("make the directory", target), Open::MakeDir(at(target)?)).await
    }

    async fn remove(&self, target: &Target) -> Result<()> {
        match files::plain(&self.link, &FileOp::new("remove", target), Open::Remove(at(target)?)).await {
            Err(MachineError::NotFound(_)) => Ok(()),
            outcome => outcome,
        }
    }

    async fn rename(&self, from: &Target, to: &Target) -> Result<()> {
        files::plain(&self.link, &FileOp::new("rename", from), Open::Rename(at(from)?, at(to)?)).await
    }

    async fn scan(&self, root: &Target, options: &ScanOptions) -> Result<TreeIndex> {
        let open = Open::Scan(at(root)?, skipped(&options.skip)?, options.hashes == Hashes::Sha256);
        let records = files::records(&self.link, &FileOp::new("scan", root), open, INDEX).await?;
        entries::tree(records).map_err(|how| self.link.violated("scan", how))
    }

    async fn pack(&self, root: &Target, skip: &[OsString]) -> Result<ByteStream> {
        files::archive(&self.link, FileOp::new("pack", root), Open::Pack(at(root)?, skipped(skip)?)).await
    }

    async fn unpack(&self, root: &Target, tar: ByteStream) -> Result<()> {
        files::upload(&self.link, &FileOp::new("unpack into", root), Open::Unpack(at(root)?), tar).await
    }
}

/// Relative paths to leave out, in the guest's form.
fn skipped(skip: &[OsString]) -> Result<Vec<Vec<u8>>> {
    let plain = |path: &OsString| {
        let bytes = path.as_bytes();
        if bytes.is_empty() || bytes.starts_with(b"/") || bytes.contains(&0) {
            return Err(MachineError::invalid(format!("skipped path {path:?}"), "must be a path relative to the root"));
        }
        Ok(bytes.to_vec())
    };
    skip.iter().map(plain).collect()
}
