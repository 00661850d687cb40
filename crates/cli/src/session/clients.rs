//! Where sessions' machines are found again: on this host, or at its container engine, as their handles say.

use std::sync::Arc;

use async_trait::async_trait;
use sandbar::{
    Machine, MachineHandle, MachineSpec, Recorder, Result, SandboxClient,
    client::{Docker, UnixLocal, docker::Engine},
};

/// The client that every session's machine is reached through. New ones are made on this host.
#[derive(Clone, Debug)]
pub(super) struct Clients {
    local: UnixLocal,
}

impl Clients {
    pub(super) fn new(local: UnixLocal) -> Self {
        Self { local }
    }

    /// The one that a machine was made by.
    pub(super) fn of(&self, handle: &MachineHandle) -> Result<Arc<dyn SandboxClient>> {
        // A machine that is there needs no image to be found.
        let docker = Docker::image("none");
        if handle.client != docker.id() {
            return Ok(Arc::new(self.local.clone()));
        }
        Ok(Arc::new(docker.engine(Engine::from_env()?)))
    }
}

#[async_trait]
impl SandboxClient for Clients {
    fn id(&self) -> &'static str {
        self.local.id()
    }

    async fn create(&self, spec: MachineSpec) -> Result<Arc<dyn Machine>> {
        self.local.create(spec).await
    }

    async fn create_recorded(&self, spec: MachineSpec, record: &Recorder<'_>) -> Result<Arc<dyn Machine>> {
        self.local.create_recorded(spec, record).await
    }

    async fn attach(&self, handle: &MachineHandle) -> Result<Option<Arc<dyn Machine>>> {
        self.of(handle)?.attach(handle).await
    }

    async fn delete(&self, handle: &MachineHandle) -> Result<()> {
        self.of(handle)?.delete(handle).await
    }
}
