//! What a model's tools do with a session: commands that go on between looks, patches, images.

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
    /// Starts a command as a model asks for it, and waits a little for its first news.
    ///
    /// # Errors
    /// `invalid_manifest_path` for a working directory elsewhere, `exec_transport_error` when it cannot be started.
    pub async fn exec_command(&self, args: ExecCommandArgs) -> Result<Update> {
        self.exec_watched(args, None).await
    }

    /// The same, for somebody who also wants to see what the command prints while it does.
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
        span.finish(&started, told(&started));
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

    /// Types to a running command, or asks for its news.
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
        let told_then = match self.live() {
            Ok(()) => self.shared.table.write(args.session_id, write).instrument(span.traced().clone()).await,
            Err(closed) => Err(closed),
        };
        span.finish(&told_then, told(&told_then));
        told_then
    }

    /// The commands of the process table.
    #[must_use]
    pub fn processes(&self) -> Vec<ProcessInfo> {
        self.shared.table.list()
    }

    /// What a command of the table prints, as it prints it.
    ///
    /// # Errors
    /// `pty_session_not_found`.
    pub fn follow(&self, session_id: u64) -> Result<Deltas> {
        self.shared.table.subscribe(session_id)
    }

    /// Signals a command of the table, or tells it the size of its terminal.
    ///
    /// # Errors
    /// `pty_session_not_found`.
    pub async fn control(&self, session_id: u64, control: Control) -> Result<()> {
        self.live()?;
        self.shared.table.control(session_id, control).await
    }

    /// What a model reads when `exec_command` or `write_stdin` failed: a result like any other, with exit code 1.
    #[must_use]
    pub fn refusal(&self, error: &SandboxError, wall_time: Duration) -> Update {
        self.shared.table.refusal(error, wall_time)
    }

    /// What a model reads of something that was done in place of a command: a result like any other, with exit code 0.
    #[must_use]
    pub fn report(&self, output: String, wall_time: Duration) -> Update {
        self.shared.table.report_done(output, wall_time)
    }

    /// Ends a command of the table, and everything it started.
    ///
    /// # Errors
    /// `pty_session_not_found`.
    pub async fn terminate(&self, session_id: u64) -> Result<()> {
        let data = json!({"session_id": session_id});
        self.observed(Op::PtyTerminate, data, self.shared.table.terminate(session_id)).await
    }

    /// Applies a patch: all of it, or nothing, also when nobody waits for the answer any more.
    ///
    /// # Errors
    /// The `apply_patch_…` codes; nothing is changed then.
    pub async fn apply_patch(&self, text: &str, mut options: PatchOptions) -> Result<Applied> {
        options.user = options.user.or_else(|| self.user.clone());
        options.journal = options.journal.or_else(|| self.shared.patch_journal.clone());
        options.mask = options.mask.or_else(|| self.shared.secrets.mask());
        let span = self.begin(Op::ApplyPatch, json!({"bytes": text.len(), "user": options.user}));
        let applied = async {
            self.live()?;
            let patch = Patch::parse(text)?;
            let shared = self.shared.clone();
            whole(async move {
                let _one_at_a_time = shared.patching.clone().lock_owned().await;
                patch::apply(&*shared.machine, &shared.paths, &patch, &options).await
            })
            .await
        };
        let applied = applied.instrument(span.traced().clone()).await;
        let data = applied.as_ref().map_or(json!({}), changed);
        span.finish(&applied, data);
        applied
    }

    /// Takes back a patch that was interrupted in the middle when this workspace was last worked on; nothing if there is
    /// none, or the session has no [journal](crate::SessionOptions::patch_journal). Applying a patch does so too.
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

    /// Takes a patch back, if its files still are what it left.
    ///
    /// # Errors
    /// `apply_patch_invalid_diff` when a file has changed since; nothing is changed then.
    pub async fn undo_patch(&self, applied: &Applied) -> Result<()> {
        self.observed(Op::ApplyPatch, json!({"undo": true}), async {
            self.live()?;
            let (shared, applied) = (self.shared.clone(), applied.clone());
            whole(async move {
                let _one_at_a_time = shared.patching.clone().lock_owned().await;
                let recorded = shared.patch_journal.as_ref().map(|journal| (&shared.paths, journal));
                patch::undo_recorded(&*shared.machine, &applied, recorded).await
            })
            .await
        })
        .await
    }

    /// An image for a model. What the model should read instead, because there is no image, is an outcome too.
    ///
    /// # Errors
    /// `invalid_manifest_path` for a path elsewhere, `session_closed`.
    pub async fn view_image(&self, args: &ViewImageArgs) -> Result<ImageOutcome> {
        self.observed(Op::ViewImage, json!({"path": args.path, "user": self.user}), async {
            self.live()?;
            self.shared.images.view(&*self.shared.machine, &self.shared.paths, args, self.user.as_deref()).await
        })
        .await
    }
}

/// Does all of something even if the caller is dropped half way: half a patch must never stay. Every request in it has a
/// deadline of its own.
async fn whole<T: Send + 'static>(work: impl Future<Output = Result<T>> + Send + 'static) -> Result<T> {
    match tokio::spawn(work).await {
        Ok(done) => done,
        Err(cause) => Err(SandboxError::apply_patch_write_error("the patch", false).because(cause)),
    }
}

/// What the audit hears of a command's news.
fn told(update: &Result<Update>) -> serde_json::Value {
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

/// What the audit hears of a patch: which files, not what is in them.
fn changed(applied: &Applied) -> serde_json::Value {
    let kind = |change: &Change| match (&change.before, &change.after) {
        (None, _) => "created",
        (Some(_), None) => "deleted",
        (Some(_), Some(_)) => "updated",
    };
    let changes = applied.delta.iter().map(|change| json!({"path": change.path, "kind": kind(change)}));
    json!({"changes": changes.collect::<Vec<_>>()})
}
