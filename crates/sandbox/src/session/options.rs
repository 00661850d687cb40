//! What a session is made of, and what it may use up; every limit has a default and none is "forever".

use std::{fmt, num::NonZeroUsize, sync::Arc, time::Duration};

use sandbar_http::Proxies;
use sandbar_machine::{Lifetime, MachineSpec, SandboxClient};

use crate::{
    ArchiveLimits, Manifest, Progress, SecretStore,
    audit::{AuditOptions, Sink},
    patch::PatchJournal,
    processes::TableOptions,
};

/// Who ends a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Owner {
    /// Whoever made it, by hand.
    #[default]
    Caller,
    /// The run it was made for.
    Runner,
}

/// How long things may take and how large they may get. Each can be set for a session here, and the important ones per
/// call.
#[derive(Clone, Debug)]
pub struct SessionLimits {
    /// A command without a timeout of its own.
    pub exec_timeout: Duration,
    /// Bytes kept of each of a command's two streams, half from the beginning and half from the end.
    pub exec_output: usize,
    /// Any small request: looking at a path, listing a directory, removing something.
    pub operation: Duration,
    /// Anything that moves files: reading, writing, unpacking, filling the workspace.
    pub transfer: Duration,
    /// Bytes of a file read as a whole.
    pub read_bytes: usize,
    /// Archives that are unpacked.
    pub archive: ArchiveLimits,
    /// Workspaces that come back: as large as any that could leave.
    pub hydrate: ArchiveLimits,
    /// Manifest entries on their way in at once.
    pub manifest_entries: NonZeroUsize,
    /// Files of one local directory that are read at once.
    pub local_dir_files: NonZeroUsize,
}

impl Default for SessionLimits {
    fn default() -> Self {
        const FOUR: NonZeroUsize = NonZeroUsize::new(4).unwrap();
        Self {
            exec_timeout: Duration::from_secs(600),
            exec_output: 8 << 20,
            operation: Duration::from_secs(60),
            transfer: Duration::from_secs(1800),
            read_bytes: 64 << 20,
            archive: ArchiveLimits::default(),
            hydrate: ArchiveLimits::NONE,
            manifest_entries: FOUR,
            local_dir_files: FOUR,
        }
    }
}

/// Everything a session is made of besides its client.
pub struct SessionOptions {
    /// How the workspace starts.
    pub manifest: Manifest,
    /// A name for people.
    pub name: Option<String>,
    /// The machine below; the manifest's mounts and environment are added to it.
    pub machine: MachineSpec,
    /// What the manifest's secret references stand for.
    pub secrets: SecretStore,
    /// Where repositories are fetched; the session's own client if not given.
    pub fetch: Option<Arc<dyn SandboxClient>>,
    /// The proxies that the manifest's downloads go through; none by default, because a proxy resolves names itself and only
    /// addresses that are numbers can then be refused. Repositories are fetched directly.
    pub proxies: Proxies,
    /// Limits.
    pub limits: SessionLimits,
    /// How processes of the table are numbered and bounded.
    pub processes: TableOptions,
    /// Who hears about every operation.
    pub audit: Vec<Box<dyn Sink>>,
    /// How audit events are queued and what is in them.
    pub audit_options: AuditOptions,
    /// Who hears how far the workspace is.
    pub progress: Option<Progress>,
    /// Who ends it.
    pub owner: Owner,
    /// Where patches to a workspace of the host are recorded while they are applied, so that one that is interrupted is
    /// taken back by the next.
    pub patch_journal: Option<PatchJournal>,
}

impl SessionOptions {
    /// A session with this workspace and every default.
    #[must_use]
    pub fn new(manifest: Manifest) -> Self {
        Self {
            manifest,
            name: None,
            machine: MachineSpec::default(),
            secrets: SecretStore::new(),
            fetch: None,
            proxies: Proxies::none(),
            limits: SessionLimits::default(),
            processes: TableOptions::default(),
            audit: Vec::new(),
            audit_options: AuditOptions::default(),
            progress: None,
            owner: Owner::default(),
            patch_journal: None,
        }
    }

    /// Names the session.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Says what the machine should be.
    #[must_use]
    pub fn machine(mut self, spec: MachineSpec) -> Self {
        self.machine = spec;
        self
    }

    /// Gives the secrets that the manifest names.
    #[must_use]
    pub fn secrets(mut self, secrets: SecretStore) -> Self {
        self.secrets = secrets;
        self
    }

    /// Fetches repositories on machines of this client.
    #[must_use]
    pub fn fetch(mut self, client: Arc<dyn SandboxClient>) -> Self {
        self.fetch = Some(client);
        self
    }

    /// Downloads through these proxies.
    #[must_use]
    pub fn proxies(mut self, proxies: Proxies) -> Self {
        self.proxies = proxies;
        self
    }

    /// Sets the limits.
    #[must_use]
    pub fn limits(mut self, limits: SessionLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Declares a port, to be resolved later.
    #[must_use]
    pub fn port(mut self, port: u16) -> Self {
        self.machine.ports.push(port);
        self
    }

    /// Says how long the machine lives.
    #[must_use]
    pub fn lifetime(mut self, lifetime: Lifetime) -> Self {
        self.machine.lifetime = lifetime;
        self
    }

    /// Says who ends the session.
    #[must_use]
    pub fn owner(mut self, owner: Owner) -> Self {
        self.owner = owner;
        self
    }

    /// Sets how processes of the table are numbered and bounded.
    #[must_use]
    pub fn processes(mut self, options: TableOptions) -> Self {
        self.processes = options;
        self
    }

    /// Sets how audit events are queued and what is in them.
    #[must_use]
    pub fn audit_options(mut self, options: AuditOptions) -> Self {
        self.audit_options = options;
        self
    }

    /// Tells this sink about every operation.
    #[must_use]
    pub fn audit(mut self, sink: impl Sink + 'static) -> Self {
        self.audit.push(Box::new(sink));
        self
    }

    /// Tells this function how far the workspace is.
    #[must_use]
    pub fn progress(mut self, progress: Progress) -> Self {
        self.progress = Some(progress);
        self
    }
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self::new(Manifest::new())
    }
}

impl fmt::Debug for SessionOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionOptions")
            .field("name", &self.name)
            .field("manifest", &self.manifest)
            .field("limits", &self.limits)
            .field("owner", &self.owner)
            .finish_non_exhaustive()
    }
}
