//! What a machine turned out to be: the isolation reached and each limit's strength.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{MachineError, MachinePath};

/// How far a machine is kept from its host, weakest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Isolation {
    /// Not at all: commands are ordinary processes of the user.
    None,
    /// Landlock and seccomp on the host's own file tree; for places without user namespaces.
    Landlock,
    /// Own namespaces and file tree, no capabilities, seccomp and Landlock.
    #[default]
    Full,
    /// A container of an engine, with the engine's own walls.
    Container,
}

impl Isolation {
    /// The name used on the command line and in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Landlock => "landlock",
            Self::Full => "full",
            Self::Container => "container",
        }
    }
}

impl fmt::Display for Isolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Isolation {
    type Err = MachineError;

    fn from_str(name: &str) -> Result<Self, MachineError> {
        match name {
            "none" => Ok(Self::None),
            "landlock" => Ok(Self::Landlock),
            "full" => Ok(Self::Full),
            _ => Err(MachineError::invalid(format!("isolation level {name:?}"), "must be full, landlock or none")),
        }
    }
}

/// How strongly something is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Enforcement {
    /// The kernel refuses to go past it.
    Hard,
    /// Watched, and acted on after the fact.
    Soft,
    /// Not limited at all here.
    Unavailable,
}

impl Enforcement {
    /// The stronger of two.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::Hard, _) | (_, Self::Hard) => Self::Hard,
            (Self::Soft, _) | (_, Self::Soft) => Self::Soft,
            _ => Self::Unavailable,
        }
    }
}

/// How strongly each limit is held on a machine. One that nobody asked for holds nothing: it is unavailable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitReport {
    /// Number of processes.
    pub pids: Enforcement,
    /// Open files in a process.
    pub open_files: Enforcement,
    /// Core dumps (always off where hard).
    pub core: Enforcement,
    /// Size of `/tmp` and `/dev/shm`.
    pub tmp: Enforcement,
    /// Running time of a command.
    pub time: Enforcement,
    /// Memory.
    pub memory: Enforcement,
    /// CPU share.
    pub cpu: Enforcement,
    /// Size of the workspace.
    pub disk: Enforcement,
}

impl LimitReport {
    /// Nothing is limited.
    pub const NONE: Self = Self {
        pids: Enforcement::Unavailable,
        open_files: Enforcement::Unavailable,
        core: Enforcement::Unavailable,
        tmp: Enforcement::Unavailable,
        time: Enforcement::Unavailable,
        memory: Enforcement::Unavailable,
        cpu: Enforcement::Unavailable,
        disk: Enforcement::Unavailable,
    };
}

/// What a machine can do and what holds it: achieved, not asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Features {
    /// The level reached.
    pub isolation: Isolation,
    /// The layers that make it up, by name: `user namespace`, `seccomp`, `landlock abi 7`.
    pub layers: Vec<String>,
    /// Whether commands can have terminals.
    pub pty: bool,
    /// Whether commands can have standard input.
    pub stdin: bool,
    /// Whether commands can run as several users.
    pub users: bool,
    /// Whether ports can be reached from outside.
    pub ports: bool,
    /// Whether [`crate::Machine::snapshot`] works.
    pub snapshot: bool,
    /// Where the agent's files are on this machine.
    pub workspace: MachinePath,
    /// How strongly each limit is held.
    pub limits: LimitReport,
}
