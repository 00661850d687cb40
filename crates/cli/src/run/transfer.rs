//! The workspace of a run on a machine that cannot show directories of this host: sent before the run, fetched after it.
//!
//! This host's side is a machine too, with the run's own directory as its workspace, so that nothing a remote machine sends
//! can land outside of it.

use std::sync::Arc;

use sandbar::{Access, MachineSpec, Manifest, SandboxSession, SessionOptions, Workspace, client::UnixLocal};
use sandbar_runs::RunDir;

use crate::failure::Failure;

/// How a machine gets the workspace of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sharing {
    /// The machine shows the directory of the run.
    Shown,
    /// The machine has its own workspace, and the files are sent.
    Sent,
}

/// Sends the run's workspace to a machine.
pub(super) async fn send(run: &RunDir, session: &SandboxSession) -> Result<(), Failure> {
    let failed = |error| Failure::from(error).saying("cannot send the workspace to the machine");
    let host = host_side(run).await.map_err(failed)?;
    let sent = async { session.hydrate_workspace(host.persist_workspace().await?).await };
    let sent = sent.await;
    close(host).await;
    sent.map_err(failed)
}

/// Brings the machine's workspace to the run's own, and nothing that an agent put there outside of it.
pub(super) async fn fetch(run: &RunDir, session: &SandboxSession) -> Result<(), Failure> {
    let failed = |error| Failure::from(error).saying("cannot fetch the workspace from the machine");
    let host = host_side(run).await.map_err(failed)?;
    let fetched = async { host.hydrate_workspace(session.persist_workspace().await?).await };
    let fetched = fetched.await;
    close(host).await;
    fetched.map_err(failed)
}

async fn host_side(run: &RunDir) -> Result<SandboxSession, sandbar::SandboxError> {
    let workspace = Workspace::Host { path: run.workspace(), access: Access::ReadWrite };
    let options = SessionOptions::new(Manifest::new()).machine(MachineSpec::default().workspace(workspace));
    SandboxSession::open(Arc::new(UnixLocal::new()), options).await
}

async fn close(host: SandboxSession) {
    if let Err(error) = host.delete().await {
        tracing::warn!(%error, "the machine between did not end cleanly");
    }
}
