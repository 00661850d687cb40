//! The operations behind a model's tools: long-running commands, patches, images.

use std::{ffi::OsStr, time::Duration};

use sandbar_machine::{Command, Control, TerminalSize};
use serde_json::json;
use tokio::sync::oneshot;
use tracing::Instrument;

use super::SandboxSession;
use crate::{
    Intent, Op, Result, SandboxError,
    image::{ImageOutcome, ViewImageArgs},
    patch::{self, Applied, Change, Patch, PatchOptions, Recovered},
    processes::{Deltas, ExecCommandArgs, ProcessInfo, Start, Update, Write, WriteStdinArgs, model_env},
};

impl SandboxSession {
    /// Starts a command for a model, and waits a short time for its first output.
    ///
    /// # Errors
    /// `invalid_manifest_path` for a working directory outside the allowed paths, `exec_transport_error` if the command
    /// cannot be started.
    pub async fn exec_command(&self, args: ExecCommandArgs) -> Result<Update> {
        self.exec_watched(args, None).await
    }

    /// Like [`exec_command`](Self::exec_command), and sends a subscription to the live output to `watcher`.
    ///
    /// # Errors
    /// As [`exec_command`](Self::exec_command).
    pub async fn exec_command_watched(
        &self,
        args: ExecCommandArgs,
        watcher: oneshot::Sender<Deltas>,
    ) -> Result<Update> {
        self.exec_watched(args, Some(watcher)).await
    }

    async fn exec_watched(&self, args: ExecCommandArgs, watcher: Option<oneshot::Sender<Deltas>>) -> Result<Update> {
        let data = json!({"command": args.cmd, "tty": args.tty, "workdir": args.workdir, "user": self.user});
        let span = self.begin(Op::PtyStart, data);
        let started = self.start_command(args, watcher).instrument(span.traced().clone()).await;
        span.finish(&started, update_facts(&started));
        started
    }

    async fn start_command(&self, args: ExecCommandArgs, watcher: Option<oneshot::Sender<Deltas>>) -> Result<Update> {
        self.live()?;
        let directory = args.directory();
        let cwd = directory.as_deref().map_or(self.shared.paths.root().as_os_str(), OsStr::new);
        let mut command = Command::new(args.argv()).cwd(self.shared.paths.target(cwd, Intent::Read)?.path);
        let manifest = self.manifest();
        let undeclared = model_env().iter().filter(|(name, _)| manifest.environment.get(name).is_none());
        command.env = undeclared.map(|(name, value)| (name.into(), value.into())).collect();
        command.user.clone_from(&self.user);
        command.tty = args.tty.then(TerminalSize::default);
        let start = Start {
            command,
            yield_time: Some(Duration::from_millis(args.yield_time_ms)),
            max_output_tokens: args.max_output_tokens.map(Into::into),
            watcher,
        };
        self.shared.table.start(start).await
    }

    /// Writes to a running command, or polls it.
    ///
    /// # Errors
    /// `pty_session_not_found`, `pty_stdin_unavailable`.
    pub async fn write_stdin(&self, args: WriteStdinArgs) -> Result<Update> {
        let data = json!({"session_id": args.session_id, "bytes": args.chars.len()});
        let span = self.begin(Op::PtyStdin, data);
        let write = Write {
            chars: &args.chars,
            yield_time: Some(Duration::from_millis(args.yield_time_ms)),
            max_output_tokens: args.max_output_tokens.map(Into::into),
        };
        let updated = match self.live() {
            Ok(()) => self.shared.table.write(args.session_id, write).instrument(span.traced().clone()).await,
            Err(closed) => Err(closed),
        };
        span.finish(&updated, update_facts(&updated));
        updated
    }

    /// The commands of the process table.
    #[must_use]
    pub fn processes(&self) -> Vec<ProcessInfo> {
        self.shared.table.list()
    }

    /// Subscribes to the live output of a command of the table.
    ///
    /// # Errors
    /// `pty_session_not_found`.
    pub fn follow(&self, session_id: u64) -> Result<Deltas> {
        self.shared.table.subscribe(session_id)
    }

    /// Sends a signal or a new terminal size to a command of the table.
    ///
    /// # Errors
    /// `pty_session_not_found`.
    pub async fn control(&self, session_id: u64, control: Control) -> Result<()> {
        self.live()?;
        self.shared.table.control(session_id, control).await
    }

    /// The update that a model reads if `exec_command` or `write_stdin` failed, with exit code 1.
    #[must_use]
    pub fn refusal(&self, error: &SandboxError, wall_time: Duration) -> Update {
        self.shared.table.refusal(error, wall_time)
    }

    /// The update that a model reads about an operation that ran instead of a command, with exit code 0.
    #[must_use]
    pub fn report(&self, output: String, wall_time: Duration) -> Update {
        self.shared.table.report_done(output, wall_time)
    }

