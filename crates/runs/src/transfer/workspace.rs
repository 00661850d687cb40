//! Workspace of a run on a machine that cannot show directories of the host: sent before the run, fetched after it.
//!
//! This host's side is a machine too, with the run's own directory as its workspace, so that nothing a remote machine sends
//! can land outside of it.

use std::sync::Arc;

use sandbar::{
    Access, Exec, MachineSpec, Manifest, SandboxError, SandboxSession, SessionOptions, Workspace, client::UnixLocal,
    machine::takes_an_account,
};

use crate::{Error, Result, RunDir};

impl RunDir {
    /// Sends the workspace of this run to a machine.
    pub async fn send_workspace(&self, session: &SandboxSession) -> Result<()> {
        let failed = |error| Error::from(error).saying("cannot send the workspace to the machine");
        let host = host_side(self).await.map_err(failed)?;
        let sent = async { session.hydrate_workspace(host.persist_workspace().await?).await };
        let sent = sent.await;
        close(host).await;
        sent.map_err(failed)
    }

    /// Brings the machine's workspace to that of this run, and nothing that an agent put there outside of it.
    pub async fn fetch_workspace(&self, session: &SandboxSession) -> Result<()> {
        match self.try_to_fetch(session).await {
            // A second attempt, with another machine on this side, covers a broken connection.
            Err(_broken) => self.try_to_fetch(session).await,
            done => done,
        }
    }

    async fn try_to_fetch(&self, session: &SandboxSession) -> Result<()> {
        let failed = |error| Error::from(error).saying("cannot fetch the workspace from the machine");
        let host = host_side(self).await.map_err(failed)?;
        let fetched = async { host.hydrate_workspace(session.persist_workspace().await?).await };
        let fetched = fetched.await;
        close(host).await;
        fetched.map_err(failed)
    }
}

/// Makes files that users of the machine created in the working copy accessible: on the host, they belong to ids without an
/// account, and the user must be able to read and remove them.
pub async fn open_to_owner(session: &SandboxSession) {
    if rustix::process::geteuid().is_root() {
        return;
    }
    let (manifest, root) = (session.manifest(), session.paths().root().to_string());
    for name in manifest.all_users().into_iter().filter(|name| takes_an_account(name)) {
        // Directories one by one, because `find` can read a directory only after its mode has changed.
        let words = ["find", &root, "-user", name, "-type", "d", "-exec", "chmod", "a+rwx", "{}", ";"];
        let more = ["-o", "-user", name, "-type", "f", "-exec", "chmod", "a+r", "{}", "+"];
        let _where_there_is_such_a_program = session.user(name).exec(Exec::new(words.into_iter().chain(more))).await;
    }
}

async fn host_side(run: &RunDir) -> Result<SandboxSession, SandboxError> {
    let workspace = Workspace::Host { path: run.workspace(), access: Access::ReadWrite };
    let options = SessionOptions::new(Manifest::new()).machine(MachineSpec::default().workspace(workspace));
    SandboxSession::open(Arc::new(UnixLocal::new()), options).await
}

async fn close(host: SandboxSession) {
    if let Err(error) = host.delete().await {
        tracing::warn!(%error, "the machine between did not end cleanly");
    }
}
