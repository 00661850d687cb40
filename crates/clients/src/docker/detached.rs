//! Containers that outlive the process that made them: what their handle holds, and how any process that may use the engine
//! comes in at their door, over a bridge that the engine executes inside.

use std::{io, sync::PoisonError, time::Duration};

use bollard::{
    errors::Error,
    models::{ContainerInspectResponse, ContainerStateStatusEnum as Status, ExecConfig},
};
use sandbar_guest::protocol::Nonce;
use sandbar_machine::{MachineError, MachineHandle, Result};
use serde::{Deserialize, Serialize};
use tokio::time::{sleep, timeout};

use super::{
    attach::{self, Attached, Words},
    container::{Removal, remove},
    engine::Engine,
    labels,
    upload::GUEST,
};
use crate::{
    GuestMachine,
    detached::{ANSWER, Memo, crowded, read_nonce},
    draw::{draw, hex},
};

const REACH: &str = "reach a machine";
/// How often, and how long apart, it is looked whether a machine that did not answer is just ending.
const LOOKS: usize = 100;
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// What a handle holds of a machine that outlives its maker. The nonce is what lets its holder in.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Place {
    pub(super) container: String,
    nonce: String,
    /// What the container's label says too.
    pub(super) seal: String,
    /// What the engine calls itself, wherever it is reached.
    engine: String,
    /// Where it was reached, if not at the usual place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    at: Option<String>,
}

/// An engine that is asked about a machine.
#[derive(Clone, Copy)]
pub(super) struct Keeper<'a> {
    pub(super) engine: &'a Engine,
    pub(super) docker: &'a bollard::Docker,
    /// What it calls itself.
    pub(super) id: &'a str,
}

/// What has become of a container.
enum Found {
    Gone,
    Running,
    Paused,
}

impl Place {
    /// Draws what only the machine and the holders of its handle know.
    pub(super) fn new(keeper: Keeper<'_>, container: &str) -> Result<Self> {
        let draw = || draw::<16>().map_err(|error| keeper.engine.failed("draw a nonce", error));
        let nonce: Nonce = draw()?;
        Ok(Self {
            container: container.to_owned(),
            nonce: hex(&nonce),
            seal: hex(&draw()?),
            engine: keeper.id.to_owned(),
            at: (*keeper.engine != Engine::local()).then(|| keeper.engine.to_string()),
        })
    }

    /// Reads a handle; `None` when it is one of a machine that ends with its maker.
    pub(super) fn of(state: &serde_json::Value) -> Result<Option<Self>> {
        if state.get("nonce").is_none() {
            return Ok(None);
        }
        let bad = |error: serde_json::Error| MachineError::invalid("handle of a detached machine", error.to_string());
        let place = serde_json::from_value::<Self>(state.clone()).map_err(bad)?;
        place.nonce()?;
        Ok(Some(place))
    }

    /// What the handle holds.
    pub(super) fn state(&self) -> Result<serde_json::Value> {
        serde_json::to_value(self).map_err(|error| MachineError::invalid("handle", error.to_string()))
    }

    pub(super) fn nonce(&self) -> Result<Nonce> {
        read_nonce(&self.nonce)
    }

    /// What has become of the container. One that does not fit the handle, or is elsewhere, is an error.
    async fn look(&self, keeper: Keeper<'_>) -> Result<Found> {
        if keeper.id != self.engine {
            let place = self.at.as_deref().unwrap_or("its host's usual socket");
            let reason = format!(
                "belongs to another Docker engine than the one at {}; use the one that was reached at {place}",
                keeper.engine
            );
            return Err(MachineError::invalid("handle", reason));
        }
        match inspect(keeper, &self.container).await? {
            None => Ok(Found::Gone),
            Some(found) if label(&found, labels::SEAL) != Some(&self.seal) => Err(self.unfit()),
            Some(found) => match found.state.and_then(|state| state.status) {
                Some(Status::RUNNING) => Ok(Found::Running),
                Some(Status::PAUSED) => Ok(Found::Paused),
                _ => Ok(Found::Gone),
            },
        }
    }

    /// Finds the machine; `None` when it is gone.
    pub(super) async fn attach(&self, keeper: Keeper<'_>, handle: &MachineHandle) -> Result<Option<GuestMachine>> {
        match self.look(keeper).await? {
            Found::Gone => return Ok(None),
            Found::Running => {}
            Found::Paused => {
                let why = format!("its container is paused; run `docker unpause {}`", self.container);
                return Err(MachineError::transport("reach it", why));
            }
        }
        match self.greet(keeper, handle).await {
            // Whatever an engine says of one that ends in this very moment.
            Err(_) if self.is_ending(keeper).await? => Ok(None),
            greeted => greeted,
        }
    }

