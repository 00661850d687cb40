//! Creates a session for a manifest, or attaches to one by its saved state.

use std::{sync::Arc, time::Duration};

use sandbar_machine::{Machine, MachineError, MachineHandle, MachinePath, SandboxClient};
use serde_json::json;
use tokio::sync::{Mutex, watch};

use super::{
    Phase, SandboxSession, SessionOptions, SessionState, Shared,
    prepare::{Prepared, paths, prepare},
    within,
};
use crate::{
    Manifest, Op, Paths, Result, SandboxError, SecretStore,
    audit::{Audit, AuditOptions, Sink},
    image::ImageViewer,
    processes::ProcessTable,
};

/// Timeout for creating a machine: an engine may have to pull an image first.
const CREATE: Duration = Duration::from_secs(300);

impl SandboxSession {
    /// Creates a machine for a workspace; [`start`](Self::start) fills it. Everything that can be checked without a
    /// machine is checked first.
    ///
    /// # Errors
    /// The faults of the manifest, or `workspace_start_error`; no machine remains then.
    pub async fn create(client: Arc<dyn SandboxClient>, options: SessionOptions) -> Result<Self> {
        Self::create_recorded(client, options, &|_state| Ok(())).await
    }

    /// Like [`create`](Self::create), and calls `record` with the session's state before its machine can outlive this
    /// process: a killed process leaves no detached machine without a record. A record without a machine may remain,
    /// also if this fails.
    ///
    /// # Errors
    /// As [`create`](Self::create), and the error of `record`; no machine remains then.
    pub async fn create_recorded(
        client: Arc<dyn SandboxClient>,
        mut options: SessionOptions,
        record: &(dyn Fn(&SessionState) -> Result<()> + Send + Sync),
    ) -> Result<Self> {
        let Prepared { spec, paths } = prepare(&options)?;
        let id = uuid::Uuid::now_v7().to_string();
        let audit = audit_of(&id, &mut options);
        let span = audit.begin(Op::Create, json!({"client": client.id(), "name": options.name}));
        let ports = spec.ports.clone();
        let account = spec.accounts.more_than_one().unwrap_or("agent").to_owned();
        let failed = |cause: MachineError| {
            if let MachineError::Users { .. } = cause {
                return SandboxError::account_unavailable(account, cause.to_string()).because(cause);
            }
            SandboxError::workspace_start_error(options.manifest.root.to_string(), cause.code()).because(cause)
        };
        let identity = SessionIdentity { id, name: options.name.take(), created_at: jiff::Timestamp::now(), ports };
        let refusal = parking_lot::Mutex::new(None);
        let keep = |handle: &MachineHandle| {
            record(&identity.state(handle.clone(), &options.manifest)).map_err(|error| {
                *refusal.lock() = Some(error);
                MachineError::invalid("record of the session", "cannot be written")
            })
        };
        let created = within(CREATE, Op::Create, client.id(), client.create_recorded(spec, &keep)).await;
        // If `record` failed, its own error is returned.
        let refused = |cause| refusal.lock().take().unwrap_or_else(|| failed(cause));
        let created = created.and_then(|created| created.map_err(refused));
        span.finish(&created, json!({}));
        let manifest = std::mem::take(&mut options.manifest);
        Ok(SessionParts { client, machine: created?, audit, paths, phase: Phase::Created }
            .session(identity, manifest, options))
    }

    /// Creates a machine and fills its workspace.
    ///
    /// # Errors
    /// As [`create`](Self::create) and [`start`](Self::start).
    pub async fn open(client: Arc<dyn SandboxClient>, options: SessionOptions) -> Result<Self> {
        let session = Self::create(client, options).await?;
        session.start().await?;
        Ok(session)
    }

