//! How sessions come to be: made for a manifest, or found again by their saved state.

use std::{
    sync::{Arc, PoisonError},
    time::Duration,
};

use sandbar_machine::{Machine, MachineError, MachineHandle, MachinePath, SandboxClient};
use serde_json::json;
use tokio::sync::{Mutex, watch};

use super::{
    Phase, SandboxSession, SessionOptions, SessionState, Shared,
    prepare::{Prepared, paths, prepare},
};
use crate::{
    Manifest, Op, Paths, Result, SandboxError, SecretStore,
    audit::{Audit, AuditOptions, Sink},
    image::ImageViewer,
    processes::ProcessTable,
};

/// Making a machine may take this long: an engine may have to fetch something first.
const CREATE: Duration = Duration::from_secs(300);

impl SandboxSession {
    /// Makes a machine for a workspace; [`start`](Self::start) fills it. Everything that can be judged without a machine is
    /// judged first.
    ///
    /// # Errors
    /// Whatever is wrong with the manifest, or `workspace_start_error`; nothing is left then.
    pub async fn create(client: Arc<dyn SandboxClient>, options: SessionOptions) -> Result<Self> {
        Self::create_recorded(client, options, &|_state| Ok(())).await
    }

    /// The same, and has the session's state recorded before its machine can outlive this process: one that is killed leaves
    /// no detached machine without a record. A record whose machine is gone may be left, also when this fails.
    ///
    /// # Errors
    /// As [`create`](Self::create), and what `record` fails with; no machine is left then.
    pub async fn create_recorded(
        client: Arc<dyn SandboxClient>,
        mut options: SessionOptions,
        record: &(dyn Fn(&SessionState) -> Result<()> + Send + Sync),
    ) -> Result<Self> {
        let Prepared { spec, paths } = prepare(&options)?;
        let id = uuid::Uuid::now_v7().to_string();
        let audit = listeners(&id, &mut options);
        let span = audit.begin(Op::Create, json!({"client": client.id(), "name": options.name}));
        let ports = spec.ports.clone();
        let account = spec.accounts.more_than_one().unwrap_or("agent").to_owned();
        let failed = |cause: MachineError| {
            if let MachineError::Users { .. } = cause {
                return SandboxError::account_unavailable(account, cause.to_string()).because(cause);
            }
            SandboxError::workspace_start_error(options.manifest.root.to_string(), cause.code()).because(cause)
        };
        let known = Known { id, name: options.name.take(), created_at: jiff::Timestamp::now(), ports };
        let refusal = std::sync::Mutex::new(None);
        let keep = |handle: &MachineHandle| {
            record(&known.state(handle.clone(), &options.manifest)).map_err(|error| {
                *refusal.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                MachineError::invalid("record of the session", "cannot be written")
            })
        };
        let created = match tokio::time::timeout(CREATE, client.create_recorded(spec, &keep)).await {
            // What keeps it from being recorded speaks for itself.
            Ok(created) => created.map_err(|cause| {
                let refused = refusal.lock().unwrap_or_else(PoisonError::into_inner).take();
                refused.unwrap_or_else(|| failed(cause))
            }),
            Err(_) => Err(SandboxError::operation_timeout(Op::Create, client.id(), CREATE.as_secs_f64())),
        };
        span.finish(&created, json!({}));
        let manifest = std::mem::take(&mut options.manifest);
        Ok(Found { client, machine: created?, audit, paths, phase: Phase::Created }.session(known, manifest, options))
    }

    /// Makes a machine and fills its workspace.
    ///
    /// # Errors
    /// As [`create`](Self::create) and [`start`](Self::start).
    pub async fn open(client: Arc<dyn SandboxClient>, options: SessionOptions) -> Result<Self> {
        let session = Self::create(client, options).await?;
        session.start().await?;
        Ok(session)
    }

