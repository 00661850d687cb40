//! A container during its lifetime: dropping it, at any point, removes it.

use std::{
    io,
    time::{Duration, Instant},
};

use bollard::{
    errors::Error,
    models::ContainerCreateBody,
    query_parameters::{CreateContainerOptions, RemoveContainerOptions},
};
use futures::future::BoxFuture;
use sandbar_machine::{MachineError, Result};
use tokio::{task::JoinHandle, time::sleep};

use super::{attach::Line, engine::Engine};
use crate::Teardown;

pub(super) const REMOVE: &str = "remove the container";
/// Pause between two requests to an engine that is already removing the container.
const REMOVE_PAUSE: Duration = Duration::from_millis(20);
/// Pause and number of the attempts to remove a container that the engine may or may not create.
const LATE_PAUSE: Duration = Duration::from_millis(500);
const LATE_ATTEMPTS: u32 = 60;

/// A container by its name, which is known before it exists.
pub(super) struct Container {
    pub(super) name: String,
    engine: Engine,
    docker: bollard::Docker,
    /// The create request. It continues if the caller is cancelled, because the engine creates the container anyway.
    making: Option<JoinHandle<Result<(), Error>>>,
    line: Option<Line>,
    gone: bool,
    /// Whether the engine never answered the create request.
    unconfirmed: bool,
}

impl Container {
    /// Creates the container, but does not start it.
    pub(super) async fn make(
        engine: &Engine,
        docker: &bollard::Docker,
        name: String,
        platform: Option<&str>,
        body: ContainerCreateBody,
    ) -> Result<Self> {
        let platform = platform.unwrap_or_default().to_owned();
        let options = CreateContainerOptions { name: Some(name.clone()), platform };
        let asked = docker.clone();
        let making = tokio::spawn(async move { asked.create_container(Some(options), body).await.map(drop) });
        let (engine, docker) = (engine.clone(), docker.clone());
        let mut made = Self { name, engine, docker, making: Some(making), line: None, gone: false, unconfirmed: false };
        if let Some(making) = &mut made.making {
            let action = "create the container";
            let outcome = made.engine.within(action, making).await?;
            made.making = None;
            let outcome = outcome.map_err(|error| made.engine.failed(action, error))?;
            made.unconfirmed = is_unconfirmed(&outcome);
            outcome.map_err(|error| made.engine.api_error(action, error))?;
        }
        Ok(made)
    }

    /// Stores the stream that must end before the container can be removed.
    pub(super) fn hold(&mut self, line: Line) {
        self.line = Some(line);
    }

    /// Lets the container outlive this value. Returns its teardown.
    pub(super) fn let_go(mut self) -> Removal {
        self.gone = true;
        let (engine, docker, name) = (self.engine.clone(), self.docker.clone(), std::mem::take(&mut self.name));
        Removal { engine, docker, name, line: self.line.take() }
    }

    /// Removes the container and its anonymous volumes, running or not.
    pub(super) async fn remove(&mut self) -> Result<()> {
        if let Some(line) = self.line.take() {
            line.cut();
        }
        if !self.gone {
            remove(&self.engine, &self.docker, &self.name).await?;
            self.gone = true;
        }
        Ok(())
    }
}

/// Whether an engine may have started a create without confirming it.
fn is_unconfirmed(outcome: &Result<(), Error>) -> bool {
    outcome.as_ref().is_err_and(|error| !matches!(error, Error::DockerResponseServerError { .. }))
}

/// Removes a container that may still appear, or never.
async fn remove_late(docker: &bollard::Docker, name: &str) {
    for _ in 0..LATE_ATTEMPTS {
        let force = RemoveContainerOptions { force: true, v: true, ..RemoveContainerOptions::default() };
        if docker.remove_container(name, Some(force)).await.is_ok() {
            return;
        }
        sleep(LATE_PAUSE).await;
    }
}

/// Removes a container by name, and waits until it is gone.
pub(super) async fn remove(engine: &Engine, docker: &bollard::Docker, name: &str) -> Result<()> {
    let begun = Instant::now();
    let until = engine.until();
    let late = || MachineError::StillBeingRemoved { what: format!("container {name}"), waited: begun.elapsed() };
    loop {
        let force = RemoveContainerOptions { force: true, v: true, ..RemoveContainerOptions::default() };
        let Ok(outcome) = engine.within(REMOVE, docker.remove_container(name, Some(force))).await else {
            // An engine answers this request only after it has removed everything; meanwhile it answers others.
            let looked = engine.within(REMOVE, docker.inspect_container(name, None)).await;
            return match looked.map_err(|silent| MachineError::transport(REMOVE, silent))? {
                Err(Error::DockerResponseServerError { status_code: 404, .. }) => Ok(()),
                Err(error) => Err(MachineError::transport(REMOVE, error)),
                Ok(_found) => Err(late()),
            };
        };
        match outcome {
            Ok(()) | Err(Error::DockerResponseServerError { status_code: 404, .. }) => return Ok(()),
            // The guest has ended, and the engine is already removing the container.
            Err(Error::DockerResponseServerError { status_code: 409, .. }) if Instant::now() < until => {
                sleep(REMOVE_PAUSE).await
            }
            Err(Error::DockerResponseServerError { status_code: 409, .. }) => return Err(late()),
            Err(Error::DockerResponseServerError { message, .. }) => {
                let source = io::Error::other(message);
                return Err(MachineError::NotRemoved { what: format!("container {name}"), source });
            }
            Err(error) => return Err(MachineError::transport(REMOVE, error)),
        }
    }
}

/// Teardown of a detached container.
pub(super) struct Removal {
    pub(super) engine: Engine,
    pub(super) docker: bollard::Docker,
    pub(super) name: String,
    /// The stream of this client.
    pub(super) line: Option<Line>,
}

impl Teardown for Removal {
    fn wait(&mut self) -> BoxFuture<'_, Result<()>> {
        if let Some(line) = self.line.take() {
            line.cut();
        }
        Box::pin(remove(&self.engine, &self.docker, &self.name))
    }
}

impl Teardown for Container {
    fn wait(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.remove())
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        // Without a runtime no request can be sent. A running container still ends with its stream.
        let (false, Ok(runtime)) = (self.gone, tokio::runtime::Handle::try_current()) else { return };
        if let Some(line) = self.line.take() {
            line.cut();
        }
        let (making, mut unconfirmed) = (self.making.take(), self.unconfirmed);
        let (engine, docker, name) = (self.engine.clone(), self.docker.clone(), std::mem::take(&mut self.name));
        runtime.spawn(async move {
            if let Some(making) = making {
                unconfirmed = making.await.is_ok_and(|outcome| is_unconfirmed(&outcome));
            }
            if unconfirmed {
                return remove_late(&docker, &name).await;
            }
            if let Err(error) = remove(&engine, &docker, &name).await {
                tracing::warn!(%error, container = name, "could not remove a container");
            }
        });
    }
}
