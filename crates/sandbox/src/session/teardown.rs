//! The end of a session: hooks, processes, then the machine. The first caller ends it; later ones find it ended.

use std::{
    sync::{Arc, PoisonError},
    time::Duration,
};

use sandbar_machine::MachineError;
use serde_json::json;

use super::{Hook, Phase, SandboxSession};
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

impl SandboxSession {
    /// Registers a function that runs once before the session's work is saved or its machine ends.
    pub fn register_pre_stop_hook<F, W>(&self, hook: F)
    where
        F: FnOnce(Self) -> W + Send + 'static,
        W: Future<Output = Result<()>> + Send + 'static,
    {
        self.add_hook(None, Box::new(|session| Box::pin(hook(session))));
    }

    /// Registers a hook for an owner that may register more than once: nothing happens while a hook of the same owner
    /// is registered. After the session was stopped, the owner can register a new one.
    pub fn register_pre_stop_hook_of<T, F, W>(&self, owner: &Arc<T>, hook: F)
    where
        T: ?Sized + Send + Sync + 'static,
        F: FnOnce(Self) -> W + Send + 'static,
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

    fn add_hook(&self, owner: Option<usize>, hook: Hook) {
        let mut hooks = self.shared.hooks.lock().unwrap_or_else(PoisonError::into_inner);
        if owner.is_none() || hooks.iter().all(|(known, _)| *known != owner) {
            hooks.push((owner, hook));
        }
    }

    /// Runs the pre-stop hooks, then ends every command of the process table. The workspace, the machine and background
    /// children of commands stay. It can be called again; each hook runs once.
    ///
    /// # Errors
    /// The error of the first hook that failed.
    pub async fn stop(&self) -> Result<()> {
        self.live()?;
        self.observed(Op::Stop, json!({}), async {
            let hooked = self.run_hooks().await;
            self.shared.table.terminate_all().await;
            hooked
        })
        .await
    }

    /// Runs the hooks without holding a lock: a hook may call any operation of its session.
    async fn run_hooks(&self) -> Result<()> {
        let hooks = std::mem::take(&mut *self.shared.hooks.lock().unwrap_or_else(PoisonError::into_inner));
        let mut first = Ok(());
        for (_owner, hook) in hooks {
            let limit = self.shared.limits.transfer;
            let ran = self.observed(Op::PreStopHook, json!({}), async {
                // A separate task, so that a panic ends the hook and not the caller.
                let task = tokio::spawn(hook(self.clone()));
                let stop = task.abort_handle();
                let ended = self.within(limit, Op::PreStopHook, "a hook", task).await;
                stop.abort();
                ended?.unwrap_or_else(|cause| {
                    Err(SandboxError::workspace_stop_error("a hook", "the hook panicked").because(cause))
                })
            });
            first = first.and(ran.await);
        }
        first
    }

    /// Stops, then ends the machine. Closing twice is allowed; a start in progress is cancelled.
    ///
    /// # Errors
    /// The first error; all steps are tried.
    pub async fn close(&self) -> Result<()> {
        let stopped = self.before_end().await;
        let _one_at_a_time = self.shared.transition.lock().await;
        if self.phase() == Phase::Closed {
            return stopped;
        }
        stopped.and(self.end(EndMode::Shutdown).await)
    }

    /// Closes, then removes the machine with all its files. Deleting twice is allowed.
    ///
    /// # Errors
    /// The first error; all steps are tried.
    pub async fn delete(&self) -> Result<()> {
        let stopped = self.before_end().await;
        let _one_at_a_time = self.shared.transition.lock().await;
        stopped.and(self.end(EndMode::Delete).await)
    }

    /// Stops the session, unless it is closed already.
    async fn before_end(&self) -> Result<()> {
        self.shared.closing.send_replace(true);
        match self.stop().await {
            Err(error) if error.code() == "session_closed" => Ok(()),
            other => other,
        }
    }

    pub(super) async fn end(&self, mode: EndMode) -> Result<()> {
        let was = self.phase();
        self.set_phase(Phase::Closed);
        self.shared.table.close().await;
        let root = self.shared.paths.root().to_string();
        let failed = |cause: MachineError| SandboxError::workspace_stop_error(&root, cause.code()).because(cause);
        let limit = self.shared.limits.operation;
        let mut ended = Ok(());
        if was != Phase::Closed {
            let stopped = self.observed(Op::Shutdown, json!({}), async {
                let stop = self.within(limit, Op::Shutdown, "the machine", self.shared.machine.stop());
                stop.await?.or_else(gone_is_fine).map_err(failed)
            });
            ended = stopped.await;
        }
        if mode == EndMode::Delete {
            let handle = self.shared.machine.handle();
            let deleted = self.observed(Op::Delete, json!({}), async {
                let delete = self.within(limit, Op::Delete, "the machine", self.shared.client.delete(&handle));
                delete.await?.or_else(gone_is_fine).map_err(failed)
            });
            ended = ended.and(deleted.await);
        }
        let _late_sinks_continue = self.shared.audit.close(LAST_EVENTS).await;
        ended
    }
}

fn gone_is_fine(cause: MachineError) -> Result<(), MachineError> {
    if matches!(cause, MachineError::Gone) { Ok(()) } else { Err(cause) }
}