    /// Finds a session again that another process, or this one, has made. `None`: its machine is gone.
    ///
    /// The options give what saved state never holds: secrets, limits, sinks, and by their manifest (if it is the one the
    /// session was made with) host paths and values that are not saved. Without it, entries that need them cannot be made
    /// again. What the machine should be was settled when it was made. Commands that were left running on a detached machine
    /// go on under their old numbers; what they printed meanwhile comes with their next news.
    ///
    /// # Errors
    /// `sandbox_config_invalid` when the state is of another client or of a form that is not known.
    pub async fn attach(
        client: Arc<dyn SandboxClient>,
        state: SessionState,
        mut options: SessionOptions,
    ) -> Result<Option<Self>> {
        if state.version != 1 {
            let reason = format!("is of form {}, and only 1 is known", state.version);
            return Err(SandboxError::sandbox_config_invalid("the saved session", reason));
        }
        if state.machine.client != client.id() {
            let reason = format!("was made by the client {:?}, not by {:?}", state.machine.client, client.id());
            return Err(SandboxError::sandbox_config_invalid("the saved session", reason));
        }
        let trusted = std::mem::take(&mut options.manifest);
        let manifest = state.manifest.restore(Some(&trusted));
        let paths = paths(&manifest)?;
        let audit = listeners(&state.session_id, &mut options);
        let span = audit.begin(Op::Attach, json!({"client": client.id()}));
        let limit = options.limits.operation;
        let found = match tokio::time::timeout(limit, client.attach(&state.machine)).await {
            Ok(found) => found.map_err(|cause| SandboxError::machine(Op::Attach, &state.session_id, cause)),
            Err(_) => Err(SandboxError::operation_timeout(Op::Attach, &state.session_id, limit.as_secs_f64())),
        };
        span.finish(&found, json!({}));
        let Some(machine) = found? else { return Ok(None) };
        let phase = if state.workspace_root_ready { Phase::Started } else { Phase::Created };
        let (id, ports) = (state.session_id, state.exposed_ports);
        let known = Known { id, name: state.name, created_at: state.created_at, ports };
        let session = Found { client, machine, audit, paths, phase }.session(known, manifest, options);
        session.shared.table.expect(&state.processes).await;
        Ok(Some(session))
    }

    /// The session as it may be saved.
    #[must_use]
    pub fn state(&self) -> SessionState {
        SessionState {
            version: 1,
            session_id: self.shared.id.clone(),
            name: self.shared.name.clone(),
            created_at: self.shared.created_at,
            machine: self.shared.machine.handle(),
            manifest: self.manifest().for_saving(),
            exposed_ports: self.shared.ports.clone(),
            workspace_root_ready: self.phase() == Phase::Started,
            unfinished: self.phase() == Phase::Created,
            processes: self.shared.table.saved(),
        }
    }
}

/// What a session is known by.
struct Known {
    id: String,
    name: Option<String>,
    created_at: jiff::Timestamp,
    ports: Vec<u16>,
}

impl Known {
    /// The session as it is saved while it is made.
    fn state(&self, machine: MachineHandle, manifest: &Manifest) -> SessionState {
        SessionState {
            version: 1,
            session_id: self.id.clone(),
            name: self.name.clone(),
            created_at: self.created_at,
            machine,
            manifest: manifest.for_saving(),
            exposed_ports: self.ports.clone(),
            workspace_root_ready: false,
            unfinished: true,
            processes: Vec::new(),
        }
    }
}

/// A machine that was made or found.
struct Found {
    client: Arc<dyn SandboxClient>,
    machine: Arc<dyn Machine>,
    audit: Audit,
    paths: Paths,
    phase: Phase,
}

impl Found {
    fn session(self, known: Known, manifest: Manifest, options: SessionOptions) -> SandboxSession {
        for name in options.secrets.too_short() {
            tracing::warn!(name, "a secret of fewer than 8 bytes is not hidden in what tools answer");
        }
        let shared = Shared {
            id: known.id,
            name: known.name,
            fetch: options.fetch.unwrap_or_else(|| self.client.clone()),
            proxies: options.proxies,
            client: self.client,
            table: ProcessTable::new(self.machine.clone(), options.processes).hiding(options.secrets.mask()),
            paths: settle(self.paths, &*self.machine),
            machine: self.machine,
            ports: known.ports,
            limits: options.limits,
            secrets: options.secrets,
            audit: self.audit,
            images: ImageViewer::new(),
            progress: options.progress,
            owner: options.owner,
            created_at: known.created_at,
            manifest: std::sync::RwLock::new(Arc::new(manifest)),
            phase: std::sync::Mutex::new(self.phase),
            hooks: std::sync::Mutex::new(Vec::new()),
            turning: Mutex::new(()),
            patching: Arc::default(),
            patch_journal: options.patch_journal,
            closing: watch::Sender::new(false),
        };
        SandboxSession { shared: Arc::new(shared), user: None }
    }
}

/// A machine without a file tree of its own keeps the workspace somewhere else; that is then meant by `/workspace`.
fn settle(paths: Paths, machine: &dyn Machine) -> Paths {
    if *paths.root() == MachinePath::workspace() { paths.moved_to(machine.features().workspace.clone()) } else { paths }
}

/// Everybody who hears about the session. Its secrets are never told, whatever the options say.
fn listeners(id: &str, options: &mut SessionOptions) -> Audit {
    let sinks: Vec<Box<dyn Sink>> = std::mem::take(&mut options.audit);
    let given = std::mem::take(&mut options.audit_options);
    let secrets: SecretStore = given.secrets.merged(&options.secrets);
    Audit::new(id, sinks, AuditOptions { secrets, ..given })
}
