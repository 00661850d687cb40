//! Specification of a new machine: workspace, mounts, network, limits, and the isolation that it must have.

use std::{collections::BTreeMap, fmt, fs, os::unix::fs::MetadataExt, path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{Accounts, Demand, Limits, MachinePath, Network};

/// Access of a machine to a file or directory of the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// The machine can read.
    #[default]
    ReadOnly,
    /// The machine can read and write.
    ReadWrite,
}

/// Source of the workspace directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Workspace {
    /// A new empty directory that is deleted with the machine.
    #[default]
    Temporary,
    /// A directory of the host, used in place; it is not deleted with the machine.
    Host {
        /// Path of the directory on the host.
        path: PathBuf,
        /// Whether the machine may change it.
        access: Access,
    },
}

/// Identity of a file or directory of the host, independent of its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileIdentity {
    /// Device number of the file system.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
}

impl From<&fs::Metadata> for FileIdentity {
    fn from(found: &fs::Metadata) -> Self {
        Self { device: found.dev(), inode: found.ino() }
    }
}

/// A file or directory of the host that is mounted into the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostMount {
    /// Path on the host.
    pub host: PathBuf,
    /// Path in the machine.
    pub inside: MachinePath,
    /// Whether the machine may change it.
    pub access: Access,
    /// Identity that the host path must still have when it is mounted; set by code that checked the path before.
    pub identity: Option<FileIdentity>,
}

/// The provider's id of a snapshot that it stores.
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
    /// Until the process that created the machine drops it or ends for any reason, also by a kill.
    #[default]
    WithOwner,
    /// Until a client stops or deletes the machine, or the host restarts. Every process of the user that has the handle can
    /// attach to the machine, several at the same time. A command ends with the client that started it, unless it was started
    /// as [`kept`](crate::Command::kept); its background processes stay.
    Detached,
    /// As [`Detached`](Self::Detached), but the machine also ends when no client has been attached for this long. A client
    /// that attaches and requests nothing pauses the lease without restarting it. A directory of the host that was the
    /// workspace stays.
    Leased(Duration),
}

/// Specification of a new machine. `MachineSpec::default()` has a temporary workspace, no network and full isolation.
///
/// A client refuses what it cannot provide instead of ignoring it: [`MachineSpec::refuse_unless`] checks every field.
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
    /// Source of the workspace directory.
    pub workspace: Workspace,
    /// Other files and directories of the host to mount.
    pub mounts: Vec<HostMount>,
    /// Variables of every command; [`Command::env`](crate::Command::env) overrides them.
    pub env: BTreeMap<String, String>,
    /// Network access of the machine.
    pub network: Network,
    /// Ports of the machine that may be reached from outside, through [`Ports`](crate::Ports).
    pub ports: Vec<u16>,
    /// Isolation that the machine must have; otherwise it is not created.
    pub isolation: Demand,
    /// Directory of the host with a whole file tree, used instead of the host's programs.
    pub rootfs: Option<PathBuf>,
    /// Resource limits.
    pub limits: Limits,
    /// Users and groups to create. A client whose machines have one user refuses more with [`MachineError::Users`].
    ///
    /// [`MachineError::Users`]: crate::MachineError::Users
    pub accounts: Accounts,
    /// How long the machine lives. A client that cannot provide this lifetime refuses it as unsupported.
    pub lifetime: Lifetime,
    /// Snapshot to start from, taken with [`Snapshots::take`] at the same provider.
    ///
    /// [`Snapshots::take`]: crate::Snapshots::take
    pub snapshot: Option<SnapshotId>,
}

/// Builder methods; each sets the field of the same name.
impl MachineSpec {
    /// Source of the workspace directory.
    #[must_use]
    pub fn workspace(self, workspace: Workspace) -> Self {
        Self { workspace, ..self }
    }

    /// Other files and directories of the host to mount.
    #[must_use]
    pub fn mounts(self, mounts: impl IntoIterator<Item = HostMount>) -> Self {
        Self { mounts: mounts.into_iter().collect(), ..self }
    }

    /// Variables of every command.
    #[must_use]
    pub fn env<N: Into<String>, V: Into<String>>(self, env: impl IntoIterator<Item = (N, V)>) -> Self {
        Self { env: env.into_iter().map(|(name, value)| (name.into(), value.into())).collect(), ..self }
    }

    /// Network access of the machine.
    #[must_use]
    pub fn network(self, network: Network) -> Self {
        Self { network, ..self }
    }

    /// Ports of the machine that may be reached from outside.
    #[must_use]
    pub fn ports(self, ports: impl IntoIterator<Item = u16>) -> Self {
        Self { ports: ports.into_iter().collect(), ..self }
    }

    /// Isolation that the machine must have; otherwise it is not created.
    #[must_use]
    pub fn isolation(self, isolation: Demand) -> Self {
        Self { isolation, ..self }
    }

    /// Directory of the host with a whole file tree, used instead of the host's programs.
    #[must_use]
    pub fn rootfs(self, rootfs: impl Into<PathBuf>) -> Self {
        Self { rootfs: Some(rootfs.into()), ..self }
    }

    /// Resource limits.
    #[must_use]
    pub fn limits(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }

    /// Users and groups to create.
    #[must_use]
    pub fn accounts(self, accounts: Accounts) -> Self {
        Self { accounts, ..self }
    }

    /// How long the machine lives.
    #[must_use]
    pub fn lifetime(self, lifetime: Lifetime) -> Self {
        Self { lifetime, ..self }
    }

    /// Snapshot to start from.
    #[must_use]
    pub fn snapshot(self, snapshot: SnapshotId) -> Self {
        Self { snapshot: Some(snapshot), ..self }
    }
}
