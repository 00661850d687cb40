//! Where an agent works in a run: which client, which session, what a fresh one is made of.

use std::{
    collections::HashMap,
    fmt,
    num::NonZeroUsize,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use sandbar_agent::{RunBuilder, RunConfig, agent::AgentTool};
use sandbar_clients::UnixLocal;
use sandbar_machine::{MachineSpec, SandboxClient};
use sandbar_sandbox::{
    ArchiveLimits, Manifest, Progress, SandboxError, SandboxSession, SecretStore, SessionLimits, SessionOptions,
    SessionState, WorkspacePath, audit::Sink, patch::PatchJournal, processes::TableOptions,
};

use crate::environment::SandboxEnvironment;

type MakeSink = Arc<dyn Fn() -> Box<dyn Sink> + Send + Sync>;

/// A saved workspace that a fresh session begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Snapshot {
    /// A tar archive of the host, as [`SandboxSession::persist_workspace`] makes it.
    Archive(PathBuf),
}

/// Where agents work in a run. Cheap to clone, and good for many runs.
///
/// Sessions that a run makes are the run's: they end with it, also when it fails. A run that pauses keeps its sessions alive in this value (all
/// its clones hold the same ones), so that it can be taken up again where it was. A session that is given with
/// [`session`](Self::session) stays the caller's: all agents of the run work in it, and nobody but the caller ends it.
///
/// ```
/// use sandbar::{client::UnixLocal, prelude::*};
///
/// let sandbox = SandboxRunConfig::new(UnixLocal::new())
///     .manifest(Manifest::new().file("work/task.md", "Count the words in this file.\n"))
///     .cwd("work")
///     .machine(MachineSpec::default().network(Network::Off));
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
    pub(crate) machine: MachineSpec,
    pub(crate) secrets: SecretStore,
    pub(crate) limits: SessionLimits,
    pub(crate) processes: TableOptions,
    pub(crate) fetch: Option<Arc<dyn SandboxClient>>,
    pub(crate) progress: Option<Progress>,
    pub(crate) audit: Vec<MakeSink>,
    pub(crate) patch_journal: Option<PatchJournal>,
    pub(crate) kept: Kept,
}

impl SandboxRunConfig {
    /// Fresh machines of this client.
    pub fn new(client: impl SandboxClient + 'static) -> Self {
        Self::default().client(Arc::new(client))
    }

    /// This live session, which stays the caller's.
    #[must_use]
    pub fn live(session: SandboxSession) -> Self {
        Self::default().session(session)
    }

    /// Who makes machines.
    #[must_use]
    pub fn client(mut self, client: Arc<dyn SandboxClient>) -> Self {
        self.client = Some(client);
        self
    }

    /// A live session to work in, before everything else.
    #[must_use]
    pub fn session(mut self, session: SandboxSession) -> Self {
        self.session = Some(session);
        self
    }

    /// The saved state of a session to find again, unless the run itself comes back to one.
    #[must_use]
    pub fn session_state(mut self, state: SessionState) -> Self {
        self.session_state = Some(state);
        self
    }

    /// How a fresh workspace begins, in place of what the agent declares.
    #[must_use]
    pub fn manifest(mut self, manifest: Manifest) -> Self {
        self.manifest = Some(manifest);
        self
    }

    /// What a fresh workspace begins with; the manifest's entries are made first, and what is in the snapshot replaces them.
    #[must_use]
    pub fn snapshot(mut self, snapshot: Snapshot) -> Self {
        self.snapshot = Some(snapshot);
        self
    }

    /// The directory of the workspace where the agents' relative paths begin. It must exist when an agent begins to work.
    #[must_use]
    pub fn cwd(mut self, path: impl Into<String>) -> Self {
        self.cwd = Some(path.into());
        self
    }

    /// What fresh machines should be: network, isolation, limits, mounts.
    #[must_use]
    pub fn machine(mut self, spec: MachineSpec) -> Self {
        self.machine = spec;
        self
    }

    /// One more port of fresh machines that can be reached from outside.
    #[must_use]
    pub fn port(mut self, port: u16) -> Self {
        self.machine.ports.push(port);
        self
    }