    /// Attaches to a session that this or another process created. `None` if its machine is gone.
    ///
    /// The options contain what saved state never holds: secrets, limits, sinks, and in their manifest (if it is the
    /// one that the session was created with) host paths and values that are not saved. Without that manifest, entries
    /// that need them cannot be created again. The specification of the machine is ignored. Commands that still run on
    /// a detached machine keep their numbers; the next update of each contains what it printed meanwhile.
    ///
    /// # Errors
    /// `sandbox_config_invalid` if the state belongs to another client or has an unknown version.
    pub async fn attach(
        client: Arc<dyn SandboxClient>,
        state: SessionState,
        mut options: SessionOptions,
    ) -> Result<Option<Self>> {
        if state.version != 1 {
            let reason = format!("has format version {}; only version 1 is supported", state.version);
            return Err(SandboxError::sandbox_config_invalid("the saved session", reason));
        }
        if state.machine.client != client.id() {
            let reason = format!("was made by the client {:?}, not by {:?}", state.machine.client, client.id());
            return Err(SandboxError::sandbox_config_invalid("the saved session", reason));
        }
        let trusted = std::mem::take(&mut options.manifest);
        let manifest = state.manifest.restore(Some(&trusted));
        let paths = paths(&manifest)?;
        let audit = audit_of(&state.session_id, &mut options);
        let span = audit.begin(Op::Attach, json!({"client": client.id()}));
        let limit = options.limits.operation;
        let found = within(limit, Op::Attach, &state.session_id, client.attach(&state.machine)).await;
        let failed = |cause| SandboxError::machine(Op::Attach, &state.session_id, cause);
        let found = found.and_then(|found| found.map_err(failed));
        span.finish(&found, json!({}));
        let Some(machine) = found? else { return Ok(None) };
        let phase = if state.workspace_root_ready { Phase::Started } else { Phase::Created };
        let (id, ports) = (state.session_id, state.exposed_ports);
        let identity = SessionIdentity { id, name: state.name, created_at: state.created_at, ports };
        let session = SessionParts { client, machine, audit, paths, phase }.session(identity, manifest, options);
        session.shared.table.expect(&state.processes).await;
        Ok(Some(session))
    }

    /// The saved form of the session.
    #[must_use]
    pub fn state(&self) -> SessionState {
        let manifest = self.manifest();
        let root = self.paths().root();
        SessionState {
            workspace_root: (manifest.root != *root).then(|| root.clone()),
            workspace_root_ready: self.shared.phase() == Phase::Started,
            unfinished: self.shared.phase() == Phase::Created,
            processes: self.shared.table.saved(),
            ..self.shared.identity.state(self.shared.machine.handle(), &manifest)
        }
    }
}

/// The id, name, creation time and ports of a session.
pub(super) struct SessionIdentity {
    pub(super) id: String,
    pub(super) name: Option<String>,
    pub(super) created_at: jiff::Timestamp,
    pub(super) ports: Vec<u16>,
}

impl SessionIdentity {
    /// The saved form of a session that is being created.
    fn state(&self, machine: MachineHandle, manifest: &Manifest) -> SessionState {
        SessionState {
            version: 1,
            session_id: self.id.clone(),
            name: self.name.clone(),
            created_at: self.created_at,
            machine,
            manifest: manifest.for_saving(),
            workspace_root: None,
            exposed_ports: self.ports.clone(),
            workspace_root_ready: false,
            unfinished: true,
            processes: Vec::new(),
        }
    }
}

/// The parts of a session whose machine was created or attached to.
struct SessionParts {
    client: Arc<dyn SandboxClient>,
    machine: Arc<dyn Machine>,
    audit: Audit,
    paths: Paths,
    phase: Phase,
}

impl SessionParts {
    fn session(self, identity: SessionIdentity, manifest: Manifest, options: SessionOptions) -> SandboxSession {
        for name in options.secrets.too_short() {
            tracing::warn!(name, "a secret of fewer than 8 bytes is not hidden in tool results");
        }
        let shared = Shared {
            identity,
            fetch: options.fetch.unwrap_or_else(|| self.client.clone()),
            proxies: options.proxies,
            client: self.client,
            table: ProcessTable::new(self.machine.clone(), options.processes).hiding(options.secrets.mask()),
            paths: resolve_workspace(self.paths, &*self.machine),
            machine: self.machine,
            limits: options.limits,
            secrets: options.secrets,
            audit: self.audit,
            images: ImageViewer::new(),
            progress: options.progress,
            owner: options.owner,
            manifest: parking_lot::RwLock::new(Arc::new(manifest)),
            phase: parking_lot::Mutex::new(self.phase),
            hooks: parking_lot::Mutex::new(Vec::new()),
            transition: Mutex::new(()),
            patching: Arc::default(),
            patch_journal: options.patch_journal,
            closing: watch::Sender::new(false),
        };
        SandboxSession { shared: Arc::new(shared), user: None }
    }
}

/// On a machine without its own file tree the workspace is elsewhere; `/workspace` then means that directory.
fn resolve_workspace(paths: Paths, machine: &dyn Machine) -> Paths {
    if *paths.root() == MachinePath::workspace() { paths.moved_to(machine.features().workspace.clone()) } else { paths }
}

/// The audit of the session. It always hides the session's secrets, whatever the options are.
fn audit_of(id: &str, options: &mut SessionOptions) -> Audit {
    let sinks = options.audit.drain(..).map(|sink| Box::new(sink) as Box<dyn Sink>).collect();
    let given = std::mem::take(&mut options.audit_options);
    let secrets: SecretStore = given.secrets.merged(&options.secrets);
    Audit::new(id, sinks, AuditOptions { secrets, ..given })
}
