//! A sandbox as a machine, with its ports and snapshots.

use std::{
    collections::HashMap,
    io,
    sync::{Arc, Weak},
    time::Duration,
};

use async_trait::async_trait;
use parking_lot::Mutex;
use sandbar_http::{Method, Url, is_loopback};
use sandbar_machine::{
    ByteStream, Command, DirEntry, Endpoint, Enforcement, EntryKind, Features, Isolation, Machine, MachineError,
    MachineHandle, MachinePath, Ports, Process, Result, SnapshotId, Snapshots, Target, posix,
};
use serde::Deserialize;
use serde_json::json;
use tokio::{runtime::Handle, task::AbortHandle};

use super::{HandleState, LONGEST_REPLY, envd::Sandbox, random, refused};

/// What happens to a sandbox when its machine is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnDrop {
    Delete,
    Leave,
}

/// Sandboxes by id, as long as their machines live.
#[derive(Clone, Debug, Default)]
pub(super) struct HeldSandboxes(Arc<Mutex<HashMap<String, Weak<Sandbox>>>>);

impl HeldSandboxes {
    pub(super) fn add(&self, sandbox: &Arc<Sandbox>) {
        let mut held = self.0.lock();
        held.retain(|_, sandbox| sandbox.strong_count() > 0);
        held.insert(sandbox.id.clone(), Arc::downgrade(sandbox));
    }

    pub(super) fn contains(&self, id: &str) -> bool {
        let held = self.0.lock();
        held.get(id).and_then(Weak::upgrade).is_some_and(|sandbox| !sandbox.is_gone())
    }
}

/// Marks a sandbox as gone when its renewal task is dropped, for instance with its runtime: the sandbox will end by its
/// timeout.
struct Renewed(Arc<Sandbox>);

impl Drop for Renewed {
    fn drop(&mut self) {
        self.0.lose();
    }
}

/// Renews the timeout of a sandbox. Dropping the guard deletes the sandbox if [`OnDrop::Delete`] is set.
#[derive(Debug)]
pub(super) struct SandboxGuard {
    pub(super) sandbox: Arc<Sandbox>,
    pub(super) on_drop: OnDrop,
    renewal: Option<AbortHandle>,
}

impl SandboxGuard {
    pub(super) fn new(sandbox: Sandbox, on_drop: OnDrop) -> Self {
        Self { sandbox: Arc::new(sandbox), on_drop, renewal: None }
    }

    /// Renews the timeout periodically until this guard is dropped.
    pub(super) fn renew(&mut self, seconds: u64) {
        let sandbox = self.sandbox.clone();
        let renewed = (self.on_drop == OnDrop::Delete).then(|| Renewed(sandbox.clone()));
        let renewal = tokio::spawn(async move {
            let _lost_with_this_task = renewed;
            loop {
                tokio::time::sleep(Duration::from_secs(seconds) / 4).await;
                if let Err(error) = sandbox.renew(seconds).await {
                    tracing::debug!(sandbox = sandbox.id, %error, "the timeout was not renewed");
                }
            }
        });
        self.renewal = Some(renewal.abort_handle());
    }
}

impl Drop for SandboxGuard {
    fn drop(&mut self) {
        if let Some(renewal) = &self.renewal {
            renewal.abort();
        }
        if self.on_drop == OnDrop::Leave || self.sandbox.is_deleted() {
            return;
        }
        self.sandbox.lose();
        // Without a runtime, the sandbox ends by its timeout.
        if let Ok(runtime) = Handle::try_current() {
            let sandbox = self.sandbox.clone();
            runtime.spawn(async move {
                let _ends_by_its_timeout = sandbox.delete().await;
            });
        }
    }
}

#[derive(Debug)]
pub(super) struct E2bMachine {
    guard: SandboxGuard,
    state: HandleState,
    features: Features,
}

impl E2bMachine {
    pub(super) fn new(guard: SandboxGuard, state: HandleState, workspace: MachinePath) -> Self {
        let mut features = Features::new(Isolation::Vm, workspace);
        features.layers = vec!["virtual machine".to_owned()];
        (features.pty, features.stdin, features.limits.time) = (true, true, Enforcement::Soft);
        Self { guard, state, features }
    }

