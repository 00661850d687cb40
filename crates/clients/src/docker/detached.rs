//! Containers that outlive the process that created them: their handle, and how a process that may use the engine
//! connects to their door, through a bridge that the engine executes inside.

use std::{io, time::Duration};

use bollard::{
    errors::Error,
    models::{ContainerInspectResponse, ContainerStateStatusEnum as Status, ExecConfig},
};
use sandbar_guest::protocol::Nonce;
use sandbar_machine::{MachineError, MachineHandle, Result};
use serde::{Deserialize, Serialize};
use tokio::time::{sleep, timeout};

use super::{
    attach::{self, Attached, Stderr},
    container::{Removal, remove},
    engine::Engine,
    labels,
    upload::GUEST,
};
use crate::{
    GuestMachine,
    detached::{ANSWER, Memo, read_nonce, too_many_clients},
    random::{hex, random_bytes},
};

const REACH: &str = "reach a machine";
/// Number of checks, and the pause between them, whether a machine that did not answer is just ending.
const CHECKS: usize = 100;
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// The handle of a machine that outlives its creator. The nonce grants access to the machine.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DetachedHandle {
    pub(super) container: String,
    nonce: String,
    /// Random value that the container's label holds too.
    pub(super) seal: String,
    /// Id of the engine, the same at every address.
    engine: String,
    /// Address of the engine, if it is not the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    at: Option<String>,
}

/// An engine and its client.
#[derive(Clone, Copy)]
pub(super) struct EngineRef<'a> {
    pub(super) engine: &'a Engine,
    pub(super) docker: &'a bollard::Docker,
    /// Id of the engine.
    pub(super) id: &'a str,
}

/// State of a container.
enum ContainerState {
    Gone,
    Running,
    Paused,
}

impl DetachedHandle {
    /// Creates the handle of a new machine, with a random nonce and seal.
    pub(super) fn new(engine_ref: EngineRef<'_>, container: &str) -> Result<Self> {
        let random = || random_bytes::<16>().map_err(|error| engine_ref.engine.failed("draw a nonce", error));
        let nonce: Nonce = random()?;
        Ok(Self {
            container: container.to_owned(),
            nonce: hex(&nonce),
            seal: hex(&random()?),
            engine: engine_ref.id.to_owned(),
            at: (*engine_ref.engine != Engine::local()).then(|| engine_ref.engine.to_string()),
        })
    }

    /// Reads a handle; `None` if it is the handle of a bound machine.
    pub(super) fn of(state: &serde_json::Value) -> Result<Option<Self>> {
        if state.get("nonce").is_none() {
            return Ok(None);
        }
        let bad = |error: serde_json::Error| MachineError::invalid("handle of a detached machine", error.to_string());
        let handle = serde_json::from_value::<Self>(state.clone()).map_err(bad)?;
        handle.nonce()?;
        Ok(Some(handle))
    }

    /// The JSON form of the handle.
    pub(super) fn state(&self) -> Result<serde_json::Value> {
        serde_json::to_value(self).map_err(|error| MachineError::invalid("handle", error.to_string()))
    }

    pub(super) fn nonce(&self) -> Result<Nonce> {
        read_nonce(&self.nonce)
    }

    /// The state of the container. Fails if the container does not match the handle, or is on another engine.
    async fn container_state(&self, engine_ref: EngineRef<'_>) -> Result<ContainerState> {
        if engine_ref.id != self.engine {
            let address = self.at.as_deref().unwrap_or("its host's usual socket");
            let reason = format!(
                "belongs to another Docker engine than the one at {}; use the one that was reached at {address}",
                engine_ref.engine
            );
            return Err(MachineError::invalid("handle", reason));
        }
        match inspect(engine_ref, &self.container).await? {
            None => Ok(ContainerState::Gone),
            Some(found) if label(&found, labels::SEAL) != Some(&self.seal) => Err(self.wrong_machine()),
            Some(found) => match found.state.and_then(|state| state.status) {
                Some(Status::RUNNING) => Ok(ContainerState::Running),
                Some(Status::PAUSED) => Ok(ContainerState::Paused),
                _ => Ok(ContainerState::Gone),
            },
        }
    }

    /// Connects to the machine; `None` if it is gone.
    pub(super) async fn attach(
        &self,
        engine_ref: EngineRef<'_>,
        handle: &MachineHandle,
    ) -> Result<Option<GuestMachine>> {
        match self.container_state(engine_ref).await? {
            ContainerState::Gone => return Ok(None),
            ContainerState::Running => {}
            ContainerState::Paused => {
                let why = format!("its container is paused; run `docker unpause {}`", self.container);
                return Err(MachineError::transport("reach it", why));
            }
        }
        match self.greet(engine_ref, handle).await {
            // The engine may report any error for a container that is just ending.
            Err(_) if self.is_ending(engine_ref).await? => Ok(None),
            greeted => greeted,
        }
    }

