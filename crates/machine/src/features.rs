//! Properties of a running machine: its isolation, and how each limit is enforced.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{Command, MachineError, MachinePath, Result};

/// What separates a machine from its host. The kinds have no order; a [`Demand`] says which of them are sufficient.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Isolation {
    /// No isolation: commands are ordinary processes of the user.
    None,
    /// Landlock and seccomp on the host's file tree, for hosts without user namespaces.
    Landlock,
    /// Separate namespaces and file tree, no capabilities, seccomp and Landlock.
    #[serde(alias = "full")]
    Namespaces,
    /// A container, isolated by the engine that created it.
    Container,
    /// A virtual machine with its own kernel.
    Vm,
    /// A host of the provider, whose isolation the provider does not specify.
    Provider,
}

impl Isolation {
    /// All kinds.
    pub const ALL: [Self; 6] =
        [Self::None, Self::Landlock, Self::Namespaces, Self::Container, Self::Vm, Self::Provider];

    /// Name in reports.
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

    /// Whether the file tree, the processes and the network of the machine are separate from the host's.
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

/// The isolation that a machine must have; a client that cannot provide it refuses to create the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Demand {
    /// No demand: commands may be ordinary processes of the user.
    None,
    /// Landlock, or full isolation.
    Landlock,
    /// File tree, processes and network separate from the host's, see [`Isolation::is_full`].
    #[default]
    Full,
}

impl Demand {
    /// All demands.
    pub const ALL: [Self; 3] = [Self::None, Self::Landlock, Self::Full];

    /// Whether this isolation is sufficient.
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

    /// Name on the command line and in agent files.
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

/// How a limit is enforced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Enforcement {
    /// The kernel prevents that the limit is exceeded.
    Hard,
    /// The machine measures the usage and acts after the limit was exceeded.
    Soft,
    /// There is no limit.
    Unavailable,
}

impl Enforcement {
    /// The stronger of the two.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::Hard, _) | (_, Self::Hard) => Self::Hard,
            (Self::Soft, _) | (_, Self::Soft) => Self::Soft,
            _ => Self::Unavailable,
        }
    }
}

/// How each limit is enforced on a machine. A limit that was not requested is [`Enforcement::Unavailable`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LimitReport {
    /// Number of processes.
    pub pids: Enforcement,
    /// Open files of one process.
    pub open_files: Enforcement,
    /// Core dumps; disabled if [`Enforcement::Hard`].
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

/// Actual properties of a machine, as opposed to the requested ones in a [`MachineSpec`](crate::MachineSpec). Optional
/// abilities are not listed here: they are the [facets](crate::Machine) of the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Features {
    /// Isolation from the host.
    pub isolation: Isolation,
    /// Names of the layers that provide the isolation: `user namespace`, `seccomp`, `landlock abi 7`.
    pub layers: Vec<String>,
    /// Whether commands can have terminals. If not, a command with [`Command::tty`] is refused.
    pub pty: bool,
    /// Whether commands can have standard input. If not, a command with [`Command::stdin`] is refused.
    pub stdin: bool,
    /// Whether commands can run as several users. If not, a command with [`Command::user`] is refused.
    pub users: bool,
    /// Directory of the agent's files on this machine, and the default working directory of commands.
    pub workspace: MachinePath,
    /// How each limit is enforced.
    pub limits: LimitReport,
}

impl Features {
    /// Properties of a machine without terminals, standard input, several users and limits.
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

    /// Refuses a command that needs standard input, a terminal or a user if the machine lacks it. A machine calls this at the
    /// beginning of [`spawn`](crate::Machine::spawn).
    ///
    /// # Errors
    /// [`MachineError::Unsupported`] that names what the machine lacks.
    pub fn refuse_lacking(&self, command: &Command) -> Result<()> {
        let lacking = [
            (command.stdin && !self.stdin, "give a command input"),
            (command.tty.is_some() && !self.pty, "give a command a terminal"),
            (command.user.is_some() && !self.users, "run as another user"),
        ];
        match lacking.into_iter().find(|(is_lacking, _)| *is_lacking) {
            Some((_, what)) => Err(MachineError::Unsupported(what)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_parsed_as_they_are_printed() {
        for kind in Isolation::ALL {
            assert_eq!(kind.to_string().parse::<Isolation>().unwrap(), kind);
        }
        for demand in Demand::ALL {
            assert_eq!(demand.to_string().parse::<Demand>().unwrap(), demand);
        }
        assert!("full".parse::<Isolation>().is_err() && "vm".parse::<Demand>().is_err());
    }

    #[test]
    fn each_demand_is_met_by_the_right_kinds_of_isolation() {
        let met = |demand: Demand| Isolation::ALL.into_iter().filter(|kind| demand.is_met_by(*kind)).count();
        assert_eq!(Demand::ALL.map(met), [6, 5, 4]);
        for kind in Isolation::ALL {
            assert!(Demand::met_by(kind).is_met_by(kind), "{kind}");
        }
        assert!(!Demand::Full.is_met_by(Isolation::Landlock));
    }
}
