//! What a new machine should be: workspace, mounts, network, limits, and the isolation below which it must not exist.

use std::{collections::BTreeMap, fs, os::unix::fs::MetadataExt, path::PathBuf, time::Duration};

use crate::{Accounts, Isolation, Limits, MachinePath};

/// What may be done with something of the host's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// Reading.
    #[default]
    ReadOnly,
    /// Reading and writing.
    ReadWrite,
}

/// Where `/workspace` comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Workspace {
    /// A new empty directory that is deleted with the machine.
    #[default]
    Temporary,
    /// A directory of the host, used in place.
    Host {
        /// Which.
        path: PathBuf,
        /// Whether the machine may change it.
        access: Access,
    },
}

/// Which file or directory a path leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileIdentity {
    /// The file system it is on.
    pub device: u64,
    /// Its number there.
    pub inode: u64,
}

impl From<&fs::Metadata> for FileIdentity {
    fn from(found: &fs::Metadata) -> Self {
        Self { device: found.dev(), inode: found.ino() }
    }
}

/// A file or directory of the host, shown inside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostMount {
    /// On the host.
    pub host: PathBuf,
    /// In the machine.
    pub inside: MachinePath,
    /// Whether the machine may change it.
    pub access: Access,
    /// What the path must still lead to when it is shown; whoever judged the path before gives it.
    pub identity: Option<FileIdentity>,
}

/// What the machine can reach.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Network {
    /// Its own loopback, nothing else.
    #[default]
    Off,
    /// The host's network, all of it.
    Host,
}

/// How long a machine lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lifetime {
    /// Until whoever made it drops it or ends, for whatever reason.
    #[default]
    WithOwner,
    /// Until somebody stops or deletes it, or the host restarts. Whoever has its handle can attach to it, several at the
    /// same time. Commands end with the holder that started them, unless they were started as
    /// [`kept`](crate::Command::kept); what they left in the background stays.
    Detached,
    /// The same, but it also ends by itself when nobody has been attached to it for this long. Who attaches and asks for
    /// nothing stops that clock and does not turn it back. A directory of the host that was its workspace stays.
    Leased(Duration),
}

/// What a new machine should be. `MachineSpec::default()` is a temporary workspace, no network, full isolation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MachineSpec {
    /// Where `/workspace` comes from.
    pub workspace: Workspace,
    /// What else of the host is shown.
    pub mounts: Vec<HostMount>,
    /// Variables every command gets.
    pub env: BTreeMap<String, String>,
    /// What it can reach.
    pub network: Network,
    /// Ports inside that may be reached from the host's loopback.
    pub ports: Vec<u16>,
    /// The level below which nothing runs.
    pub isolation: Isolation,
    /// A directory with a whole file tree to use instead of the host's programs.
    pub rootfs: Option<PathBuf>,
    /// What it may use up.
    pub limits: Limits,
    /// Whom it shall know. A client whose machines have one user refuses more with [`MachineError::Users`].
    ///
    /// [`MachineError::Users`]: crate::MachineError::Users
    pub accounts: Accounts,
    /// How long it lives. A client that cannot keep this refuses it as unsupported.
    pub lifetime: Lifetime,
}
