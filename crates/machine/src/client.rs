//! Where machines come from.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::{Machine, MachineSpec, Result};

/// All that saved state needs to find a machine again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineHandle {
    /// Which client made it.
    pub client: String,
    /// What that client knows it by.
    pub state: serde_json::Value,
}

/// Writes down the handle of a machine that is being made.
pub type Recorder<'a> = dyn Fn(&MachineHandle) -> Result<()> + Send + Sync + 'a;

/// A source of machines: this host, an engine, a provider.
#[async_trait]
pub trait SandboxClient: Send + Sync + fmt::Debug {
    /// The client's name in handles and reports.
    fn id(&self) -> &'static str;

    /// Makes a machine, or nothing at all: a failed create leaves nothing behind.
    async fn create(&self, spec: MachineSpec) -> Result<Arc<dyn Machine>>;

    /// Makes a machine as [`create`](Self::create) does, and has its handle recorded before the machine can outlive this
    /// process: a process that is killed leaves no machine without a record. A record may be left without a machine, also
    /// when this fails. When `record` fails, so does this, and no machine is left. It may be called more than once.
    ///
    /// What is provided here records a machine that is already made; a client whose machines outlive their makers does better.
    async fn create_recorded(&self, spec: MachineSpec, record: &Recorder<'_>) -> Result<Arc<dyn Machine>> {
        let machine = self.create(spec).await?;
        match record(&machine.handle()) {
            Ok(()) => Ok(machine),
            Err(error) => {
                let _lesser = machine.stop().await;
                Err(error)
            }
        }
    }

    /// Finds a machine again: one that is held in this process, or a detached one made by any process of this user.
    /// `Ok(None)`: it is gone, which is not an error.
    async fn attach(&self, handle: &MachineHandle) -> Result<Option<Arc<dyn Machine>>>;

    /// Stops a machine and removes everything it had. Deleting one that is gone is fine.
    async fn delete(&self, handle: &MachineHandle) -> Result<()>;
}
