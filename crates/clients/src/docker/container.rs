//! A container while it exists: whoever lets go of it, however early, has it removed.

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
use crate::Farewell;

pub(super) const REMOVE: &str = "remove the container";
/// How often an engine that removes it already is asked whether it is done.
const LOOK: Duration = Duration::from_millis(20);
/// How often, and how many times, it is looked for where nobody knows whether an engine makes it.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
const LOOKS: u32 = 60;

/// A container by its name, which is known before it exists.
pub(super) struct Container {
    pub(super) name: String,
    engine: Engine,
    docker: bollard::Docker,
    /// Runs on when its maker is cancelled: what an engine makes of a request nobody waits for is there all the same.
    making: Option<JoinHandle<Result<(), Error>>>,
    line: Option<Line>,
    gone: bool,
    /// The engine never said whether it would make it.
    doubtful: bool,
}

impl Container {
    /// Has it made, but not started.
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
        let mut made = Self { name, engine, docker, making: Some(making), line: None, gone: false, doubtful: false };
        if let Some(making) = &mut made.making {
            let action = "create the container";
            let outcome = made.engine.within(action, making).await?;
            made.making = None;
            let outcome = outcome.map_err(|error| made.engine.failed(action, error))?;
            made.doubtful = is_doubtful(&outcome);
            outcome.map_err(|error| made.engine.trouble(action, error))?;
        }
        Ok(made)
    }

    /// Remembers the stream that must end before the container can.
    pub(super) fn hold(&mut self, line: Line) {
        self.line = Some(line);
    }

    /// Lets it live by itself; what is left is the way to end it.
    pub(super) fn let_go(mut self) -> Removal {
        self.gone = true;
        let (engine, docker, name) = (self.engine.clone(), self.docker.clone(), std::mem::take(&mut self.name));
        Removal { engine, docker, name, line: self.line.take() }
    }

    /// Removes it and its own volumes, running or not.
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

/// Whether an engine may have begun something, and did not say so.
fn is_doubtful(outcome: &Result<(), Error>) -> bool {
    outcome.as_ref().is_err_and(|error| !matches!(error, Error::DockerResponseServerError { .. }))
}

/// Removes a container that may appear any moment, or never.
async fn remove_late(docker: &bollard::Docker, name: &str) {
    for _ in 0..LOOKS {
        let force = RemoveContainerOptions { force: true, v: true, ..RemoveContainerOptions::default() };
        if docker.remove_container(name, Some(force)).await.is_ok() {
            return;
        }
        sleep(LOOK_AGAIN).await;
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
            // An engine answers such a request when it has removed everything; meanwhile it answers others.
            let looked = engine.within(REMOVE, docker.inspect_container(name, None)).await;
            return match looked.map_err(|silent| MachineError::transport(REMOVE, silent))? {
                Err(Error::DockerResponseServerError { status_code: 404, .. }) => Ok(()),
                Err(error) => Err(MachineError::transport(REMOVE, error)),
                Ok(_found) => Err(late()),
            };
        };
        match outcome {
            Ok(()) | Err(Error::DockerResponseServerError { status_code: 404, .. }) => return Ok(()),
            // The engine is at it: the guest has ended.
            Err(Error::DockerResponseServerError { status_code: 409, .. }) if Instant::now() < until => {
                sleep(LOOK).await
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

/// What stopping a container waits for that lives by itself.
pub(super) struct Removal {
    pub(super) engine: Engine,
    pub(super) docker: bollard::Docker,
    pub(super) name: String,
    /// This holder's own stream.
    pub(super) line: Option<Line>,
}

impl Farewell for Removal {
    fn wait(&mut self) -> BoxFuture<'_, Result<()>> {
        if let Some(line) = self.line.take() {
            line.cut();
        }
        Box::pin(remove(&self.engine, &self.docker, &self.name))
    }
}

impl Farewell for Container {
    fn wait(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.remove())
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        // Without a runtime there is nobody to ask. A container that runs then still ends with its stream.
        let (false, Ok(runtime)) = (self.gone, tokio::runtime::Handle::try_current()) else { return };
        if let Some(line) = self.line.take() {
            line.cut();
        }
        let (making, mut doubtful) = (self.making.take(), self.doubtful);
        let (engine, docker, name) = (self.engine.clone(), self.docker.clone(), std::mem::take(&mut self.name));
        runtime.spawn(async move {
            if let Some(making) = making {
                doubtful = making.await.is_ok_and(|outcome| is_doubtful(&outcome));
            }
            if doubtful {
                return remove_late(&docker, &name).await;
            }
            if let Err(error) = remove(&engine, &docker, &name).await {
                tracing::warn!(%error, container = name, "a container is left");
            }
        });
    }
}
