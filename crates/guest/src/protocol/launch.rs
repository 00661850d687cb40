//! The launch message: what a machine consists of, sent to its supervisor before the machine exists, or to PID 1 of a
//! container.

use super::{
    Accounts, Detached, MAX_MEMO, WireError,
    wire::{Reader, Writer},
};

/// Isolation level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Level {
    /// No isolation.
    None,
    /// Landlock and seccomp, no namespaces.
    Landlock,
    /// Namespaces, mounts, Landlock and seccomp.
    #[default]
    Full,
}

/// A file or directory of the host, and which file its path must still lead to when it is opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostPath {
    /// Absolute path without symbolic links.
    pub path: Vec<u8>,
    /// Device number.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
}

impl HostPath {
    fn write(&self, to: &mut Writer<'_>) {
        to.bytes(&self.path);
        to.u64(self.device);
        to.u64(self.inode);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Self { path: from.string()?, device: from.u64()?, inode: from.u64()? })
    }
}

/// A mount of a host file or directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LaunchMount {
    /// Source on the host.
    pub host: HostPath,
    /// Path inside the machine.
    pub inside: Vec<u8>,
    /// Whether it is writable.
    pub writable: bool,
}

/// Description of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Launch {
    /// Must equal [`super::VERSION`].
    pub version: u32,
    /// Required isolation level.
    pub level: Level,
    /// Directory of this user's live machines. The supervisor creates `state/id` in it and removes it.
    pub state: Vec<u8>,
    /// Name of the machine's directory in `state`.
    pub id: Vec<u8>,
    /// Whether to remove leftovers of dead machines from `state`.
    pub sweep: bool,
    /// Host directory to use as the workspace, and whether it is writable; `None` means a temporary workspace.
    pub workspace: Option<(HostPath, bool)>,
    /// Further mounts.
    pub mounts: Vec<LaunchMount>,
    /// Complete file tree to use instead of the host's programs.
    pub rootfs: Option<HostPath>,
    /// Whether the machine shares the host's network.
    pub host_network: bool,
    /// Size of `/tmp` and of `/dev/shm`, in bytes each.
    pub tmp_bytes: u64,
    /// Most processes.
    pub pids: u64,
    /// Most open files of a process.
    pub open_files: u64,
    /// Most bytes of memory of all processes together.
    pub memory: Option<u64>,
    /// Processor time of all processes together, in thousandths of a processor.
    pub cpus: Option<u32>,
    /// Most bytes in the workspace and the homes.
    pub disk: Option<u64>,
    /// Accounts to add.
    pub accounts: Accounts,
    /// Settings of a machine that outlives its maker; `None` for one that ends with its maker.
    pub detached: Option<Detached>,
    /// uid and gid that own the home and the workspace of a container; PID 1 switches to them unless the machine has
    /// several users.
    pub owner: Option<(u32, u32)>,
}

impl Launch {
    /// Encodes the message.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut to = Writer(&mut out);
        to.u32(self.version);
        to.u8(match self.level {
            Level::None => 0,
            Level::Landlock => 1,
            Level::Full => 2,
        });
        to.bytes(&self.state);
        to.bytes(&self.id);
        to.flag(self.sweep);
        to.option(self.workspace.as_ref(), |to, (host, writable)| {
            host.write(to);
            to.flag(*writable);
        });
        to.list(&self.mounts, |to, mount| {
            mount.host.write(to);
            to.bytes(&mount.inside);
            to.flag(mount.writable);
        });
        to.option(self.rootfs.as_ref(), |to, host| host.write(to));
        to.flag(self.host_network);
        to.u64(self.tmp_bytes);
        to.u64(self.pids);
        to.u64(self.open_files);
        to.option(self.memory.as_ref(), |to, bytes| to.u64(*bytes));
        to.option(self.cpus.as_ref(), |to, thousandths| to.u32(*thousandths));
        to.option(self.disk.as_ref(), |to, bytes| to.u64(*bytes));
        self.accounts.write(&mut to);
        to.option(self.detached.as_ref(), |to, detached| {
            to.bytes(&detached.nonce);
            to.bytes(&detached.memo);
            to.u64(detached.lease_ms);
        });
        to.option(self.owner.as_ref(), |to, (user, group)| {
            to.u32(*user);
            to.u32(*group);
        });
        out
    }

    /// Encodes the message with its length in front, as it is sent over a stream.
    ///
    /// # Errors
    /// When the length does not fit 32 bits.
    pub fn encode_framed(&self) -> Result<Vec<u8>, WireError> {
        let message = self.encode();
        let length = u32::try_from(message.len()).map_err(|_| WireError("a message is too long"))?;
        Ok([&length.to_le_bytes(), message.as_slice()].concat())
    }

    /// Decodes the message.
    ///
    /// # Errors
    /// When the bytes are not exactly one message.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let mut from = Reader(bytes);
        let launch = Self {
            version: from.u32()?,
            level: match from.u8()? {
                0 => Level::None,
                1 => Level::Landlock,
                2 => Level::Full,
                _ => return Err(WireError("a choice is unknown")),
            },
            state: from.string()?,
            id: from.string()?,
            sweep: from.flag()?,
            workspace: from.option(|from| Ok((HostPath::read(from)?, from.flag()?)))?,
            mounts: from.list(|from| {
                Ok(LaunchMount { host: HostPath::read(from)?, inside: from.string()?, writable: from.flag()? })
            })?,
            rootfs: from.option(HostPath::read)?,
            host_network: from.flag()?,
            tmp_bytes: from.u64()?,
            pids: from.u64()?,
            open_files: from.u64()?,
            memory: from.option(Reader::u64)?,
            cpus: from.option(Reader::u32)?,
            disk: from.option(Reader::u64)?,
            accounts: Accounts::read(&mut from)?,
            detached: from.option(|from| {
                let nonce = from.bytes()?.try_into().map_err(|_| WireError("a nonce is not 16 bytes"))?;
                Ok(Detached { nonce, memo: from.bytes()?, lease_ms: from.u64()? })
            })?,
            owner: from.option(|from| Ok((from.u32()?, from.u32()?)))?,
        };
        from.end()?;
        if launch.detached.as_ref().is_some_and(|detached| detached.memo.len() > MAX_MEMO) {
            return Err(WireError("its memo is too long"));
        }
        if launch.id.is_empty() || launch.id.contains(&b'/') || launch.id.starts_with(b".") {
            return Err(WireError("the machine's name is not a plain file name"));
        }
        Ok(launch)
    }
}
