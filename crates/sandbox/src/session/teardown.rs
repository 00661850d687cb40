//! The end of a session: hooks, processes, then the machine. The first caller ends it; later ones find it ended.

use std::{sync::Arc, time::Duration};

use sandbar_machine::MachineError;
use serde_json::json;

use super::{Hook, Phase, SandboxSession, observed, within};
use crate::{Op, Result, SandboxError};

/// How long audit sinks have to take the remaining events.
const LAST_EVENTS: Duration = Duration::from_secs(2);

/// How much the end of a session removes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum EndMode {
    /// The machine.
    Shutdown,
    /// The machine and all its files.
    Delete,
}

/// The functions that run once before a session's work is saved or its machine ends.
#[derive(Clone, Copy, Debug)]
pub struct SessionHooks<'a>(&'a SandboxSession);

impl SessionHooks<'_> {
    /// Registers a function that runs once before the session's work is saved or its machine ends.
    pub fn before_stop<F, W>(self, hook: F)
    where
        F: FnOnce(SandboxSession) -> W + Send + 'static,
        W: Future<Output = Result<()>> + Send + 'static,
    {
        self.add_hook(None, Box::new(|session| Box::pin(hook(session))));
    }

    /// Registers a hook for an owner that may register more than once: nothing happens while a hook of the same owner
    /// is registered. After the session was stopped, the owner can register a new one.
    pub fn before_stop_of<T, F, W>(self, owner: &Arc<T>, hook: F)
    where
        T: ?Sized + Send + Sync + 'static,
        F: FnOnce(SandboxSession) -> W + Send + 'static,
        W: Future<Output = Result<()>> + Send + 'static,
    {
        // The hook holds the owner, so that its address is not reused while it is compared.
        let held = Arc::clone(owner);
        let hook: Hook = Box::new(|session| {
            let done = hook(session);
            Box::pin(async move {
                let _keep_alive = held;
                done.await
            })
        });
        self.add_hook(Some(Arc::as_ptr(owner).addr()), hook);
    }

    fn add_hook(self, owner: Option<usize>, hook: Hook) {
        let mut hooks = self.0.shared.hooks.lock();
        if owner.is_none() || hooks.iter().all(|(known, _)| *known != owner) {
            hooks.push((owner, hook));
        }
    }
}

impl SandboxSession {
    /// The hooks of the session.
    #[must_use]
    pub fn hooks(&self) -> SessionHooks<'_> {
        SessionHooks(self)
    }

    /// Runs the pre-stop hooks, then ends every command of the process table. The workspace, the machine and background
    /// children of commands stay. It can be called again; each hook runs once.
    ///
    /// # Errors
    /// The error of the first hook that failed.
    pub async fn stop(&self) -> Result<()> {
        self.shared.live()?;
        observed(&self.shared, Op::Stop, json!({}), async {
            let hooked = run_hooks(self).await;
            self.shared.table.terminate_all().await;
            hooked
        })
        .await
    }

    /// Stops, then ends the machine. Closing twice is allowed; a start in progress is cancelled.
    ///
    /// # Errors
    /// The first error; all steps are tried.
    pub async fn close(&self) -> Result<()> {
        let stopped = before_end(self).await;
        let _one_at_a_time = self.shared.transition.lock().await;
        if self.shared.phase() == Phase::Closed {
            return stopped;
        }
        stopped.and(end(self, EndMode::Shutdown).await)
    }

    /// Closes, then removes the machine with all its files. Deleting twice is allowed.
    ///
    /// # Errors
    /// The first error; all steps are tried.
    pub async fn delete(&self) -> Result<()> {
        let stopped = before_end(self).await;
        let _one_at_a_time = self.shared.transition.lock().await;
        stopped.and(end(self, EndMode::Delete).await)
    }
}

/// Runs the hooks without holding a lock: a hook may call any operation of its session.
async fn run_hooks(session: &SandboxSession) -> Result<()> {
    let hooks = std::mem::take(&mut *session.shared.hooks.lock());
    let mut first = Ok(());
    for (_owner, hook) in hooks {
        let limit = session.shared.limits.transfer;
        let ran = observed(&session.shared, Op::PreStopHook, json!({}), async {
            // A separate task, so that a panic ends the hook and not the caller.
            let task = tokio::spawn(hook(session.clone()));
            let stop = task.abort_handle();
            let ended = within(limit, Op::PreStopHook, "a hook", task).await;
            stop.abort();
            ended?.unwrap_or_else(|cause| {
                Err(SandboxError::workspace_stop_error("a hook", "the hook panicked").because(cause))
            })
        });
        first = first.and(ran.await);
    }
    first
}

/// Stops the session, unless it is closed already.
async fn before_end(session: &SandboxSession) -> Result<()> {
    session.shared.closing.send_replace(true);
    match session.stop().await {
        Err(error) if error.code() == "session_closed" => Ok(()),
        other => other,
    }
}

pub(super) async fn end(session: &SandboxSession, mode: EndMode) -> Result<()> {
    let was = session.shared.phase();
    session.shared.set_phase(Phase::Closed);
    session.shared.table.close().await;
    let root = session.shared.paths.root().to_string();
    let failed = |cause: MachineError| SandboxError::workspace_stop_error(&root, cause.code()).because(cause);
    let limit = session.shared.limits.operation;
    let mut ended = Ok(());
    if was != Phase::Closed {
        let stopped = observed(&session.shared, Op::Shutdown, json!({}), async {
            let stop = within(limit, Op::Shutdown, "the machine", session.shared.machine.stop());
            stop.await?.or_else(gone_is_fine).map_err(failed)
        });
        ended = stopped.await;
    }
    if mode == EndMode::Delete {
        let handle = session.shared.machine.handle();
        let deleted = observed(&session.shared, Op::Delete, json!({}), async {
            let delete = within(limit, Op::Delete, "the machine", session.shared.client.delete(&handle));
            delete.await?.or_else(gone_is_fine).map_err(failed)
        });
        ended = ended.and(deleted.await);
    }
    let _late_sinks_continue = session.shared.audit.close(LAST_EVENTS).await;
    ended
}

fn gone_is_fine(cause: MachineError) -> Result<(), MachineError> {
    if matches!(cause, MachineError::Gone) { Ok(()) } else { Err(cause) }
}