    /// Speaks with the guest; `None` when it is gone.
    async fn greet(&self, keeper: Keeper<'_>, handle: &MachineHandle) -> Result<Option<GuestMachine>> {
        let Some(bridge) = self.bridge(keeper).await? else { return Ok(None) };
        let Attached { mut input, mut output, words, line } = bridge;
        let late = |_late| MachineError::transport("reach it", "its guest did not answer within 20 seconds");
        let welcomed = timeout(ANSWER, Memo::ask(&mut output, &mut input, self.nonce()?)).await.map_err(late)??;
        let Some(memo) = welcomed else { return Err(self.turned_away(&words)) };
        match memo.connect(output, input, handle.clone()).await {
            Ok(machine) => {
                let (engine, docker) = (keeper.engine.clone(), keeper.docker.clone());
                let name = self.container.clone();
                Ok(Some(machine.farewell(Removal { engine, docker, name, line: Some(line) })))
            }
            Err(MachineError::Gone) => Err(crowded()),
            Err(error) => Err(error),
        }
    }

    /// Whether the container is gone, once what is just ending has had a moment to.
    async fn is_ending(&self, keeper: Keeper<'_>) -> Result<bool> {
        for _ in 0..LOOKS {
            if matches!(self.look(keeper).await?, Found::Gone) {
                return Ok(true);
            }
            sleep(LOOK_AGAIN).await;
        }
        Ok(false)
    }

    /// Why somebody hangs up who was knocked at.
    fn turned_away(&self, words: &Words) -> MachineError {
        let words = words.lock().unwrap_or_else(PoisonError::into_inner);
        let said: String = String::from_utf8_lossy(&words).chars().filter(|c| !c.is_control()).take(500).collect();
        if said.is_empty() { self.unfit() } else { MachineError::transport("reach it", said) }
    }

    fn unfit(&self) -> MachineError {
        MachineError::invalid("handle", format!("is not one of the machine in {}", self.container))
    }

    /// A stream to the machine's door; `None` when the machine ended in this very moment.
    async fn bridge(&self, keeper: Keeper<'_>) -> Result<Option<Attached>> {
        let Keeper { engine, docker, .. } = keeper;
        let id = self.container.rsplit('-').next().unwrap_or_default();
        let config = ExecConfig {
            attach_stdin: Some(true),
            attach_stdout: Some(true),
            attach_stderr: Some(true),
            // Nobody inside has this user's rights, whoever commands run as.
            user: Some("0:0".to_owned()),
            working_dir: Some("/".to_owned()),
            cmd: Some([GUEST, "bridge", id].map(str::to_owned).into()),
            ..ExecConfig::default()
        };
        let made = match engine.within(REACH, docker.create_exec(&self.container, config)).await? {
            Ok(made) => made.id,
            Err(Error::DockerResponseServerError { status_code: 404 | 409, .. }) => return Ok(None),
            Err(error) => return Err(engine.trouble(REACH, error)),
        };
        match engine.within(REACH, attach::start(&engine.address, &made)).await? {
            Ok(bridge) => Ok(Some(bridge)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(engine.failed(REACH, error)),
        }
    }

    /// Ends the machine, whatever its guest says, and waits until nothing of it is left.
    pub(super) async fn delete(&self, keeper: Keeper<'_>) -> Result<()> {
        self.look(keeper).await?;
        remove(keeper.engine, keeper.docker, &self.container).await
    }
}

/// A container as the engine knows it, if it does.
async fn inspect(keeper: Keeper<'_>, container: &str) -> Result<Option<ContainerInspectResponse>> {
    match keeper.engine.within(REACH, keeper.docker.inspect_container(container, None)).await? {
        Ok(found) => Ok(Some(found)),
        Err(Error::DockerResponseServerError { status_code: 404, .. }) => Ok(None),
        Err(error) => Err(keeper.engine.trouble(REACH, error)),
    }
}

fn label<'a>(found: &'a ContainerInspectResponse, name: &str) -> Option<&'a String> {
    found.config.as_ref()?.labels.as_ref()?.get(name)
}

/// Refuses to remove a machine that lives by itself for a handle of one that does not.
pub(super) async fn check_bound(keeper: Keeper<'_>, container: &str) -> Result<()> {
    let found = inspect(keeper, container).await?;
    match found.as_ref().and_then(|found| label(found, labels::SEAL)).filter(|seal| !seal.is_empty()) {
        None => Ok(()),
        Some(_) => Err(MachineError::invalid("handle", format!("is not one of the machine in {container}"))),
    }
}
