//! A finished clone, still in the machine that made it.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::StreamExt;
use sandbar_machine::{
    ByteStream, Demand, Machine, MachineError, MachinePath, MachineSpec, Network, SandboxClient, Target,
};
use tokio::{runtime::Handle, time::timeout};

use crate::{Op, Result, SandboxError};

/// Timeout for deleting a machine.
const DELETE_TIMEOUT: Duration = Duration::from_secs(60);

/// A machine for one clone. Dropping it deletes the machine in the background.
pub(super) struct CloneMachine {
    client: Arc<dyn SandboxClient>,
    pub(super) machine: Arc<dyn Machine>,
    deleted: AtomicBool,
}

impl CloneMachine {
    pub(super) async fn create(client: &Arc<dyn SandboxClient>, isolation: Demand) -> Result<Self> {
        let spec = MachineSpec::default().network(Network::Host).isolation(isolation);
        let machine = client.create(spec).await;
        let machine = machine.map_err(|cause| SandboxError::machine(Op::Create, "a sandbox to clone in", cause))?;
        Ok(Self { client: client.clone(), machine, deleted: AtomicBool::new(false) })
    }

    /// The machine's workspace, and the directory in it for the clone.
    pub(super) fn workspace(&self) -> Result<(MachinePath, MachinePath)> {
        let workspace = self.machine.features().workspace.clone();
        let clone = workspace.join("clone");
        let clone = clone.map_err(|cause| SandboxError::machine(Op::Create, "a sandbox to clone in", cause))?;
        Ok((workspace, clone))
    }

    async fn delete(&self) -> Result<()> {
        self.deleted.store(true, Ordering::Relaxed);
        let late = MachineError::Exhausted { what: "time".to_owned(), reason: "the machine does not end".to_owned() };
        let deleted = timeout(DELETE_TIMEOUT, self.client.delete(&self.machine.handle())).await.unwrap_or(Err(late));
        deleted.map_err(|cause| SandboxError::machine(Op::Delete, "the sandbox that was cloned in", cause))
    }
}

impl Drop for CloneMachine {
    fn drop(&mut self) {
        if self.deleted.load(Ordering::Relaxed) {
            return;
        }
        let (client, handle) = (self.client.clone(), self.machine.handle());
        // Without a runtime, the process is about to exit; the client removes machines that outlive it.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move {
                let _owner_gone = timeout(DELETE_TIMEOUT, client.delete(&handle)).await;
            });
        }
    }
}

impl fmt::Debug for CloneMachine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.machine.fmt(f)
    }
}

/// A checked-out repository. Its machine is deleted when this value and all its streams are dropped.
#[derive(Debug)]
pub struct Checkout {
    pub(super) sandbox: Arc<CloneMachine>,
    pub(super) clone: MachinePath,
    pub(super) root: MachinePath,
    pub(super) commit: String,
    pub(super) bytes: u64,
    pub(super) entries: u64,
    pub(super) shown: String,
}

impl Checkout {
    /// Complete id of the commit that the reference resolved to.
    #[must_use]
    pub fn commit(&self) -> &str {
        &self.commit
    }

    /// Size of the clone in bytes, including history.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Number of files, directories and links, including history.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// The repository, or its requested directory, as a tar stream.
    ///
    /// # Errors
    /// `git_copy_error` if the machine cannot pack it.
    pub async fn pack(&self) -> Result<ByteStream> {
        let target = Target::from(&self.root).beneath(self.clone.clone());
        let packed = self.sandbox.machine.pack(&target, &[]).await;
        let tar = packed.map_err(|cause| {
            SandboxError::git_copy_error(&self.shown, "an archive", "the clone cannot be packed").because(cause)
        })?;
        let sandbox = self.sandbox.clone();
        Ok(Box::pin(tar.inspect(move |_| {
            let _alive_until_the_last_byte = &sandbox;
        })))
    }

    /// Deletes the machine and waits until it is gone.
    ///
    /// # Errors
    /// `machine_error` if it cannot be deleted.
    pub async fn close(self) -> Result<()> {
        self.sandbox.delete().await
    }
}
