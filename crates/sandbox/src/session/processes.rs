//! The commands of a session that keep running between the calls of a model.

use std::{ffi::OsStr, time::Duration};

use sandbar_machine::{Command, Control, TerminalSize};
use serde_json::json;
use tokio::sync::oneshot;
use tracing::Instrument;

use super::{SandboxSession, observed};
use crate::{
    Intent, Op, Result, SandboxError,
    processes::{Deltas, ExecCommandArgs, ProcessInfo, Start, Update, Write, WriteStdinArgs, model_env},
};

/// The process table of a session.
#[derive(Clone, Copy, Debug)]
pub struct SessionProcesses<'a>(&'a SandboxSession);

impl SandboxSession {
    /// The process table: commands that keep running between calls.
    #[must_use]
    pub fn processes(&self) -> SessionProcesses<'_> {
        SessionProcesses(self)
    }
}

impl SessionProcesses<'_> {
    /// Starts a command for a model, and waits a short time for its first output.
    ///
    /// # Errors
    /// `invalid_manifest_path` for a working directory outside the allowed paths, `exec_transport_error` if the command
    /// cannot be started.
    pub async fn exec_command(self, args: ExecCommandArgs) -> Result<Update> {
        exec_watched(self.0, args, None).await
    }

    /// Like [`exec_command`](Self::exec_command), and sends a subscription to the live output to `watcher`.
    ///
    /// # Errors
    /// As [`exec_command`](Self::exec_command).
    pub async fn exec_command_watched(self, args: ExecCommandArgs, watcher: oneshot::Sender<Deltas>) -> Result<Update> {
        exec_watched(self.0, args, Some(watcher)).await
    }

    /// Writes to a running command, or polls it.
    ///
    /// # Errors
    /// `pty_session_not_found`, `pty_stdin_unavailable`.
    pub async fn write_stdin(self, args: WriteStdinArgs) -> Result<Update> {
        let data = json!({"session_id": args.session_id, "bytes": args.chars.len()});
        let span = self.0.shared.begin(Op::PtyStdin, data);
        let write = Write {
            chars: &args.chars,
            yield_time: Some(Duration::from_millis(args.yield_time_ms)),
            max_output_tokens: args.max_output_tokens.map(Into::into),
        };
        let updated = match self.0.shared.live() {
            Ok(()) => self.0.shared.table.write(args.session_id, write).instrument(span.traced().clone()).await,
            Err(closed) => Err(closed),
        };
        span.finish(&updated, update_facts(&updated));
        updated
    }

    /// The commands of the process table.
    #[must_use]
    pub fn list(self) -> Vec<ProcessInfo> {
        self.0.shared.table.list()
    }

    /// Subscribes to the live output of a command of the table.
    ///
    /// # Errors
    /// `pty_session_not_found`.
    pub fn follow(self, session_id: u64) -> Result<Deltas> {
        self.0.shared.table.subscribe(session_id)
    }

    /// Sends a signal or a new terminal size to a command of the table.
    ///
    /// # Errors
    /// `pty_session_not_found`.
    pub async fn control(self, session_id: u64, control: Control) -> Result<()> {
        self.0.shared.live()?;
        self.0.shared.table.control(session_id, control).await
    }

    /// Ends a command of the table, and every process it started.
    ///
    /// # Errors
    /// `pty_session_not_found`.
    pub async fn terminate(self, session_id: u64) -> Result<()> {
        let data = json!({"session_id": session_id});
        observed(&self.0.shared, Op::PtyTerminate, data, self.0.shared.table.terminate(session_id)).await
    }

    /// The update that a model reads if `exec_command` or `write_stdin` failed, with exit code 1.
    #[must_use]
    pub fn refusal(self, error: &SandboxError, wall_time: Duration) -> Update {
        self.0.shared.table.refusal(error, wall_time)
    }

    /// The update that a model reads about an operation that ran instead of a command, with exit code 0.
    #[must_use]
    pub fn report(self, output: String, wall_time: Duration) -> Update {
        self.0.shared.table.report_done(output, wall_time)
    }
}

async fn exec_watched(
    session: &SandboxSession,
    args: ExecCommandArgs,
    watcher: Option<oneshot::Sender<Deltas>>,
) -> Result<Update> {
    let data = json!({"command": args.cmd, "tty": args.tty, "workdir": args.workdir, "user": session.user});
    let span = session.shared.begin(Op::PtyStart, data);
    let started = start_command(session, args, watcher).instrument(span.traced().clone()).await;
    span.finish(&started, update_facts(&started));
    started
}

async fn start_command(
    session: &SandboxSession,
    args: ExecCommandArgs,
    watcher: Option<oneshot::Sender<Deltas>>,
) -> Result<Update> {
    session.shared.live()?;
    let directory = args.directory();
    let cwd = directory.as_deref().map_or(session.shared.paths.root().as_os_str(), OsStr::new);
    let mut command = Command::new(args.argv()).cwd(session.shared.paths.target(cwd, Intent::Read)?.path);
    let manifest = session.manifest();
    let undeclared = model_env().iter().filter(|(name, _)| manifest.environment.get(name).is_none());
    command.env = undeclared.map(|(name, value)| (name.into(), value.into())).collect();
    command.user.clone_from(&session.user);
    command.tty = args.tty.then(TerminalSize::default);
    let start = Start {
        command,
        yield_time: Some(Duration::from_millis(args.yield_time_ms)),
        max_output_tokens: args.max_output_tokens.map(Into::into),
        watcher,
    };
    session.shared.table.start(start).await
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
