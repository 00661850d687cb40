//! The local client keeps every promise of the suite, at every level of isolation.
#![cfg(target_os = "linux")]

use std::sync::Arc;

use async_trait::async_trait;
use sandbar_clients::UnixLocal;
use sandbar_machine::{Isolation, Machine, MachineHandle, MachineSpec, Result, SandboxClient};

/// Makes machines of one level, whatever the specification says.
#[derive(Debug)]
struct At(Isolation, UnixLocal);

impl At {
    fn new(level: Isolation) -> Self {
        Self(level, UnixLocal::new())
    }
}

#[async_trait]
impl SandboxClient for At {
    fn id(&self) -> &'static str {
        self.1.id()
    }

    async fn create(&self, spec: MachineSpec) -> Result<Arc<dyn Machine>> {
        self.1.create(MachineSpec { isolation: self.0, ..spec }).await
    }

    async fn attach(&self, handle: &MachineHandle) -> Result<Option<Arc<dyn Machine>>> {
        self.1.attach(handle).await
    }

    async fn delete(&self, handle: &MachineHandle) -> Result<()> {
        self.1.delete(handle).await
    }
}

mod full {
    use super::*;
    sandbar_machine::conformance!(UnixLocal::new());
}

mod landlock {
    use super::*;
    sandbar_machine::conformance!(At::new(Isolation::Landlock));
}

mod none {
    use super::*;
    sandbar_machine::conformance!(At::new(Isolation::None));
}
