//! What dead harnesses left on an engine: found by its labels, and removed only when nobody can miss it.

use std::{collections::HashMap, fmt};

use bollard::{
    errors::Error,
    models::{ContainerSummary, ContainerSummaryStateEnum as State, Volume},
    query_parameters::{ListContainersOptions, ListVolumesOptions, RemoveContainerOptions, RemoveVolumeOptions},
};
use rustix::{io::Errno, process::Pid};
use sandbar_machine::{MachineError, Result};
use serde::Serialize;

use super::{container, engine::Engine, labels};

const BOUND: &str = "bound";
const REMOVE_VOLUME: &str = "remove the volume";

/// What a thing on an engine is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A container, with the volumes that nobody named.
    Container,
    /// A volume that nobody named, and that no container has any more.
    Volume,
}

/// Something of ours on an engine, and what is to become of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// What it is.
    pub kind: Kind,
    /// What the engine calls it.
    pub name: String,
    /// Why it is removed, or kept.
    pub why: String,
    /// Of a container that outlives its maker and is in a register. Said only once its maker is dead: if its handle is not
    /// there by then, nobody has it.
    pub claim: Option<Claim>,
    /// What the engine knows it by, for good.
    id: String,
    removal: Removal,
}

/// Who says that a container is theirs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Where its handle [was to be written down](super::Docker::register).
    pub register: String,
    /// What the state of its handle says too, as `seal`. Names can be changed.
    pub seal: String,
}

/// What was found on an engine, judged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leftovers {
    /// What dead harnesses left.
    pub dead: Vec<Found>,
    /// What carries our labels and stays.
    pub kept: Vec<Found>,
}

/// How far the engine may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Removal {
    /// Whatever it is doing.
    Forced,
    /// Unless somebody has begun to use it.
    Idle,
}

impl Engine {
    /// Finds what harnesses of this user on this host made on this engine, and tells what they left from what they, or
    /// machines that outlive them, still need. What is not labelled is not looked at, and what cannot be judged is kept.
    ///
    /// # Errors
    /// [`MachineError::Start`] when the engine does not answer.
    pub async fn leftovers(&self) -> Result<Leftovers> {
        let (docker, here) = (self.connect()?, Here::look());
        let labelled = ("label".to_owned(), vec![labels::OWNER.to_owned()]);
        let filters = Some(HashMap::from([labelled.clone()]));
        let asked = ListContainersOptions { all: true, filters, ..ListContainersOptions::default() };
        let containers = self.ask("list containers", docker.list_containers(Some(asked))).await?;
        // Those in use go with the container that has them.
        let filters = Some(HashMap::from([labelled, ("dangling".to_owned(), vec!["true".to_owned()])]));
        let volumes = self.ask("list volumes", docker.list_volumes(Some(ListVolumesOptions { filters }))).await?;
        let containers = containers.into_iter().filter_map(|found| container(found, &here));
        let volumes = volumes.volumes.unwrap_or_default().into_iter().map(|found| volume(found, &here));
        let mut leftovers = Leftovers::default();
        for (found, fate) in containers.chain(volumes) {
            match fate {
                Fate::Remove => leftovers.dead.push(found),
                Fate::Keep => leftovers.kept.push(found),
            }
        }
        Ok(leftovers)
    }

    /// Removes something that a dead harness left. What is gone already is fine.
    ///
    /// # Errors
    /// [`MachineError::Transport`] when it is still there: the engine refuses, or somebody uses it by now.
    pub async fn remove_leftover(&self, found: &Found) -> Result<()> {
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
            // Somebody else does the same.
            Err(Error::DockerResponseServerError { status_code: 409, message }) if message.contains("in progress") => {
                Ok(())
            }
            Err(error) => Err(MachineError::transport(action, error)),
        }
    }
}

impl Found {
    /// The same, once it is known that nobody has its handle: it goes even while it runs.
    #[must_use]
    pub fn unclaimed(self, why: impl Into<String>) -> Self {
        Self { why: why.into(), removal: Removal::Forced, ..self }
    }
}

