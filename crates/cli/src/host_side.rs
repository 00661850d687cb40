//! A directory of the host behind the walls of a machine that runs nothing: what its guest writes cannot land outside.

use std::{ffi::OsStr, path::PathBuf, sync::Arc, time::Duration};

use sandbar::{
    Access, Isolation, Machine, MachinePath, MachineSpec, SandboxClient, Target, Workspace, client::UnixLocal,
};
use tokio::time::timeout;

use crate::{
    failure::Failure,
    making::{Halt, unless_signalled},
    signals::Signals,
};

/// How long the guest may take to clean up after something that was given up.
const SETTLING: Duration = Duration::from_secs(5);

/// The directory, reached through its machine, which ends with this.
pub(crate) struct HostSide {
    machine: Arc<dyn Machine>,
}

impl HostSide {
    pub(crate) async fn open(path: PathBuf, access: Access, isolation: Isolation) -> Result<Self, Failure> {
        let spec = MachineSpec { workspace: Workspace::Host { path, access }, isolation, ..MachineSpec::default() };
        Ok(Self { machine: UnixLocal::new().create(spec).await? })
    }

    pub(crate) fn machine(&self) -> Arc<dyn Machine> {
        self.machine.clone()
    }

    /// Where the machine sees the directory.
    pub(crate) fn root(&self) -> MachinePath {
        self.machine.features().workspace
    }

    /// Something in the directory, or the directory itself.
    pub(crate) fn target(&self, name: Option<&OsStr>) -> Result<Target, Failure> {
        let root = self.root();
        let path = name.map_or_else(|| Ok(root.clone()), |name| root.join(name))?;
        Ok(Target::from(path).beneath(root))
    }

    /// Does something with the directory, unless a signal comes first, and then ends the machine. Whatever was half
    /// written then is removed by its guest, which would have no time for it if the machine simply ended.
    pub(crate) async fn during(
        self,
        work: impl Future<Output = Result<(), Failure>>,
        signals: &mut Signals,
    ) -> Result<(), Halt> {
        let done = unless_signalled(work, signals).await;
        if matches!(done, Err(Halt::Signal(_))) {
            // Requests are taken in order: when this one is answered, what was given up before it is over.
            let _settled = timeout(SETTLING, self.machine.stat(&Target::from(self.root()))).await;
        }
        self.close().await;
        done
    }

    pub(crate) async fn close(&self) {
        if let Err(error) = self.machine.stop().await {
            tracing::warn!(%error, "the machine between did not end cleanly");
        }
    }
}