    /// Connects to the guest; `None` if it is gone.
    async fn greet(&self, engine_ref: EngineRef<'_>, handle: &MachineHandle) -> Result<Option<GuestMachine>> {
        let Some(bridge) = self.bridge(engine_ref).await? else { return Ok(None) };
        let Attached { mut input, mut output, stderr, line } = bridge;
        let late = |_late| MachineError::transport("reach it", "its guest did not answer within 20 seconds");
        let welcomed = timeout(ANSWER, Memo::ask(&mut output, &mut input, self.nonce()?)).await.map_err(late)??;
        let Some(memo) = welcomed else { return Err(self.rejected(&stderr)) };
        match memo.connect(output, input, handle.clone()).await {
            Ok(machine) => {
                let (engine, docker) = (engine_ref.engine.clone(), engine_ref.docker.clone());
                let name = self.container.clone();
                Ok(Some(machine.teardown(Removal { engine, docker, name, line: Some(line) })))
            }
            Err(MachineError::Gone) => Err(too_many_clients()),
            Err(error) => Err(error),
        }
    }

    /// Whether the container is gone, after an ending one had five seconds to stop.
    async fn is_ending(&self, engine_ref: EngineRef<'_>) -> Result<bool> {
        for _ in 0..CHECKS {
            if matches!(self.container_state(engine_ref).await?, ContainerState::Gone) {
                return Ok(true);
            }
            sleep(CHECK_INTERVAL).await;
        }
        Ok(false)
    }

    /// The error if the guest closes the connection instead of answering.
    fn rejected(&self, stderr: &Stderr) -> MachineError {
        let stderr = stderr.lock();
        let text: String = String::from_utf8_lossy(&stderr).chars().filter(|c| !c.is_control()).take(500).collect();
        if text.is_empty() { self.wrong_machine() } else { MachineError::transport("reach it", text) }
    }

    fn wrong_machine(&self) -> MachineError {
        MachineError::invalid("handle", format!("is not one of the machine in {}", self.container))
    }

    /// A stream to the machine's door; `None` if the machine ended at this moment.
    async fn bridge(&self, engine_ref: EngineRef<'_>) -> Result<Option<Attached>> {
        let EngineRef { engine, docker, .. } = engine_ref;
        let id = self.container.rsplit('-').next().unwrap_or_default();
        let config = ExecConfig {
            attach_stdin: Some(true),
            attach_stdout: Some(true),
            attach_stderr: Some(true),
            // Root, because no command inside has this user's rights.
            user: Some("0:0".to_owned()),
            working_dir: Some("/".to_owned()),
            cmd: Some([GUEST, "bridge", id].map(str::to_owned).into()),
            ..ExecConfig::default()
        };
        let made = match engine.within(REACH, docker.create_exec(&self.container, config)).await? {
            Ok(made) => made.id,
            Err(Error::DockerResponseServerError { status_code: 404 | 409, .. }) => return Ok(None),
            Err(error) => return Err(engine.api_error(REACH, error)),
        };
        match engine.within(REACH, attach::start(&engine.address, &made)).await? {
            Ok(bridge) => Ok(Some(bridge)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(engine.failed(REACH, error)),
        }
    }

    /// Ends the machine without its guest's consent, and waits until everything of it is removed.
    pub(super) async fn delete(&self, engine_ref: EngineRef<'_>) -> Result<()> {
        self.container_state(engine_ref).await?;
        remove(engine_ref.engine, engine_ref.docker, &self.container).await
    }
}

/// Inspects a container; `None` if the engine does not know it.
async fn inspect(engine_ref: EngineRef<'_>, container: &str) -> Result<Option<ContainerInspectResponse>> {
    match engine_ref.engine.within(REACH, engine_ref.docker.inspect_container(container, None)).await? {
        Ok(found) => Ok(Some(found)),
        Err(Error::DockerResponseServerError { status_code: 404, .. }) => Ok(None),
        Err(error) => Err(engine_ref.engine.api_error(REACH, error)),
    }
}

fn label<'a>(found: &'a ContainerInspectResponse, name: &str) -> Option<&'a String> {
    found.config.as_ref()?.labels.as_ref()?.get(name)
}

/// Fails if the handle is that of a bound machine and the container is a detached one.
pub(super) async fn check_bound(engine_ref: EngineRef<'_>, container: &str) -> Result<()> {
    let found = inspect(engine_ref, container).await?;
    match found.as_ref().and_then(|found| label(found, labels::SEAL)).filter(|seal| !seal.is_empty()) {
        None => Ok(()),
        Some(_) => Err(MachineError::invalid("handle", format!("is not one of the machine in {container}"))),
    }
}
