//! The sandbox configuration of a run: its client, its session, and the options of fresh sessions.

use std::{collections::HashMap, fmt, path::PathBuf, sync::Arc};

use parking_lot::Mutex;
use sandbar_agent::{RunBuilder, RunConfig, agent::AgentTool};
use sandbar_clients::UnixLocal;
use sandbar_machine::{MachineSpec, SandboxClient};
use sandbar_sandbox::{
    Manifest, Owner, SandboxError, SandboxSession, SecretStore, SessionOptions, SessionState, WorkspacePath,
};

use crate::environment::SandboxEnvironment;

/// A saved workspace, with which a fresh session begins.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Snapshot {
    /// A tar archive on the host, as [`SandboxSession::persist_workspace`] writes it.
    Archive(PathBuf),
}

/// Sandbox configuration of a run. It is cheap to clone, and many runs can share it.
///
/// A run owns the sessions that it creates: they end with the run, also if the run fails. If a run pauses, this value
/// retains the run's sessions, so that a later run can resume them; all clones of the value share the retained sessions. The
/// caller owns a session that [`session`](Self::session) sets: all agents of the run work in it, and only the caller ends
/// it.
///
/// ```
/// use sandbar::{client::UnixLocal, prelude::*};
///
/// let sandbox = SandboxRunConfig::new(UnixLocal::new())
///     .manifest(Manifest::new().file("work/task.md", "Count the words in this file.\n"))
///     .cwd("work")
///     .machine(MachineSpec::default().network(Network::Off))
///     .options(|options| options.port(8000));
/// let config = RunConfig::new().sandbox(sandbox);
/// ```
#[derive(Clone, Default)]
pub struct SandboxRunConfig {
    pub(crate) client: Option<Arc<dyn SandboxClient>>,
    pub(crate) session: Option<SandboxSession>,
    pub(crate) session_state: Option<SessionState>,
    pub(crate) manifest: Option<Manifest>,
    pub(crate) snapshot: Option<Snapshot>,
    pub(crate) cwd: Option<String>,
    pub(crate) options: SessionOptions,
    pub(crate) retained: RetainedSessions,
}

impl SandboxRunConfig {
    /// A configuration whose runs create machines with this client.
    pub fn new(client: impl SandboxClient + 'static) -> Self {
        Self::default().client(Arc::new(client))
    }

    /// A configuration whose runs work in this live session, which the caller owns.
    #[must_use]
    pub fn live(session: SandboxSession) -> Self {
        Self::default().session(session)
    }

    /// Sets the client that creates machines.
    #[must_use]
    pub fn client(mut self, client: Arc<dyn SandboxClient>) -> Self {
        self.client = Some(client);
        self
    }

    /// Sets a live session to work in. It takes precedence over all other sources.
    #[must_use]
    pub fn session(mut self, session: SandboxSession) -> Self {
        self.session = Some(session);
        self
    }

    /// Sets the saved state of a session to attach to, unless the saved run names a session itself.
    #[must_use]
    pub fn session_state(mut self, state: SessionState) -> Self {
        self.session_state = Some(state);
        self
    }

    /// Sets the manifest of a fresh workspace, instead of the manifest of the agent.
    #[must_use]
    pub fn manifest(mut self, manifest: Manifest) -> Self {
        self.manifest = Some(manifest);
        self
    }

    /// Sets the snapshot that a fresh workspace begins with. The entries of the manifest are created first; files of the
    /// snapshot replace them.
    #[must_use]
    pub fn snapshot(mut self, snapshot: Snapshot) -> Self {
        self.snapshot = Some(snapshot);
        self
    }

    /// Sets the directory of the workspace where the agents' relative paths begin. It must exist when an agent begins to
    /// work.
    #[must_use]
    pub fn cwd(mut self, path: impl Into<String>) -> Self {
        self.cwd = Some(path.into());
        self
    }

    /// Sets the specification of fresh machines: network, isolation, limits, mounts.
    #[must_use]
    pub fn machine(self, spec: MachineSpec) -> Self {
        self.options(|options| options.machine(spec))
    }

    /// Sets the secrets that manifests name. Their values are hidden in the outputs of tools. A saved run refers to secrets
    /// by name: set them again when it is resumed.
    #[must_use]
    pub fn secrets(self, secrets: SecretStore) -> Self {
        self.options(|options| options.secrets(secrets))
    }

