//! What a new machine should be: workspace, mounts, network, limits, and the isolation below which it must not exist.

use std::{collections::BTreeMap, fmt, fs, os::unix::fs::MetadataExt, path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{Accounts, Demand, Limits, MachinePath, Network};

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
    /// What the path must still lead to when it is shown; given by the code that judged the path before.
    pub identity: Option<FileIdentity>,
}

/// A snapshot that a provider took and keeps, by the provider's own name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SnapshotId(pub String);

impl fmt::Display for SnapshotId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// How long a machine lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Lifetime {
    /// Until the process that made it drops it or ends, for whatever reason.
    #[default]
    WithOwner,
    /// Until a client stops or deletes it, or the host restarts. Every process of the user that has its handle can attach
    /// to it, several at the same time. Commands end with the holder that started them, unless they were started as
    /// [`kept`](crate::Command::kept); what they left in the background stays.
    Detached,
    /// The same, but it also ends by itself when no client has been attached to it for this long. A client that attaches
    /// and asks for nothing stops that clock and does not turn it back. A directory of the host that was its workspace
    /// stays.
    Leased(Duration),
}

/// What a new machine should be. `MachineSpec::default()` is a temporary workspace, no network, full isolation.
///
/// A client refuses what it cannot give, field by field: [`MachineSpec::refuse_unless`].
///
/// ```
/// use sandbar_machine::{MachineSpec, Network};
///
/// let spec = MachineSpec::default().network(Network::Host).ports([8080]);
/// assert_eq!(spec.ports, [8080]);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MachineSpec {
    /// Where `/workspace` comes from.
    pub workspace: Workspace,
    /// What else of the host is shown.
    pub mounts: Vec<HostMount>,
    /// Variables every command gets.
    pub env: BTreeMap<String, String>,
    /// What it can reach.
    pub network: Network,
    /// Ports inside that may be reached from outside.
    pub ports: Vec<u16>,
    /// The isolation without which nothing runs.
    pub isolation: Demand,
    /// A directory with a whole file tree to use instead of the host's programs.
    pub rootfs: Option<PathBuf>,
    /// What it may use up.
    pub limits: Limits,
    /// The users and groups it shall have. A client whose machines have one user refuses more with
    /// [`MachineError::Users`].
    ///
    /// [`MachineError::Users`]: crate::MachineError::Users
    pub accounts: Accounts,
    /// How long it lives. A client that cannot keep this refuses it as unsupported.
    pub lifetime: Lifetime,
    /// The snapshot it begins as, taken by [`Snapshots::take`] of the same provider.
    ///
    /// [`Snapshots::take`]: crate::Snapshots::take
    pub snapshot: Option<SnapshotId>,
}

/// Each sets the field of its name.
impl MachineSpec {
    /// Where `/workspace` comes from.
    #[must_use]
    pub fn workspace(self, workspace: Workspace) -> Self {
        Self { workspace, ..self }
    }

    /// What else of the host is shown.
    #[must_use]
    pub fn mounts(self, mounts: impl IntoIterator<Item = HostMount>) -> Self {
        Self { mounts: mounts.into_iter().collect(), ..self }
    }

    /// Variables every command gets.
    #[must_use]
    pub fn env<N: Into<String>, V: Into<String>>(self, env: impl IntoIterator<Item = (N, V)>) -> Self {
        Self { env: env.into_iter().map(|(name, value)| (name.into(), value.into())).collect(), ..self }
    }

    /// What it can reach.
    #[must_use]
    pub fn network(self, network: Network) -> Self {
        Self { network, ..self }
    }

    /// Ports inside that may be reached from outside.
    #[must_use]
    pub fn ports(self, ports: impl IntoIterator<Item = u16>) -> Self {
        Self { ports: ports.into_iter().collect(), ..self }
    }

    /// The isolation without which nothing runs.
    #[must_use]
    pub fn isolation(self, isolation: Demand) -> Self {
        Self { isolation, ..self }
    }

    /// A directory with a whole file tree to use instead of the host's programs.
    #[must_use]
    pub fn rootfs(self, rootfs: impl Into<PathBuf>) -> Self {
        Self { rootfs: Some(rootfs.into()), ..self }
    }

    /// What it may use up.
    #[must_use]
    pub fn limits(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }

    /// The users and groups it shall have.
    #[must_use]
    pub fn accounts(self, accounts: Accounts) -> Self {
        Self { accounts, ..self }
    }

    /// How long it lives.
    #[must_use]
    pub fn lifetime(self, lifetime: Lifetime) -> Self {
        Self { lifetime, ..self }
    }

    /// The snapshot it begins as.
    #[must_use]
    pub fn snapshot(self, snapshot: SnapshotId) -> Self {
        Self { snapshot: Some(snapshot), ..self }
    }
}