    /// Ends a command of the table, and every process it started.
    ///
    /// # Errors
    /// `pty_session_not_found`.
    pub async fn terminate(&self, session_id: u64) -> Result<()> {
        let data = json!({"session_id": session_id});
        self.observed(Op::PtyTerminate, data, self.shared.table.terminate(session_id)).await
    }

    /// Applies a patch completely or not at all, also if the caller drops this future.
    ///
    /// # Errors
    /// The `apply_patch_…` codes; no file is changed then.
    pub async fn apply_patch(&self, text: &str, mut options: PatchOptions) -> Result<Applied> {
        options.user = options.user.or_else(|| self.user.clone());
        options.journal = options.journal.or_else(|| self.shared.patch_journal.clone());
        options.mask = options.mask.or_else(|| self.shared.secrets.mask());
        let span = self.begin(Op::ApplyPatch, json!({"bytes": text.len(), "user": options.user}));
        let applied = async {
            self.live()?;
            let patch = Patch::parse(text)?;
            let shared = self.shared.clone();
            run_to_completion(async move {
                let _one_at_a_time = shared.patching.clone().lock_owned().await;
                patch::apply(&*shared.machine, &shared.paths, &patch, &options).await
            })
            .await
        };
        let applied = applied.instrument(span.traced().clone()).await;
        let data = applied.as_ref().map_or(json!({}), patch_facts);
        span.finish(&applied, data);
        applied
    }

    /// Rolls back a patch that was interrupted in an earlier session of this workspace; `None` if there is none, or the
    /// session has no [journal](crate::SessionOptions::patch_journal). Applying a patch does this first.
    ///
    /// # Errors
    /// As [`patch::recover`].
    pub async fn recover_patch(&self) -> Result<Option<Recovered>> {
        let Some(journal) = &self.shared.patch_journal else { return Ok(None) };
        self.live()?;
        let limits = PatchOptions::default().limits;
        let _one_at_a_time = self.shared.patching.lock().await;
        patch::recover(&*self.shared.machine, &self.shared.paths, journal, &limits).await
    }

    /// Undoes a patch, if its files are unchanged since.
    ///
    /// # Errors
    /// `apply_patch_invalid_diff` if a file has changed since; no file is changed then.
    pub async fn undo_patch(&self, applied: &Applied) -> Result<()> {
        self.observed(Op::ApplyPatch, json!({"undo": true}), async {
            self.live()?;
            let (shared, applied) = (self.shared.clone(), applied.clone());
            run_to_completion(async move {
                let _one_at_a_time = shared.patching.clone().lock_owned().await;
                let recorded = shared.patch_journal.as_ref().map(|journal| (&shared.paths, journal));
                patch::undo_recorded(&*shared.machine, &applied, recorded).await
            })
            .await
        })
        .await
    }

    /// An image for a model. If there is no image, the outcome is the text that the model reads instead.
    ///
    /// # Errors
    /// `invalid_manifest_path` for a path outside the allowed paths, `session_closed`.
    pub async fn view_image(&self, args: &ViewImageArgs) -> Result<ImageOutcome> {
        self.observed(Op::ViewImage, json!({"path": args.path, "user": self.user}), async {
            self.live()?;
            self.shared.images.view(&*self.shared.machine, &self.shared.paths, args, self.user.as_deref()).await
        })
        .await
    }
}

/// Completes the work even if the caller is dropped: a patch must never be applied in part. Every request in it has its
/// own timeout.
async fn run_to_completion<T: Send + 'static>(work: impl Future<Output = Result<T>> + Send + 'static) -> Result<T> {
    match tokio::spawn(work).await {
        Ok(done) => done,
        Err(cause) => Err(SandboxError::apply_patch_write_error("the patch", false).because(cause)),
    }
}

/// The audit facts of an update.
fn update_facts(update: &Result<Update>) -> serde_json::Value {
    match update {
        Ok(update) => {
            let bytes = update.output.len();
            let mut data = json!({"exit_code": update.exit_code, "session_id": update.process_id, "bytes": bytes});
            if !update.evicted.is_empty() {
                data["evicted"] = json!(update.evicted);
            }
            data
        }
        Err(_) => json!({}),
    }
}

/// The audit facts of a patch: which files, without their content.
fn patch_facts(applied: &Applied) -> serde_json::Value {
    let kind = |change: &Change| match (&change.before, &change.after) {
        (None, _) => "created",
        (Some(_), None) => "deleted",
        (Some(_), Some(_)) => "updated",
    };
    let changes = applied.delta.iter().map(|change| json!({"path": change.path, "kind": kind(change)}));
    json!({"changes": changes.collect::<Vec<_>>()})
}