    /// Changes the options of fresh sessions: limits, ports, audit sinks, and everything else that a session can have. A
    /// manifest in them that is not empty is set as by [`manifest`](Self::manifest).
    #[must_use]
    pub fn options(mut self, change: impl FnOnce(SessionOptions) -> SessionOptions) -> Self {
        let mut options = change(std::mem::take(&mut self.options));
        let manifest = std::mem::take(&mut options.manifest);
        if manifest != Manifest::new() {
            self.manifest = Some(manifest);
        }
        self.options = options;
        self
    }

    /// Ends every session that this configuration retains for a paused run. Those runs cannot be resumed afterwards.
    ///
    /// # Errors
    /// The first error; the other sessions are ended all the same.
    pub async fn release(&self) -> Result<(), SandboxError> {
        let mut result = Ok(());
        for session in self.retained.take_all() {
            result = result.and(session.delete().await);
        }
        result
    }

    /// The environment that this value configures, for a caller that builds a [`RunConfig`] itself.
    #[must_use]
    pub fn environment(&self) -> Arc<dyn sandbar_agent::RunEnvironment> {
        Arc::new(SandboxEnvironment::new(self.clone()))
    }

    /// Options of a fresh session with this manifest.
    pub(crate) fn session_options(&self, manifest: Manifest) -> SessionOptions {
        let mut options = self.options.clone();
        options.manifest = manifest;
        options.owner(Owner::Runner)
    }

    /// Directory where relative paths begin, if it is not the root of the workspace.
    pub(crate) fn directory(&self) -> Result<Option<WorkspacePath>, SandboxError> {
        self.cwd.as_ref().map(WorkspacePath::new).transpose()
    }
}

impl From<UnixLocal> for SandboxRunConfig {
    fn from(client: UnixLocal) -> Self {
        Self::new(client)
    }
}

#[cfg(all(feature = "docker", target_os = "linux"))]
impl From<sandbar_clients::Docker> for SandboxRunConfig {
    fn from(client: sandbar_clients::Docker) -> Self {
        Self::new(client)
    }
}

#[cfg(all(feature = "e2b", target_os = "linux"))]
impl From<sandbar_clients::E2b> for SandboxRunConfig {
    fn from(client: sandbar_clients::E2b) -> Self {
        Self::new(client)
    }
}

impl From<Arc<dyn SandboxClient>> for SandboxRunConfig {
    fn from(client: Arc<dyn SandboxClient>) -> Self {
        Self::default().client(client)
    }
}

impl From<SandboxSession> for SandboxRunConfig {
    fn from(session: SandboxSession) -> Self {
        Self::live(session)
    }
}

impl From<&SandboxSession> for SandboxRunConfig {
    fn from(session: &SandboxSession) -> Self {
        Self::live(session.clone())
    }
}

impl From<&Self> for SandboxRunConfig {
    fn from(config: &Self) -> Self {
        config.clone()
    }
}

impl fmt::Debug for SandboxRunConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SandboxRunConfig")
            .field("client", &self.client)
            .field("session", &self.session)
            .field("cwd", &self.cwd)
            .finish_non_exhaustive()
    }
}

/// The live sessions of paused runs, by their ids.
#[derive(Clone, Debug, Default)]
pub(crate) struct RetainedSessions(Arc<Mutex<HashMap<String, SandboxSession>>>);

impl RetainedSessions {
    fn with<T>(&self, change: impl FnOnce(&mut HashMap<String, SandboxSession>) -> T) -> T {
        change(&mut self.0.lock())
    }

    pub(crate) fn put(&self, session: SandboxSession) {
        self.with(|sessions| sessions.insert(session.id().to_owned(), session));
    }

    pub(crate) fn take(&self, id: &str) -> Option<SandboxSession> {
        self.with(|sessions| sessions.remove(id))
    }

    fn take_all(&self) -> Vec<SandboxSession> {
        self.with(|sessions| sessions.drain().map(|(_, session)| session).collect())
    }
}

/// Sets the sandbox of a run, of the configuration of a run, or of an agent that is a tool.
pub trait SandboxRun {
    /// Sets where agents work: a client that creates machines, a live session, or a whole [`SandboxRunConfig`].
    #[must_use]
    fn sandbox(self, sandbox: impl Into<SandboxRunConfig>) -> Self;
}

impl SandboxRun for RunBuilder {
    fn sandbox(self, sandbox: impl Into<SandboxRunConfig>) -> Self {
        self.environment(sandbox.into().environment())
    }
}

impl SandboxRun for RunConfig {
    fn sandbox(self, sandbox: impl Into<SandboxRunConfig>) -> Self {
        self.environment(sandbox.into().environment())
    }
}

impl SandboxRun for AgentTool {
    fn sandbox(self, sandbox: impl Into<SandboxRunConfig>) -> Self {
        self.environment(sandbox.into().environment())
    }
}
