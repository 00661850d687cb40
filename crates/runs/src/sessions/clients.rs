//! The client of all sessions: it reaches each machine through the provider that the machine's handle names.

use std::sync::Arc;

use async_trait::async_trait;
use sandbar::{
    Machine, MachineSpec, SandboxClient,
    client::{
        Registry, Source,
        registry::{ClientContext, SessionList},
    },
    machine::{MachineHandle, Recorder, Result},
};

/// The providers and the list of sessions. New machines come from the default provider.
#[derive(Clone, Debug)]
pub(super) struct Clients {
    registry: Registry,
    list: SessionList,
}

impl Clients {
    pub(super) fn new(registry: Registry, list: SessionList) -> Self {
        Self { registry, list }
    }

    /// The providers, the default provider first.
    pub(super) fn registry(&self) -> &Registry {
        &self.registry
    }

    /// The list that machines are created for.
    pub(super) fn list(&self) -> &SessionList {
        &self.list
    }

    /// The client that creates the machine of a new session.
    pub(super) fn creator(&self, source: &Source, context: ClientContext) -> Result<Arc<dyn SandboxClient>> {
        self.registry.client(source, &context.sessions(self.list.clone()))
    }

    /// The client that created a machine.
    pub(super) fn of(&self, handle: &MachineHandle) -> Result<Arc<dyn SandboxClient>> {
        self.registry.client_of(handle, &self.context())
    }

    fn default_client(&self) -> Result<Arc<dyn SandboxClient>> {
        self.registry.default_provider()?.client(None, &self.context())
    }

    fn context(&self) -> ClientContext {
        ClientContext::default().sessions(self.list.clone())
    }
}

#[async_trait]
impl SandboxClient for Clients {
    fn id(&self) -> &'static str {
        "sessions"
    }

    async fn create(&self, spec: MachineSpec) -> Result<Arc<dyn Machine>> {
        self.default_client()?.create(spec).await
    }

    async fn create_recorded(&self, spec: MachineSpec, record: &Recorder<'_>) -> Result<Arc<dyn Machine>> {
        self.default_client()?.create_recorded(spec, record).await
    }

    async fn attach(&self, handle: &MachineHandle) -> Result<Option<Arc<dyn Machine>>> {
        self.of(handle)?.attach(handle).await
    }

    async fn exists(&self, handle: &MachineHandle) -> Result<bool> {
        self.of(handle)?.exists(handle).await
    }

    async fn delete(&self, handle: &MachineHandle) -> Result<()> {
        self.of(handle)?.delete(handle).await
    }
}