    /// Refuses other users: a kill as the template's user could not reach their processes.
    fn refuse_user(user: Option<&String>) -> Result<()> {
        user.map_or(Ok(()), |_other| Err(MachineError::Unsupported("run as another user")))
    }

    /// Refuses a working directory that does not exist, or is not a directory.
    async fn check_cwd(&self, cwd: &MachinePath) -> Result<()> {
        match posix::stat(self, &Target::from(cwd)).await? {
            None => Err(MachineError::NotFound(cwd.clone())),
            Some(DirEntry { kind: EntryKind::File | EntryKind::Other, .. }) => {
                Err(MachineError::from_io("enter", cwd, io::ErrorKind::NotADirectory.into()))
            }
            Some(_) => Ok(()),
        }
    }
}

#[async_trait]
impl Machine for E2bMachine {
    fn handle(&self) -> MachineHandle {
        self.state.handle()
    }

    fn features(&self) -> &Features {
        &self.features
    }

    async fn spawn(&self, command: Command) -> Result<Process> {
        self.features.refuse_lacking(&command)?;
        let cwd = command.cwd.clone().unwrap_or_else(|| self.features.workspace.clone());
        let deadline = command.deadline.or(self.state.time);
        let command = Command { cwd: Some(cwd.clone()), deadline, ..command };
        if cwd.as_os_str().to_str().is_none() {
            self.check_cwd(&cwd).await?;
        }
        match self.guard.sandbox.start(&command).await? {
            Ok(process) => Ok(process),
            Err(message) => {
                if cwd != MachinePath::root() {
                    self.check_cwd(&cwd).await?;
                }
                Err(MachineError::transport("start a command", message))
            }
        }
    }

    async fn read(&self, target: &Target) -> Result<ByteStream> {
        posix::read(self, target).await
    }

    async fn write(&self, target: &Target, data: ByteStream) -> Result<()> {
        Self::refuse_user(target.user.as_ref())?;
        let spool = MachinePath::new(format!("/tmp/.sandbar-{}", random("write a file")?))?;
        match self.guard.sandbox.upload(&spool, data).await {
            Ok(()) => posix::place(self, target, &spool).await,
            Err(error) => {
                let _lesser = posix::remove(self, &Target::from(&spool)).await;
                Err(error)
            }
        }
    }

    async fn stop(&self) -> Result<()> {
        self.guard.sandbox.delete().await
    }

    fn ports(&self) -> Option<&dyn Ports> {
        Some(self)
    }

    fn snapshots(&self) -> Option<&dyn Snapshots> {
        Some(self)
    }
}

#[async_trait]
impl Ports for E2bMachine {
    async fn open(&self, port: u16) -> Result<Endpoint> {
        if !self.state.ports.contains(&port) {
            let reason = "was not declared; declare it when the machine is made";
            return Err(MachineError::invalid(format!("port {port}"), reason));
        }
        let Sandbox { id, domain, traffic_token, .. } = &*self.guard.sandbox;
        let address = format!("://{port}-{id}.{domain}");
        // A service on this host has no certificate.
        let is_local = Url::parse(&format!("http{address}")).is_ok_and(|url| is_loopback(&url));
        let endpoint = Endpoint::new(&format!("{}{address}", if is_local { "http" } else { "https" }))?;
        Ok(match traffic_token {
            Some(token) => endpoint.header("e2b-traffic-access-token", token),
            None => endpoint,
        })
    }
}

#[async_trait]
impl Snapshots for E2bMachine {
    async fn take(&self) -> Result<SnapshotId> {
        #[derive(Deserialize)]
        struct SnapshotReply {
            #[serde(rename = "snapshotID")]
            id: String,
        }
        let sandbox = &self.guard.sandbox;
        let request = sandbox.client.request(Method::POST, &format!("/sandboxes/{}/snapshots", sandbox.id))?;
        let reply =
            async { sandbox.client.send(request.json(&json!({}))).await?.json::<SnapshotReply>(LONGEST_REPLY).await };
        let reply = reply.await.map_err(|error| refused("take a snapshot", error))?;
        Ok(SnapshotId(reply.id))
    }
}
