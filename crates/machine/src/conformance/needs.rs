//! What a promise needs of a machine, asked of its facets and features.

use crate::{Enforcement, Machine};

/// What a machine must have for a promise to make sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Need {
    /// Running commands, which only a double in memory does not. Not asked of the machine: leave such promises out.
    Commands,
    /// Standard input.
    Stdin,
    /// Terminals.
    Terminals,
    /// [`Machine::ports`].
    Ports,
    /// Ports that carry any protocol over TCP, where a provider's carry HTTP. Asked of the first port that is declared.
    Sockets,
    /// [`Machine::commands`].
    Kept,
    /// Several users.
    Users,
    /// A file tree and processes apart from the host's.
    Isolation,
    /// A limit on memory that is held.
    Memory,
    /// A limit on the disk that is held.
    Disk,
    /// A limit on processes that is held.
    Pids,
}

impl Need {
    /// What is lacking where it is not met.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Commands => "commands",
            Self::Stdin => "standard input",
            Self::Terminals => "terminals",
            Self::Ports => "ports",
            Self::Sockets => "ports that carry any protocol over TCP",
            Self::Kept => "commands that outlive their client",
            Self::Users => "several users",
            Self::Isolation => "full isolation",
            Self::Memory => "a limit on memory",
            Self::Disk => "a limit on the disk",
            Self::Pids => "a limit on processes",
        }
    }

    /// Whether this machine, with this port declared, has it.
    pub async fn is_met_by(self, machine: &dyn Machine, declared: Option<u16>) -> bool {
        let features = machine.features();
        let is_held = |limit| limit != Enforcement::Unavailable;
        match self {
            Self::Commands => true,
            Self::Stdin => features.stdin,
            Self::Terminals => features.pty,
            Self::Ports => machine.ports().is_some(),
            Self::Sockets => match (machine.ports(), declared) {
                // An error is for the promise to find.
                (Some(ports), Some(port)) => {
                    ports.open(port).await.map_or(true, |endpoint| endpoint.socket().is_some())
                }
                _ => true,
            },
            Self::Kept => machine.commands().is_some(),
            Self::Users => features.users,
            Self::Isolation => features.isolation.is_full(),
            Self::Memory => is_held(features.limits.memory),
            Self::Disk => is_held(features.limits.disk),
            Self::Pids => is_held(features.limits.pids),
        }
    }
}
