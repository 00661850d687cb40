//! A wrapper that hides the optional facets of a machine, so that the POSIX fallbacks are used and tested.

use std::sync::Arc;

use async_trait::async_trait;

use crate::{
    ByteStream, Command, Commands, Features, Machine, MachineHandle, MachineSpec, Process, Result, SandboxClient,
    Target,
};

/// A machine without the facets [`Files`](crate::Files), [`Ports`](crate::Ports) and [`Snapshots`](crate::Snapshots).
/// [`Commands`] stays: no tools on the machine could replace it.
#[derive(Clone, Debug)]
pub struct Bare {
    inner: Arc<dyn Machine>,
}

impl Bare {
    /// Wraps a machine.
    #[must_use]
    pub fn new(inner: Arc<dyn Machine>) -> Self {
        Self { inner }
    }
}

#[async_trait]
impl Machine for Bare {
    fn handle(&self) -> MachineHandle {
        self.inner.handle()
    }

    fn features(&self) -> &Features {
        self.inner.features()
    }

    async fn spawn(&self, command: Command) -> Result<Process> {
        self.inner.spawn(command).await
    }

    async fn read(&self, target: &Target) -> Result<ByteStream> {
        self.inner.read(target).await
    }

    async fn write(&self, target: &Target, data: ByteStream) -> Result<()> {
        self.inner.write(target, data).await
    }

    async fn stop(&self) -> Result<()> {
        self.inner.stop().await
    }

    fn commands(&self) -> Option<&dyn Commands> {
        self.inner.commands()
    }
}

/// A client whose machines are all [`Bare`], to test the POSIX fallbacks on the machines of another client.
#[derive(Clone, Debug)]
pub struct BareClient<C> {
    inner: C,
}

impl<C: SandboxClient> BareClient<C> {
    /// Wraps a client.
    pub fn new(inner: C) -> Self {
        Self { inner }
    }
}

#[async_trait]
impl<C: SandboxClient> SandboxClient for BareClient<C> {
    fn id(&self) -> &'static str {
        self.inner.id()
    }

    async fn create(&self, spec: MachineSpec) -> Result<Arc<dyn Machine>> {
        Ok(Arc::new(Bare::new(self.inner.create(spec).await?)))
    }

    async fn attach(&self, handle: &MachineHandle) -> Result<Option<Arc<dyn Machine>>> {
        let found = self.inner.attach(handle).await?;
        Ok(found.map(|machine| Arc::new(Bare::new(machine)) as Arc<dyn Machine>))
    }

    async fn delete(&self, handle: &MachineHandle) -> Result<()> {
        self.inner.delete(handle).await
    }
}
