//! Below full isolation the local client still keeps every promise of the suite.
#![cfg(target_os = "linux")]

use std::sync::Arc;

use async_trait::async_trait;
use sandbar_clients::UnixLocal;
use sandbar_machine::{Demand, Machine, MachineHandle, MachineSpec, Result, SandboxClient, conformance::promises};

/// Creates machines of one level, whatever the specification says.
#[derive(Debug)]
struct At(Demand, UnixLocal);

impl At {
    fn new(level: Demand) -> Self {
        Self(level, UnixLocal::new())
    }
}

#[async_trait]
impl SandboxClient for At {
    fn id(&self) -> &'static str {
        self.1.id()
    }

    async fn create(&self, spec: MachineSpec) -> Result<Arc<dyn Machine>> {
        self.1.create(spec.isolation(self.0)).await
    }

    async fn attach(&self, handle: &MachineHandle) -> Result<Option<Arc<dyn Machine>>> {
        self.1.attach(handle).await
    }

    async fn delete(&self, handle: &MachineHandle) -> Result<()> {
        self.1.delete(handle).await
    }
}

async fn keeps_every_promise(client: At) {
    for promise in promises() {
        promise.check(&client).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn landlock_alone_keeps_every_promise() {
    keeps_every_promise(At::new(Demand::Landlock)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_isolation_keeps_every_promise() {
    keeps_every_promise(At::new(Demand::None)).await;
}
