//! A live workspace on a machine: what an agent's tools, and everybody else, work with.
//!
//! A session is one struct that no client implements: whatever it promises is built on the waist once, and holds on every
//! kind of machine. It is cheap to clone; [`user`](SandboxSession::user) gives the same session under another identity.

mod archives;
mod ending;
mod exec;
mod files;
mod filling;
mod lifecycle;
mod options;
mod ports;
mod prepare;
mod state;
mod store;
mod streams;
mod swap;
mod tools;

use std::{fmt, future::Future, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use sandbar_http::Proxies;
use sandbar_machine::{Features, Machine, SandboxClient};
use serde_json::{Value, json};
use tokio::sync::{Mutex, watch};
use tracing::Instrument;

pub(crate) use self::store::private_directory;
pub use self::{
    archives::Extract,
    exec::{Exec, ExecResult},
    filling::Scope,
    options::{Owner, SessionLimits, SessionOptions},
    state::SessionState,
    store::{DamagedSession, SessionStore},
};
use crate::{
    Manifest, Op, Paths, Progress, Result, SandboxError, SecretStore,
    audit::{Audit, Span},
    image::ImageViewer,
    patch::PatchJournal,
    processes::ProcessTable,
};

/// Something that runs once before a session's work is saved.
type Hook = Box<dyn FnOnce(SandboxSession) -> BoxFuture<'static, Result<()>> + Send>;

/// A live workspace on a machine.
#[derive(Clone)]
pub struct SandboxSession {
    shared: Arc<Shared>,
    user: Option<String>,
}

/// What all clones of a session share.
struct Shared {
    id: String,
    name: Option<String>,
    client: Arc<dyn SandboxClient>,
    machine: Arc<dyn Machine>,
    fetch: Arc<dyn SandboxClient>,
    proxies: Proxies,
    paths: Paths,
    ports: Vec<u16>,
    limits: SessionLimits,
    secrets: SecretStore,
    audit: Audit,
    table: ProcessTable,
    images: ImageViewer,
    progress: Option<Progress>,
    owner: Owner,
    created_at: jiff::Timestamp,
    /// The manifest as it is now: entries may be added to a running session.
    manifest: std::sync::RwLock<Arc<Manifest>>,
    phase: std::sync::Mutex<Phase>,
    /// With the address of what they are for, where that must not have two.
    hooks: std::sync::Mutex<Vec<(Option<usize>, Hook)>>,
    /// Held while a session begins or ends, so that two callers do not do it at once.
    turning: Mutex<()>,
    /// Held while a patch is applied: two at once would each undo what the other did to a file both change.
    patching: Arc<Mutex<()>>,
    patch_journal: Option<PatchJournal>,
    /// Whether somebody wants the session to end.
    closing: watch::Sender<bool>,
}

/// Where a session is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The machine is there, the workspace is not filled.
    Created,
    /// The workspace is filled.
    Started,
    /// The machine is gone, or on its way.
    Closed,
}

impl SandboxSession {
    /// The session's id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.shared.id
    }

    /// The name people gave it.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.shared.name.as_deref()
    }

    /// Who ends it.
    #[must_use]
    pub fn owner(&self) -> Owner {
        self.shared.owner
    }

    /// What its machine turned out to be.
    #[must_use]
    pub fn features(&self) -> &Features {
        self.shared.machine.features()
    }

    /// The machine itself, for what the session does not offer.
    #[must_use]
    pub fn machine(&self) -> &Arc<dyn Machine> {
        &self.shared.machine
    }

    /// Where the session may go.
    #[must_use]
    pub fn paths(&self) -> &Paths {
        &self.shared.paths
    }

    /// The secrets it was given. What commands print to a model's tools ([`exec_command`](Self::exec_command) and the like)
    /// has their values hidden; what [`exec`](Self::exec) and [`read`](Self::read) give is data, and is never changed.
    #[must_use]
    pub fn secrets(&self) -> &SecretStore {
        &self.shared.secrets
    }

    /// How the workspace was declared.
    #[must_use]
    pub fn manifest(&self) -> Arc<Manifest> {
        self.shared.manifest.read().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    /// What hears about every operation, and how much of it was lost because a sink could not keep up.
    #[must_use]
    pub fn audit(&self) -> &Audit {
        &self.shared.audit
    }

    /// Whose identity this session acts under; `None` is the machine's default user.
    #[must_use]
    pub fn acting_as(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// The same session under another identity.
    #[must_use]
    pub fn user(&self, user: impl Into<String>) -> Self {
        Self { shared: self.shared.clone(), user: Some(user.into()) }
    }

    /// The declared workspace as a tree, `depth` levels deep.
    #[must_use]
    pub fn describe(&self, depth: usize) -> String {
        self.manifest().describe(depth)
    }

    /// Whether the machine still answers.
    ///
    /// # Errors
    /// None today; a machine that cannot be asked counts as not running.
    pub async fn running(&self) -> Result<bool> {
        self.observed(Op::Running, json!({}), async {
            if self.phase() == Phase::Closed {
                return Ok(false);
            }
            let root = self.shared.paths.root().into();
            let look = self.shared.machine.stat(&root);
            Ok(matches!(tokio::time::timeout(self.shared.limits.operation, look).await, Ok(Ok(_))))
        })
        .await
    }

    fn phase(&self) -> Phase {
        *self.shared.phase.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn set_phase(&self, phase: Phase) {
        *self.shared.phase.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = phase;
    }

    fn live(&self) -> Result<()> {
        if self.phase() == Phase::Closed { Err(SandboxError::session_closed(self.id())) } else { Ok(()) }
    }

    fn begin(&self, op: Op, data: Value) -> Span {
        self.shared.audit.begin(op, data)
    }

    /// Does something, and tells the audit when it began and how it ended.
    async fn observed<T>(&self, op: Op, data: Value, work: impl Future<Output = Result<T>>) -> Result<T> {
        let span = self.begin(op, data);
        let result = work.instrument(span.traced().clone()).await;
        span.finish(&result, json!({}));
        result
    }

    /// Waits, but not for ever.
    async fn within<T>(&self, limit: Duration, op: Op, what: &str, work: impl Future<Output = T>) -> Result<T> {
        let late = |_| SandboxError::operation_timeout(op, what, limit.as_secs_f64());
        tokio::time::timeout(limit, work).await.map_err(late)
    }
}

impl fmt::Debug for SandboxSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SandboxSession")
            .field("id", &self.shared.id)
            .field("client", &self.shared.client.id())
            .field("phase", &self.phase())
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}
