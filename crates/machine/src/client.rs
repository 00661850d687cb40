//! A client: the source of machines.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::{Machine, MachineSpec, Result};

/// Serializable reference to a machine, with which [`SandboxClient::attach`] finds it again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineHandle {
    /// [`SandboxClient::id`] of the client that created the machine.
    pub client: String,
    /// Identifier of the machine; only its client interprets this value.
    pub state: serde_json::Value,
}

/// Callback that saves the handle of a machine while the machine is being created.
pub type Recorder<'a> = dyn Fn(&MachineHandle) -> Result<()> + Send + Sync + 'a;

/// A source of machines: this host, a container engine, or a provider.
#[async_trait]
pub trait SandboxClient: Send + Sync + fmt::Debug {
    /// Name of the client, in [`MachineHandle::client`] and in reports.
    fn id(&self) -> &'static str;

    /// Creates a machine. A failed `create` leaves nothing behind.
    ///
    /// # Errors
    /// A client refuses every field of the specification that it cannot honour, instead of ignoring it:
    /// [`MachineSpec::refuse_unless`] does so with [`MachineError::Unsupported`], [`MachineError::Isolation`],
    /// [`MachineError::Users`] or [`MachineError::Invalid`]. [`MachineError::Start`] if the machine does not start.
    ///
    /// [`MachineError::Unsupported`]: crate::MachineError::Unsupported
    /// [`MachineError::Isolation`]: crate::MachineError::Isolation
    /// [`MachineError::Users`]: crate::MachineError::Users
    /// [`MachineError::Invalid`]: crate::MachineError::Invalid
    /// [`MachineError::Start`]: crate::MachineError::Start
    async fn create(&self, spec: MachineSpec) -> Result<Arc<dyn Machine>>;

    /// Creates a machine as [`create`](Self::create) does, and calls `record` with its handle before the machine can outlive
    /// this process. If this process is killed, no machine exists without a record. The opposite is possible, also after an
    /// error: a record without a machine. `record` may be called more than once.
    ///
    /// The default implementation records a machine that already exists. A client whose machines outlive this process
    /// overrides it.
    ///
    /// # Errors
    /// Those of [`create`](Self::create). If `record` fails, its error is returned and no machine is left.
    async fn create_recorded(&self, spec: MachineSpec, record: &Recorder<'_>) -> Result<Arc<dyn Machine>> {
        let machine = self.create(spec).await?;
        match record(&machine.handle()) {
            Ok(()) => Ok(machine),
            Err(error) => {
                let _error_of_record_is_returned = machine.stop().await;
                Err(error)
            }
        }
    }

    /// Finds an existing machine: one that this process created and still holds, or a detached machine that any process of
    /// this user created. The result has the same [`handle`](Machine::handle).
    ///
    /// `Ok(None)` if the machine does not exist any more; that is not an error.
    async fn attach(&self, handle: &MachineHandle) -> Result<Option<Arc<dyn Machine>>>;

    /// Whether [`attach`](Self::attach) would find this machine. This call neither resumes the machine nor restarts its
    /// lease: a client whose `attach` does either must override the default implementation.
    async fn exists(&self, handle: &MachineHandle) -> Result<bool> {
        Ok(self.attach(handle).await?.is_some())
    }

    /// Stops a machine and removes all its resources. Deleting a machine that does not exist any more succeeds.
    ///
    /// # Errors
    /// [`MachineError::StillBeingRemoved`] if the removal continues without the caller, [`MachineError::NotRemoved`] if
    /// something of the machine cannot be removed.
    ///
    /// [`MachineError::StillBeingRemoved`]: crate::MachineError::StillBeingRemoved
    /// [`MachineError::NotRemoved`]: crate::MachineError::NotRemoved
    async fn delete(&self, handle: &MachineHandle) -> Result<()>;
}
