//! The launch message: what a machine consists of, sent to its supervisor before the machine exists, or to PID 1 of a
//! container.

use super::{Accounts, Detached, MAX_MEMO, WireError, wire};

wire! {
    /// Isolation level.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum Level {
        /// No isolation.
        None = 0,
        /// Landlock and seccomp, no namespaces.
        Landlock = 1,
        /// Namespaces, mounts, Landlock and seccomp.
        #[default]
        Full = 2,
    }
    unknown "a choice is unknown";
}

wire! {
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
}

wire! {
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
}

wire! {
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
    check Launch::check;
}

impl Launch {
    /// Encodes the message.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        wire::encode(self)
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
        wire::decode(bytes)
    }

    fn check(&self) -> Result<(), WireError> {
        if self.detached.as_ref().is_some_and(|detached| detached.memo.len() > MAX_MEMO) {
            return Err(WireError("its memo is too long"));
        }
        if self.id.is_empty() || self.id.contains(&b'/') || self.id.starts_with(b".") {
            return Err(WireError("the machine's name is not a plain file name"));
        }
        Ok(())
    }
}
