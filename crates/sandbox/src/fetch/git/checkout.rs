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

/// How long the end of a machine is waited for.
const FAREWELL: Duration = Duration::from_secs(60);

/// A machine for one clone. It is deleted when it is dropped, in the background.
pub(super) struct Throwaway {
    client: Arc<dyn SandboxClient>,
    pub(super) machine: Arc<dyn Machine>,
    deleted: AtomicBool,
}

impl Throwaway {
    pub(super) async fn create(client: &Arc<dyn SandboxClient>, isolation: Demand) -> Result<Self> {
        let spec = MachineSpec::default().network(Network::Host).isolation(isolation);
        let machine = client.create(spec).await;
        let machine = machine.map_err(|cause| SandboxError::machine(Op::Create, "a sandbox to clone in", cause))?;
        Ok(Self { client: client.clone(), machine, deleted: AtomicBool::new(false) })
    }

    /// Where it is, and where in it the clone goes.
    pub(super) fn workspace(&self) -> Result<(MachinePath, MachinePath)> {
        let workspace = self.machine.features().workspace.clone();
        let clone = workspace.join("clone");
        let clone = clone.map_err(|cause| SandboxError::machine(Op::Create, "a sandbox to clone in", cause))?;
        Ok((workspace, clone))
    }

    async fn delete(&self) -> Result<()> {
        self.deleted.store(true, Ordering::Relaxed);
        let late = MachineError::Exhausted { what: "time".to_owned(), reason: "the machine does not end".to_owned() };
        let deleted = timeout(FAREWELL, self.client.delete(&self.machine.handle())).await.unwrap_or(Err(late));
        deleted.map_err(|cause| SandboxError::machine(Op::Delete, "the sandbox that was cloned in", cause))
    }
}

impl Drop for Throwaway {
    fn drop(&mut self) {
        if self.deleted.load(Ordering::Relaxed) {
            return;
        }
        let (client, handle) = (self.client.clone(), self.machine.handle());
        // Without a runtime the process is about to end, and machines that outlive it are swept by their client.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move {
                let _nobody_is_left_to_tell = timeout(FAREWELL, client.delete(&handle)).await;
            });
        }
    }
}

impl fmt::Debug for Throwaway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.machine.fmt(f)
    }
}

/// A repository as it was checked out. Its machine is deleted when this and every stream of it is dropped.
#[derive(Debug)]
pub struct Checkout {
    pub(super) place: Arc<Throwaway>,
    pub(super) clone: MachinePath,
    pub(super) root: MachinePath,
    pub(super) commit: String,
    pub(super) bytes: u64,
    pub(super) entries: u64,
    pub(super) shown: String,
}

impl Checkout {
    /// The commit that the reference turned out to be, all of its digits.
    #[must_use]
    pub fn commit(&self) -> &str {
        &self.commit
    }

    /// How large the clone is, history included.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How many files, directories and links it has, history included.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// The repository, or the directory of it that was asked for, as a tar stream.
    ///
    /// # Errors
    /// `git_copy_error` when the machine does not hand it out.
    pub async fn pack(&self) -> Result<ByteStream> {
        let target = Target::from(&self.root).beneath(self.clone.clone());
        let packed = self.place.machine.pack(&target, &[]).await;
        let tar = packed.map_err(|cause| {
            SandboxError::git_copy_error(&self.shown, "an archive", "the clone cannot be packed").because(cause)
        })?;
        let place = self.place.clone();
        Ok(Box::pin(tar.inspect(move |_| {
            let _kept_until_the_last_byte = &place;
        })))
    }

    /// Deletes the machine and waits until it is gone.
    ///
    /// # Errors
    /// `machine_error` when it cannot be deleted.
    pub async fn close(self) -> Result<()> {
        self.place.delete().await
    }
}
