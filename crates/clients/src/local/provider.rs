//! The registry entry of the local client.

use std::{path::PathBuf, sync::Arc};

use async_trait::async_trait;
use sandbar_machine::{Demand, MachineError, MachineHandle, MachineSpec, Result, SandboxClient, Supports};
use serde_json::{Value, json};

use super::{ResidentState, UnixLocal, check};
use crate::{
    cgroups, guest_binary,
    registry::{ClientContext, Fate, Leftover, Leftovers, LeftoversFound, Provider, Scope, SessionRecords, Unenforced},
};

const KIND: &str = "machine";

/// Machines in namespaces of this host. All clients of this provider share their machines.
#[derive(Clone, Debug, Default)]
pub(crate) struct LocalProvider {
    client: UnixLocal,
}

#[async_trait]
impl Provider for LocalProvider {
    fn name(&self) -> &'static str {
        super::client::ID
    }

    fn summary(&self) -> &'static str {
        "the namespaces of this host"
    }

    fn supports(&self) -> &'static Supports {
        &check::SUPPORTS
    }

    fn prepare(&self) {
        guest_binary::prepare();
    }

    fn client(&self, _argument: Option<&str>, context: &ClientContext) -> Result<Arc<dyn SandboxClient>> {
        let client = self.client.clone();
        Ok(match &context.sessions {
            Some(sessions) => Arc::new(client.state_dir(&sessions.machines)),
            None => Arc::new(client),
        })
    }

    /// Without a control group, the guest watches the memory, and nothing limits the processors.
    fn unenforced(&self, spec: &MachineSpec) -> Option<Unenforced> {
        let limits = &spec.limits;
        if limits.cpus.is_none() && limits.memory.is_none() {
            return None;
        }
        let groups = cgroups();
        let missing = |name: &str| groups.missing(name).map(ToOwned::to_owned);
        let memory = || limits.memory.filter(|_| spec.isolation == Demand::Landlock).and_then(|_| missing("memory"));
        let cpus = limits.cpus.and_then(|_| missing("cpu")).map(|reason| ("cpus", reason));
        let (limit, reason) = cpus.or_else(|| memory().map(|reason| ("memory", reason)))?;
        Some(Unenforced { limit, reason, fix: groups.fix.clone().unwrap_or_default() })
    }

    fn leftovers(&self) -> Option<&dyn Leftovers> {
        Some(self)
    }
}

/// A state directory, and the id of a machine in it.
struct MachineKey {
    /// `None` is the default directory.
    directory: Option<PathBuf>,
    id: String,
    is_running: bool,
}

impl MachineKey {
    fn state(&self) -> Value {
        json!({ "directory": self.directory, "id": self.id, "is_running": self.is_running })
    }

    fn read(state: &Value) -> Option<Self> {
        Some(Self {
            directory: state.get("directory")?.as_str().map(PathBuf::from),
            id: state.get("id")?.as_str()?.to_owned(),
            is_running: state.get("is_running")?.as_bool()?,
        })
    }
}

impl LocalProvider {
    fn at(&self, directory: Option<&PathBuf>) -> UnixLocal {
        directory.map_or_else(|| self.client.clone(), |directory| self.client.clone().state_dir(directory))
    }

    /// Adds the machines of one state directory.
    fn list(&self, directory: Option<&PathBuf>, found: &mut LeftoversFound) {
        let machines = match self.at(directory).machines() {
            Ok(machines) => machines,
            Err(error) => return found.failures.push(error),
        };
        for machine in machines {
            let (why, fate) = match machine.state {
                ResidentState::Running => ("it lives", Fate::Keep),
                ResidentState::Removing => ("another process removes it", Fate::Removing),
                ResidentState::Dead => ("its supervisor is dead", Fate::Remove),
            };
            let is_running = machine.state == ResidentState::Running;
            let key = MachineKey { directory: directory.cloned(), id: machine.id.clone(), is_running };
            found.things.push(Leftover { kind: KIND, name: machine.id, why: why.into(), fate, state: key.state() });
        }
    }

    /// Marks for removal the running machines of the session directory that no session has: their creators were killed
    /// before they could record them.
    fn claim(things: &mut [Leftover], sessions: &dyn SessionRecords) -> Option<String> {
        let running: Vec<&mut Leftover> = things.iter_mut().filter(|thing| thing.fate == Fate::Keep).collect();
        if running.is_empty() {
            return None;
        }
        let handles = match sessions.handles() {
            Ok(handles) => handles,
            Err(why) => return Some(format!("{why}; machines without a session were left as they are")),
        };
        let id = |handle: &MachineHandle| handle.state.get("id").and_then(|id| id.as_str()).map(ToOwned::to_owned);
        let known: Vec<String> = handles.iter().filter_map(id).collect();
        for thing in running.into_iter().filter(|thing| !known.contains(&thing.name)) {
            (thing.fate, thing.why) = (Fate::Remove, "no session has it".to_owned());
        }
        None
    }
}

#[async_trait]
impl Leftovers for LocalProvider {
    async fn find(&self, scope: Scope<'_>) -> Result<LeftoversFound> {
        let mut found = LeftoversFound::default();
        if matches!(scope, Scope::User(_)) {
            self.list(None, &mut found);
        }
        if let Some(sessions) = scope.sessions() {
            let others = found.things.len();
            self.list(Some(&sessions.list().machines), &mut found);
            let own = found.things.get_mut(others..).unwrap_or_default();
            found.notes.extend(Self::claim(own, sessions));
        }
        Ok(found)
    }

    async fn remove(&self, leftover: &Leftover) -> Result<()> {
        let Some(MachineKey { directory, id, is_running }) = MachineKey::read(&leftover.state) else {
            return Err(MachineError::invalid("leftover", "does not come from the local provider"));
        };
        let client = self.at(directory.as_ref());
        if is_running {
            return client.remove_machine(&id).await;
        }
        let machine = |client: &UnixLocal| Ok(client.machines()?.into_iter().find(|machine| machine.id == id));
        if machine(&client)?.is_none() {
            return Ok(());
        }
        // One sweep removes everything in the directory.
        let left = client.sweep().await?;
        let what = format!("the machine {id}");
        if let Some(left) = left.into_iter().find(|left| left.id == id) {
            return Err(MachineError::NotRemoved { what, source: left.error });
        }
        match machine(&client)? {
            Some(_) => Err(MachineError::StillBeingRemoved { what, waited: std::time::Duration::ZERO }),
            None => Ok(()),
        }
    }
}
