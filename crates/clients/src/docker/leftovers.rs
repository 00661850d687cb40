//! Leftovers of dead processes on an engine: found by their labels, and removed only if they are certainly unused.

use std::{collections::HashMap, fmt};

use bollard::{
    errors::Error,
    models::{ContainerSummary, ContainerSummaryStateEnum as State, Volume},
    query_parameters::{ListContainersOptions, ListVolumesOptions, RemoveContainerOptions, RemoveVolumeOptions},
};
use rustix::{io::Errno, process::Pid};
use sandbar_machine::{MachineError, Result};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{container, engine::Engine, labels};
use crate::registry::{self, Leftover};

const BOUND: &str = "bound";
const REMOVE_VOLUME: &str = "remove the volume";

/// Kind of a leftover.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A container with its anonymous volumes.
    Container,
    /// An anonymous volume that no container uses.
    Volume,
}

/// A container or volume of this user on an engine, and why it is removed or retained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DockerLeftover {
    /// Kind of the resource.
    pub kind: Kind,
    /// The engine's name for the resource.
    pub name: String,
    /// Why the resource is removed or retained.
    pub why: String,
    /// The claim of a detached container that is in a register. Set only if the container's creator is dead: if the
    /// handle is not in the register by then, no process has it.
    pub claim: Option<Claim>,
    /// The engine's id of the resource.
    id: String,
    removal: Removal,
}

/// Where the handle of a detached container was to be recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The register that its handle [was to be recorded in](super::Docker::register).
    pub register: String,
    /// The `seal` in the state of the handle. Unlike the name of a container, it cannot be changed.
    pub seal: String,
}

/// The containers and volumes of this user on an engine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leftovers {
    /// Leftovers of dead processes.
    pub dead: Vec<DockerLeftover>,
    /// Resources with this program's labels that are retained.
    pub kept: Vec<DockerLeftover>,
}

/// The part of a leftover that is stored in the registry's entry.
#[derive(Deserialize)]
struct StoredLeftover {
    id: String,
    kind: Kind,
    removal: Removal,
}

/// When the engine may remove a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Removal {
    /// In any state.
    Forced,
    /// Only if it is not in use by now.
    Idle,
}

impl Engine {
    /// Lists the containers and volumes that processes of this user on this host created on this engine, and separates
    /// leftovers from those that a process or a detached machine still needs. Resources without labels are ignored, and
    /// resources whose state is not certain are retained.
    ///
    /// # Errors
    /// [`MachineError::Start`] if the engine does not answer.
    pub async fn leftovers(&self) -> Result<Leftovers> {
        let (docker, observer) = (self.connect()?, Observer::current());
        let labelled = ("label".to_owned(), vec![labels::OWNER.to_owned()]);
        let filters = Some(HashMap::from([labelled.clone()]));
        let asked = ListContainersOptions { all: true, filters, ..ListContainersOptions::default() };
        let containers = self.ask("list containers", docker.list_containers(Some(asked))).await?;
        // Volumes in use are removed with their container.
        let filters = Some(HashMap::from([labelled, ("dangling".to_owned(), vec!["true".to_owned()])]));
        let volumes = self.ask("list volumes", docker.list_volumes(Some(ListVolumesOptions { filters }))).await?;
        let containers = containers.into_iter().filter_map(|found| container(found, &observer));
        let volumes = volumes.volumes.unwrap_or_default().into_iter().map(|found| volume(found, &observer));
        let mut leftovers = Leftovers::default();
        for (found, fate) in containers.chain(volumes) {
            match fate {
                Fate::Remove => leftovers.dead.push(found),
                Fate::Keep => leftovers.kept.push(found),
            }
        }
        Ok(leftovers)
    }

    /// Removes a leftover of a dead process. Succeeds if it is already gone.
    ///
    /// # Errors
    /// [`MachineError::Transport`] if it still exists: the engine refuses, or it is in use by now.
    pub async fn remove_leftover(&self, found: &DockerLeftover) -> Result<()> {
        let docker = self.connect()?;
        let (action, outcome) = match (found.kind, found.removal) {
            (Kind::Container, Removal::Forced) => return container::remove(self, &docker, &found.id).await,
            (Kind::Container, Removal::Idle) => {
                let options = RemoveContainerOptions { v: true, ..RemoveContainerOptions::default() };
                let removing = docker.remove_container(&found.id, Some(options));
                (container::REMOVE, self.within(container::REMOVE, removing).await?)
            }
            (Kind::Volume, _) => {
                let removing = docker.remove_volume(&found.id, None::<RemoveVolumeOptions>);
                (REMOVE_VOLUME, self.within(REMOVE_VOLUME, removing).await?)
            }
        };
        match outcome {
            Ok(()) | Err(Error::DockerResponseServerError { status_code: 404, .. }) => Ok(()),
            // Another process is removing it.
            Err(Error::DockerResponseServerError { status_code: 409, message }) if message.contains("in progress") => {
                Ok(())
            }
            Err(error) => Err(MachineError::transport(action, error)),
        }
    }
}

impl DockerLeftover {
    /// Marks the resource for removal, even while it runs, because no process has its handle.
    #[must_use]
    pub fn unclaimed(self, why: impl Into<String>) -> Self {
        Self { why: why.into(), removal: Removal::Forced, ..self }
    }

    /// The registry's entry.
    pub(super) fn leftover(self, fate: registry::Fate) -> Leftover {
        let state = json!({ "id": self.id, "kind": self.kind, "removal": self.removal });
        Leftover { kind: self.kind.name(), name: self.name, why: self.why, fate, state }
    }

