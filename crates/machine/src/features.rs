//! What a machine turned out to be: the isolation reached and each limit's strength.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{MachineError, MachinePath};

/// What keeps a machine from its host. Kinds have no order: what is demanded is a [`Demand`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Isolation {
    /// Nothing: commands are ordinary processes of the user.
    None,
    /// Landlock and seccomp on the host's own file tree; for places without user namespaces.
    Landlock,
    /// Own namespaces and file tree, no capabilities, seccomp and Landlock.
    #[serde(alias = "full")]
    Namespaces,
    /// A container of an engine, with the engine's own walls.
    Container,
    /// A virtual machine with a kernel of its own.
    Vm,
    /// A host of the provider's, by walls that the provider does not name.
    Provider,
}

impl Isolation {
    /// Every kind.
    pub const ALL: [Self; 6] =
        [Self::None, Self::Landlock, Self::Namespaces, Self::Container, Self::Vm, Self::Provider];

    /// The name used in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Landlock => "landlock",
            Self::Namespaces => "namespaces",
            Self::Container => "container",
            Self::Vm => "vm",
            Self::Provider => "provider",
        }
    }

    /// Whether commands have a file tree, processes and a network apart from the host's.
    #[must_use]
    pub fn is_full(self) -> bool {
        match self {
            Self::None | Self::Landlock => false,
            Self::Namespaces | Self::Container | Self::Vm | Self::Provider => true,
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
        let known = Self::ALL.into_iter().find(|kind| kind.name() == name);
        known.ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            MachineError::invalid(format!("isolation {name:?}"), format!("must be one of {names}"))
        })
    }
}

/// The isolation that a machine must have to be made at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Demand {
    /// None: commands may be ordinary processes of the user.
    None,
    /// Landlock, or anything that is full.
    Landlock,
    /// A file tree, processes and a network apart from the host's.
    #[default]
    Full,
}

impl Demand {
    /// Every demand.
    pub const ALL: [Self; 3] = [Self::None, Self::Landlock, Self::Full];

    /// Whether a machine with this isolation may be made.
    #[must_use]
    pub fn is_met_by(self, isolation: Isolation) -> bool {
        match self {
            Self::None => true,
            Self::Landlock => isolation == Isolation::Landlock || isolation.is_full(),
            Self::Full => isolation.is_full(),
        }
    }

    /// The strongest demand that this isolation meets.
    #[must_use]
    pub fn met_by(isolation: Isolation) -> Self {
        match isolation {
            Isolation::None => Self::None,
            Isolation::Landlock => Self::Landlock,
            _ => Self::Full,
        }
    }

    /// The name used on the command line and in agent files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Landlock => "landlock",
            Self::Full => "full",
        }
    }
}

impl fmt::Display for Demand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Demand {
    type Err = MachineError;

    fn from_str(name: &str) -> Result<Self, MachineError> {
        let known = Self::ALL.into_iter().find(|demand| demand.name() == name);
        known
            .ok_or_else(|| MachineError::invalid(format!("isolation level {name:?}"), "must be full, landlock or none"))
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

/// How strongly each limit is held on a machine. One that was not asked for holds nothing: it is unavailable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
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

/// What a machine turned out to be: achieved, not asked for. What it can do beside running commands are its
/// [facets](crate::Machine), which are not listed here a second time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Features {
    /// What keeps it from the host.
    pub isolation: Isolation,
    /// The layers that make that up, by name: `user namespace`, `seccomp`, `landlock abi 7`.
    pub layers: Vec<String>,
    /// Whether commands can have terminals; asking for one is refused where they cannot.
    pub pty: bool,
    /// Whether commands can have standard input; asking for it is refused where they cannot.
    pub stdin: bool,
    /// Whether commands can run as several users.
    pub users: bool,
    /// Where the agent's files are on this machine.
    pub workspace: MachinePath,
    /// How strongly each limit is held.
    pub limits: LimitReport,
}

impl Features {
    /// A machine that runs commands without terminals and input, as one user, without limits.
    #[must_use]
    pub fn new(isolation: Isolation, workspace: MachinePath) -> Self {
        Self {
            isolation,
            layers: Vec::new(),
            pty: false,
            stdin: false,
            users: false,
            workspace,
            limits: LimitReport::NONE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_as_it_is_written() {
        for kind in Isolation::ALL {
            assert_eq!(kind.to_string().parse::<Isolation>().unwrap(), kind);
        }
        for demand in Demand::ALL {
            assert_eq!(demand.to_string().parse::<Demand>().unwrap(), demand);
        }
        assert!("full".parse::<Isolation>().is_err() && "vm".parse::<Demand>().is_err());
    }

    #[test]
    fn a_demand_is_a_predicate_on_what_isolates() {
        let met = |demand: Demand| Isolation::ALL.into_iter().filter(|kind| demand.is_met_by(*kind)).count();
        assert_eq!(Demand::ALL.map(met), [6, 5, 4]);
        for kind in Isolation::ALL {
            assert!(Demand::met_by(kind).is_met_by(kind), "{kind}");
        }
        assert!(!Demand::Full.is_met_by(Isolation::Landlock));
    }
}
