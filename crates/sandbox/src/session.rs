//! A live workspace on a machine, used by an agent's tools and by every other caller.
//!
//! A session is one struct that no client implements: it uses only the [`Machine`] interface, so its promises hold on
//! every kind of machine. It is cheap to clone; [`user`](SandboxSession::user) returns the same session with another
//! user.

mod archives;
mod exec;
mod files;
mod fill;
mod lifecycle;
mod options;
mod patches;
mod ports;
mod prepare;
mod processes;
mod state;
mod store;
mod streams;
mod swap;
mod teardown;

use std::{fmt, future::Future, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use sandbar_http::Proxies;
use sandbar_machine::{Machine, SandboxClient};
use serde_json::{Value, json};
use tokio::sync::{Mutex, watch};
use tracing::Instrument;

use self::lifecycle::SessionIdentity;
pub(crate) use self::store::private_directory;
pub use self::{
    archives::Extract,
    exec::{Exec, ExecResult},
    fill::Scope,
    options::{Owner, SessionLimits, SessionOptions},
    patches::SessionPatches,
    ports::SessionPorts,
    processes::SessionProcesses,
    state::SessionState,
    store::{DamagedSession, SessionStore},
    teardown::SessionHooks,
};
use crate::{
    Manifest, Op, Paths, Progress, Result, SandboxError, SecretStore,
    audit::{Audit, Span},
    image::ImageViewer,
    patch::PatchJournal,
    processes::ProcessTable,
};

/// A function that runs once before a session's work is saved.
type Hook = Box<dyn FnOnce(SandboxSession) -> BoxFuture<'static, Result<()>> + Send>;

/// A live workspace on a machine.
#[derive(Clone)]
pub struct SandboxSession {
    shared: Arc<Shared>,
    user: Option<String>,
}

/// State that all clones of a session share.
struct Shared {
    identity: SessionIdentity,
    client: Arc<dyn SandboxClient>,
    machine: Arc<dyn Machine>,
    fetch: Arc<dyn SandboxClient>,
    proxies: Proxies,
    paths: Paths,
    limits: SessionLimits,
    secrets: SecretStore,
    audit: Audit,
    table: ProcessTable,
    images: ImageViewer,
    progress: Option<Progress>,
    owner: Owner,
    /// The manifest as it is now: entries may be added to a running session.
    manifest: parking_lot::RwLock<Arc<Manifest>>,
    phase: parking_lot::Mutex<Phase>,
    /// Hooks, each with the address of its owner if an owner may have only one.
    hooks: parking_lot::Mutex<Vec<(Option<usize>, Hook)>>,
    /// Held while a session starts or ends, so that two callers do not do it at once.
    transition: Mutex<()>,
    /// Held while a patch is applied: of two concurrent patches to one file, each could undo the other.
    patching: Arc<Mutex<()>>,
    patch_journal: Option<PatchJournal>,
    /// Whether a caller has asked the session to end.
    closing: watch::Sender<bool>,
}

/// The phase of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The machine exists, the workspace is not filled.
    Created,
    /// The workspace is filled.
    Started,
    /// The machine is gone, or being removed.
    Closed,
}

impl SandboxSession {
    /// The session's id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.shared.identity.id
    }

    /// The name that the user gave to the session.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.shared.identity.name.as_deref()
    }

    /// Who ends the session.
    #[must_use]
    pub fn owner(&self) -> Owner {
        self.shared.owner
    }

    /// The machine itself, for operations that the session does not offer.
    #[must_use]
    pub fn machine(&self) -> &Arc<dyn Machine> {
        &self.shared.machine
    }

    /// The paths that the session may use.
    #[must_use]
    pub fn paths(&self) -> &Paths {
        &self.shared.paths
    }

    /// The secrets of the session. The model's tools ([`exec_command`](SessionProcesses::exec_command) and the like)
    /// hide their values in output; [`exec`](Self::exec) and [`read`](Self::read) return data and never change it.
    #[must_use]
    pub fn secrets(&self) -> &SecretStore {
        &self.shared.secrets
    }

    /// The manifest of the workspace.
    #[must_use]
    pub fn manifest(&self) -> Arc<Manifest> {
        self.shared.manifest.read().clone()
    }

    /// The audit record of the session, with the number of events that slow sinks lost.
    #[must_use]
    pub fn audit(&self) -> &Audit {
        &self.shared.audit
    }

    /// The same session, acting as another user.
    #[must_use]
    pub fn user(&self, user: impl Into<String>) -> Self {
        Self { shared: self.shared.clone(), user: Some(user.into()) }
    }

    /// Whether the machine responds.
    ///
    /// # Errors
    /// None at present; a machine that does not respond counts as not running.
    pub async fn running(&self) -> Result<bool> {
        observed(&self.shared, Op::Running, json!({}), async {
            if self.shared.phase() == Phase::Closed {
                return Ok(false);
            }
            let root = self.shared.paths.root().into();
            let look = self.shared.machine.stat(&root);
            Ok(matches!(tokio::time::timeout(self.shared.limits.operation, look).await, Ok(Ok(_))))
        })
        .await
    }
}

impl Shared {
    fn phase(&self) -> Phase {
        *self.phase.lock()
    }

    fn set_phase(&self, phase: Phase) {
        *self.phase.lock() = phase;
    }

    fn live(&self) -> Result<()> {
        if self.phase() == Phase::Closed { Err(SandboxError::session_closed(&self.identity.id)) } else { Ok(()) }
    }

    fn begin(&self, op: Op, data: Value) -> Span {
        self.audit.begin(op, data)
    }
}

/// Runs an operation, and records its start and end in the audit.
async fn observed<T>(shared: &Shared, op: Op, data: Value, work: impl Future<Output = Result<T>>) -> Result<T> {
    let span = shared.begin(op, data);
    let result = work.instrument(span.traced().clone()).await;
    span.finish(&result, json!({}));
    result
}

/// Runs an operation with a timeout.
pub(crate) async fn within<T>(limit: Duration, op: Op, what: &str, work: impl Future<Output = T>) -> Result<T> {
    let late = |_| SandboxError::operation_timeout(op, what, limit.as_secs_f64());
    tokio::time::timeout(limit, work).await.map_err(late)
}

impl fmt::Debug for SandboxSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SandboxSession")
            .field("id", &self.shared.identity.id)
            .field("client", &self.shared.client.id())
            .field("phase", &self.shared.phase())
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}