    pub(super) fn read(leftover: &Leftover) -> Result<Self> {
        let bad = |_| MachineError::invalid("leftover", "is not one of an engine");
        let StoredLeftover { id, kind, removal } = StoredLeftover::deserialize(&leftover.state).map_err(bad)?;
        Ok(Self { kind, name: leftover.name.clone(), why: leftover.why.clone(), claim: None, id, removal })
    }
}

impl Kind {
    /// Name of the kind.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Container => "container",
            Self::Volume => "volume",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Remove,
    Keep,
}

fn container(found: ContainerSummary, observer: &Observer) -> Option<(DockerLeftover, Fate)> {
    let id = found.id?;
    // Links from other containers add names with a second slash.
    let names = found.names.unwrap_or_default().into_iter().map(|name| name.trim_start_matches('/').to_owned());
    let name = names.into_iter().find(|name| !name.contains('/')).unwrap_or_else(|| id.clone());
    let labels = found.labels.unwrap_or_default();
    let removal = match labels.get(labels::LIFETIME).map(String::as_str) {
        None | Some(BOUND) => Removal::Forced,
        Some(_) => Removal::Idle,
    };
    let by_labels = judge(&labels, observer);
    let label = |name: &str| labels.get(name).filter(|value| !value.is_empty()).cloned();
    let claim = label(labels::REGISTER).zip(label(labels::SEAL)).filter(|_| matches!(by_labels, Verdict::Dead(_)));
    let claim = claim.map(|(register, seal)| Claim { register, seal });
    let judged = match (removal, found.state) {
        (_, Some(State::REMOVING)) => Verdict::Kept("the engine is removing it".to_owned()),
        (Removal::Forced, _) | (_, Some(State::CREATED | State::EXITED | State::DEAD)) => by_labels,
        (Removal::Idle, _) => Verdict::Kept("it outlives its maker, and runs".to_owned()),
    };
    Some(judged.about(DockerLeftover { kind: Kind::Container, name, why: String::new(), claim, id, removal }))
}

fn volume(found: Volume, observer: &Observer) -> (DockerLeftover, Fate) {
    let judged = if is_unnamed(&found.name) {
        judge(&found.labels, observer)
    } else {
        Verdict::Kept("it has a name, so it may be in use".to_owned())
    };
    let (id, name) = (found.name.clone(), found.name);
    judged.about(DockerLeftover {
        kind: Kind::Volume,
        name,
        why: String::new(),
        claim: None,
        id,
        removal: Removal::Idle,
    })
}

/// Whether the engine generated this name.
fn is_unnamed(volume: &str) -> bool {
    volume.len() == 64 && volume.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Whether a resource is removed or retained, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    Dead(String),
    Kept(String),
}

impl Verdict {
    fn about(self, found: DockerLeftover) -> (DockerLeftover, Fate) {
        match self {
            Self::Dead(why) => (DockerLeftover { why, ..found }, Fate::Remove),
            Self::Kept(why) => (DockerLeftover { why, ..found }, Fate::Keep),
        }
    }
}

/// This process's user, host and namespaces, and how it inspects processes.
struct Observer {
    owner: String,
    host: String,
    boot: String,
    namespaces: String,
    process: fn(u32) -> Process,
}

/// What is known about a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Process {
    None,
    /// Start time of the process.
    Began(u64),
    /// The process exists, but its start time cannot be read.
    Hidden,
}

impl Observer {
    fn current() -> Self {
        let (owner, host) = (labels::owner(), labels::host());
        Self { owner, host, boot: labels::boot(), namespaces: labels::namespaces(), process }
    }
}

fn process(pid: u32) -> Process {
    let Some(number) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return Process::None };
    let name = pid.to_string();
    match (rustix::process::test_kill_process(number), labels::started(&name)) {
        (_, Some(_)) if labels::has_ended(&name) => Process::None,
        (_, Some(began)) => Process::Began(began),
        (Err(Errno::SRCH), None) => Process::None,
        (_, None) => Process::Hidden,
    }
}

/// Whether the creator of this resource is dead, according to its labels. If the labels leave that open, the resource
/// is retained.
fn judge(labels: &HashMap<String, String>, observer: &Observer) -> Verdict {
    let kept = |why: &str| Verdict::Kept(why.to_owned());
    let label = |name: &str| labels.get(name).map(String::as_str).filter(|value| !value.is_empty());
    let number = |name: &str| label(name).and_then(|value| value.parse::<u64>().ok()).filter(|number| *number > 0);
    let pid = number(labels::PID).and_then(|pid| u32::try_from(pid).ok());
    let (Some(_), Some(owner), Some(boot), Some(namespaces), Some(pid), Some(began)) = (
        label(labels::SESSION),
        label(labels::OWNER),
        label(labels::BOOT),
        label(labels::NAMESPACES),
        pid,
        number(labels::PID_STARTED),
    ) else {
        return kept("its labels do not say whose it is");
    };
    if owner != observer.owner {
        return Verdict::Kept(format!("it belongs to {owner}"));
    }
    if boot != observer.boot {
        // The labels are from another boot of this host, or from another host with the same name.
        return match label(labels::HOST) {
            Some(host) if host == observer.host => {
                Verdict::Dead(format!("process {pid} made it before this host restarted"))
            }
            _ => kept("it may belong to another host of this name"),
        };
    }
    if namespaces != observer.namespaces {
        return kept("its maker is in other namespaces, and cannot be seen from here");
    }
    match (observer.process)(pid) {
        Process::Began(at) if at == began => Verdict::Kept(format!("process {pid} made it, and lives")),
        Process::Hidden => Verdict::Kept(format!("whether process {pid} made it cannot be seen from here")),
        Process::None | Process::Began(_) => Verdict::Dead(format!("process {pid} made it, and is gone")),
    }
}

#[cfg(test)]
mod tests;
