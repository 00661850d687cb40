//! The options and limits of a session. Every limit has a finite default.

use std::{fmt, num::NonZeroUsize, sync::Arc, time::Duration};

use sandbar_http::Proxies;
use sandbar_machine::{Lifetime, MachineSpec, SandboxClient};

use crate::{
    ArchiveLimits, Manifest, Progress, SecretStore,
    audit::{AuditOptions, SharedSink, Sink},
    patch::PatchJournal,
    processes::TableOptions,
};

/// Who ends a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Owner {
    /// The caller that created it.
    #[default]
    Caller,
    /// The run that it was created for.
    Runner,
}

/// Limits of time and size. Each can be set per session here, the important ones also per call.
#[derive(Clone, Debug)]
pub struct SessionLimits {
    /// Timeout of a command that sets none.
    pub exec_timeout: Duration,
    /// Number of bytes that are kept of each output stream of a command, half from the beginning and half from the end.
    pub exec_output: usize,
    /// Timeout of a small request, such as inspecting a path or listing a directory.
    pub operation: Duration,
    /// Timeout of a transfer: reading, writing, removing, unpacking, filling the workspace.
    pub transfer: Duration,
    /// Maximum size of a file that is read as a whole, in bytes.
    pub read_bytes: usize,
    /// Limits of an archive that is unpacked.
    pub archive: ArchiveLimits,
    /// Limits of a workspace that is restored; none by default, because any workspace can be saved.
    pub hydrate: ArchiveLimits,
    /// Number of manifest entries that are transferred concurrently.
    pub manifest_entries: NonZeroUsize,
    /// Number of files of one local directory that are read concurrently.
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

/// The options of a session, except its client. A clone shares only the audit sinks.
#[derive(Clone)]
pub struct SessionOptions {
    /// Initial content of the workspace.
    pub manifest: Manifest,
    /// Name of the session, for people.
    pub name: Option<String>,
    /// Specification of the machine; the manifest's mounts and environment are added to it.
    pub machine: MachineSpec,
    /// Values of the secrets that the manifest names.
    pub secrets: SecretStore,
    /// Client on whose machines repositories are fetched; `None` is the session's own client.
    pub fetch: Option<Arc<dyn SandboxClient>>,
    /// Proxies for the manifest's downloads; none by default, because a proxy resolves names itself, and then only
    /// numeric addresses can be refused. Repositories are fetched directly.
    pub proxies: Proxies,
    /// Limits of time and size.
    pub limits: SessionLimits,
    /// Numbering and limits of the process table.
    pub processes: TableOptions,
    /// Sinks that get an event for every operation.
    pub(crate) audit: Vec<SharedSink>,
    /// Queue and content of audit events.
    pub audit_options: AuditOptions,
    /// Function that gets the progress of filling the workspace.
    pub progress: Option<Progress>,
    /// Who ends the session.
    pub owner: Owner,
    /// Journal of patches to a workspace of the host: the next patch rolls back one that was interrupted.
    pub patch_journal: Option<PatchJournal>,
}

impl SessionOptions {
    /// A session with this manifest and default options.
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

    /// Sets the specification of the machine.
    #[must_use]
    pub fn machine(mut self, spec: MachineSpec) -> Self {
        self.machine = spec;
        self
    }

    /// Sets the secrets that the manifest names.
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

    /// Sets the lifetime of the machine.
    #[must_use]
    pub fn lifetime(mut self, lifetime: Lifetime) -> Self {
        self.machine.lifetime = lifetime;
        self
    }

    /// Sets who ends the session.
    #[must_use]
    pub fn owner(mut self, owner: Owner) -> Self {
        self.owner = owner;
        self
    }

    /// Sets numbering and limits of the process table.
    #[must_use]
    pub fn processes(mut self, options: TableOptions) -> Self {
        self.processes = options;
        self
    }

    /// Sets queue and content of audit events.
    #[must_use]
    pub fn audit_options(mut self, options: AuditOptions) -> Self {
        self.audit_options = options;
        self
    }

    /// Adds a sink that gets an event for every operation.
    #[must_use]
    pub fn audit(mut self, sink: impl Sink + 'static) -> Self {
        self.audit.push(SharedSink::new(sink));
        self
    }

    /// Sets the journal of patches to a workspace of the host.
    #[must_use]
    pub fn patch_journal(mut self, journal: PatchJournal) -> Self {
        self.patch_journal = Some(journal);
        self
    }

    /// Sets the function that gets the progress of filling the workspace.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::{Callback, Event};

    #[test]
    fn clones_share_their_sinks() {
        let (sender, events) = std::sync::mpsc::channel();
        let options = SessionOptions::default().audit(Callback::new(move |event: &Event| {
            sender.send(event.session_id.clone()).unwrap();
        }));
        let mut copy = options.clone();
        assert_eq!((options.audit.len(), copy.audit.len()), (1, 1));
        assert!(copy.audit[0].flush().is_ok() && events.try_recv().is_err());
        drop(options);
        assert!(matches!(events.try_recv(), Err(std::sync::mpsc::TryRecvError::Empty)), "the copy keeps the sink");
    }
}