impl Kind {
    /// Its name.
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

fn container(found: ContainerSummary, here: &Here) -> Option<(Found, Fate)> {
    let id = found.id?;
    // Others link to it by names with another slash.
    let names = found.names.unwrap_or_default().into_iter().map(|name| name.trim_start_matches('/').to_owned());
    let name = names.into_iter().find(|name| !name.contains('/')).unwrap_or_else(|| id.clone());
    let labels = found.labels.unwrap_or_default();
    let removal = match labels.get(labels::LIFETIME).map(String::as_str) {
        None | Some(BOUND) => Removal::Forced,
        Some(_) => Removal::Idle,
    };
    let by_labels = judge(&labels, here);
    let label = |name: &str| labels.get(name).filter(|value| !value.is_empty()).cloned();
    let claim = label(labels::REGISTER).zip(label(labels::SEAL)).filter(|_| matches!(by_labels, Verdict::Dead(_)));
    let claim = claim.map(|(register, seal)| Claim { register, seal });
    let judged = match (removal, found.state) {
        (_, Some(State::REMOVING)) => Verdict::Kept("the engine is removing it".to_owned()),
        (Removal::Forced, _) | (_, Some(State::CREATED | State::EXITED | State::DEAD)) => by_labels,
        (Removal::Idle, _) => Verdict::Kept("it outlives its maker, and runs".to_owned()),
    };
    Some(judged.about(Found { kind: Kind::Container, name, why: String::new(), claim, id, removal }))
}

fn volume(found: Volume, here: &Here) -> (Found, Fate) {
    let judged = if is_unnamed(&found.name) {
        judge(&found.labels, here)
    } else {
        Verdict::Kept("somebody gave it a name".to_owned())
    };
    let (id, name) = (found.name.clone(), found.name);
    judged.about(Found { kind: Kind::Volume, name, why: String::new(), claim: None, id, removal: Removal::Idle })
}

/// Whether an engine thought of this name itself.
fn is_unnamed(volume: &str) -> bool {
    volume.len() == 64 && volume.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// What is to be thought of something, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    Dead(String),
    Kept(String),
}

impl Verdict {
    fn about(self, found: Found) -> (Found, Fate) {
        match self {
            Self::Dead(why) => (Found { why, ..found }, Fate::Remove),
            Self::Kept(why) => (Found { why, ..found }, Fate::Keep),
        }
    }
}

/// Who looks, and what can be seen from there.
struct Here {
    owner: String,
    host: String,
    boot: String,
    namespaces: String,
    process: fn(u32) -> Process,
}

/// What is known of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Process {
    None,
    /// One that began then.
    Began(u64),
    /// There is one that says nothing about itself.
    Hidden,
}

impl Here {
    fn look() -> Self {
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

/// Whether whoever made this is dead, by what its labels say. Whatever they leave open is answered by keeping it.
fn judge(labels: &HashMap<String, String>, here: &Here) -> Verdict {
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
    if owner != here.owner {
        return Verdict::Kept(format!("it belongs to {owner}"));
    }
    if boot != here.boot {
        // Another start of this host, or of another one with the same name.
        return match label(labels::HOST) {
            Some(host) if host == here.host => {
                Verdict::Dead(format!("process {pid} made it before this host restarted"))
            }
            _ => kept("it may belong to another host of this name"),
        };
    }
    if namespaces != here.namespaces {
        return kept("its maker is in other namespaces, and cannot be seen from here");
    }
    match (here.process)(pid) {
        Process::Began(at) if at == began => Verdict::Kept(format!("process {pid} made it, and lives")),
        Process::Hidden => Verdict::Kept(format!("whether process {pid} made it cannot be seen from here")),
        Process::None | Process::Began(_) => Verdict::Dead(format!("process {pid} made it, and is gone")),
    }
}

#[cfg(test)]
mod tests;