    /// The secrets that manifests name. Their values are hidden in what tools answer, and a saved run refers to them by
    /// name: give them again when it is taken up.
    #[must_use]
    pub fn secrets(mut self, secrets: SecretStore) -> Self {
        self.secrets = secrets;
        self
    }

    /// How long things may take and how large they may get in fresh sessions.
    #[must_use]
    pub fn limits(mut self, limits: SessionLimits) -> Self {
        self.limits = limits;
        self
    }

    /// How many entries of a manifest, and how many files of one local directory, are on their way in at once.
    #[must_use]
    pub fn concurrency(mut self, manifest_entries: NonZeroUsize, local_dir_files: NonZeroUsize) -> Self {
        self.limits.manifest_entries = manifest_entries;
        self.limits.local_dir_files = local_dir_files;
        self
    }

    /// How large archives may be that are unpacked in fresh sessions.
    #[must_use]
    pub fn archive_limits(mut self, limits: ArchiveLimits) -> Self {
        self.limits.archive = limits;
        self
    }

    /// How commands are numbered, waited for and bounded in fresh sessions.
    #[must_use]
    pub fn processes(mut self, options: TableOptions) -> Self {
        self.processes = options;
        self
    }

    /// Fetches repositories on machines of this client.
    #[must_use]
    pub fn fetch(mut self, client: Arc<dyn SandboxClient>) -> Self {
        self.fetch = Some(client);
        self
    }

    /// Tells this function how far a workspace is that is being filled.
    #[must_use]
    pub fn progress(mut self, progress: Progress) -> Self {
        self.progress = Some(progress);
        self
    }

    /// Tells a sink about every operation of each fresh session; made once per session.
    #[must_use]
    pub fn audit<S: Sink + 'static>(mut self, make: impl Fn() -> S + Send + Sync + 'static) -> Self {
        self.audit.push(Arc::new(move || Box::new(make())));
        self
    }

    /// Records patches to a workspace of the host while they are applied, so that one that is interrupted is taken back by the
    /// next: [`SessionOptions::patch_journal`].
    #[must_use]
    pub fn patch_journal(mut self, journal: PatchJournal) -> Self {
        self.patch_journal = Some(journal);
        self
    }

    /// Ends every session that runs have left here when they paused. They cannot be taken up again then.
    ///
    /// # Errors
    /// The first thing that went wrong; all are tried.
    pub async fn release(&self) -> Result<(), SandboxError> {
        let mut first = Ok(());
        for session in self.kept.take_all() {
            first = first.and(session.delete().await);
        }
        first
    }

    /// The environment it describes, for whoever puts a [`RunConfig`] together by hand.
    #[must_use]
    pub fn environment(&self) -> Arc<dyn sandbar_agent::Environment> {
        Arc::new(SandboxEnvironment::new(self.clone()))
    }

    /// What a fresh session is made of.
    pub(crate) fn options(&self, manifest: Manifest) -> SessionOptions {
        let mut options = SessionOptions::new(manifest)
            .machine(self.machine.clone())
            .secrets(self.secrets.clone())
            .limits(self.limits.clone())
            .processes(self.processes.clone())
            .owner(sandbar_sandbox::Owner::Runner);
        options.fetch.clone_from(&self.fetch);
        options.progress.clone_from(&self.progress);
        options.patch_journal.clone_from(&self.patch_journal);
        options.audit = self.audit.iter().map(|make| make()).collect();
        options
    }

    /// Where relative paths begin.
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

/// The live sessions of runs that paused, by their ids.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kept(Arc<Mutex<HashMap<String, SandboxSession>>>);

impl Kept {
    fn with<T>(&self, change: impl FnOnce(&mut HashMap<String, SandboxSession>) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn put(&self, session: SandboxSession) {
        self.with(|kept| kept.insert(session.id().to_owned(), session));
    }

    pub(crate) fn take(&self, id: &str) -> Option<SandboxSession> {
        self.with(|kept| kept.remove(id))
    }

    fn take_all(&self) -> Vec<SandboxSession> {
        self.with(|kept| kept.drain().map(|(_, session)| session).collect())
    }
}

/// Runs, configurations of runs, and agents as tools, each with a sandbox.
pub trait SandboxRun {
    /// Says where agents work: a client that makes machines, a live session, or a whole [`SandboxRunConfig`].
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
