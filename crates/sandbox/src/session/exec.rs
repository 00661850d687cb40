//! Runs a command to its end: with a timeout, with bounded output, and without waiting for background children.

use std::{ffi::OsString, fmt, time::Duration};

use bytes::Bytes;
use sandbar_machine::{Command, Exit, ExitReason, MachineError, Output, Process};
use serde_json::json;
use tokio::time::{Instant, timeout_at};
use tracing::Instrument;

use super::SandboxSession;
use crate::{
    Intent, Op, Result, SandboxError, SecretStore,
    audit::End,
    processes::{HeadTail, truncate_bytes},
};

/// How long to wait for open streams after a command has exited: later output of a background child is not its result.
const AFTER_EXIT: Duration = Duration::from_millis(50);
/// How much later than its timeout the exit of a command may be reported.
const GRACE: Duration = Duration::from_secs(10);

/// A command for [`SandboxSession::exec`].
#[derive(Clone, Default)]
pub struct Exec {
    argv: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    cwd: Option<OsString>,
    stdin: Option<Bytes>,
    timeout: Option<Duration>,
    output_limit: Option<usize>,
}

impl Exec {
    /// A program and its arguments.
    pub fn new<S: Into<OsString>>(argv: impl IntoIterator<Item = S>) -> Self {
        Self { argv: argv.into_iter().map(Into::into).collect(), ..Self::default() }
    }

    /// A command line for the machine's shell.
    pub fn shell(line: impl Into<OsString>) -> Self {
        // tidy: allow(shell) — the caller's own line is passed on; none is built here
        Self::new([OsString::from("sh"), OsString::from("-c"), line.into()])
    }

    /// Sets one variable.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Sets the working directory, inside the workspace.
    #[must_use]
    pub fn cwd(mut self, cwd: impl Into<OsString>) -> Self {
        self.cwd = Some(cwd.into());
        self
    }

    /// Sets the standard input.
    #[must_use]
    pub fn stdin(mut self, input: impl Into<Bytes>) -> Self {
        self.stdin = Some(input.into());
        self
    }

    /// Kills the command, and every process it started, after this time.
    #[must_use]
    pub fn timeout(mut self, after: Duration) -> Self {
        self.timeout = Some(after);
        self
    }

    /// Sets the maximum number of bytes that are kept of each stream.
    #[must_use]
    pub fn output_limit(mut self, bytes: usize) -> Self {
        self.output_limit = Some(bytes);
        self
    }

    /// The longest timeout: adding more to an `Instant` could overflow.
    const LONGEST: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

    fn shown(&self) -> Vec<String> {
        self.argv.iter().map(|argument| argument.to_string_lossy().into_owned()).collect()
    }
}

impl fmt::Debug for Exec {
    /// Leaves out values of variables and the input, which may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.env.iter().map(|(name, _)| name).collect();
        f.debug_struct("Exec")
            .field("argv", &self.argv)
            .field("env", &names)
            .field("cwd", &self.cwd)
            .finish_non_exhaustive()
    }
}

/// The exit and the output of a command. An exit code other than zero is not an error; [`check`](Self::check) makes it
/// one.
#[derive(Clone, Debug)]
pub struct ExecResult {
    /// Standard output, or its beginning and its end.
    pub stdout: Bytes,
    /// Standard error, or its beginning and its end.
    pub stderr: Bytes,
    /// Number of bytes that are missing in the middle of `stdout`.
    pub stdout_omitted: u64,
    /// Number of bytes that are missing in the middle of `stderr`.
    pub stderr_omitted: u64,
    /// Exit code and reason.
    pub exit: Exit,
    /// Duration of the command.
    pub duration: Duration,
    command: Vec<String>,
    /// Secrets that are hidden in error messages.
    secrets: SecretStore,
}

impl ExecResult {
    /// Whether the command exited with zero.
    #[must_use]
    pub fn success(&self) -> bool {
        self.exit.success()
    }

    /// Standard output as text.
    #[must_use]
    pub fn stdout_text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Standard error as text.
    #[must_use]
    pub fn stderr_text(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    /// Returns the result if the command exited with zero.
    ///
    /// # Errors
    /// `exec_nonzero` with the output.
    pub fn check(self) -> Result<Self> {
        if self.success() {
            return Ok(self);
        }
        let (stdout, stderr) = (clipped(&self.stdout, &self.secrets), clipped(&self.stderr, &self.secrets));
        Err(SandboxError::exec_nonzero(self.command, self.exit.code, stdout, stderr))
    }
}

impl SandboxSession {
    /// Runs a command to its end.
    ///
    /// # Errors
    /// `exec_timeout` if the command exceeded its timeout (it was killed, with every process it started),
    /// `exec_transport_error` if it could not be started or the connection to it was lost.
    pub async fn exec(&self, exec: Exec) -> Result<ExecResult> {
        let timeout = exec.timeout.unwrap_or(self.shared.limits.exec_timeout).min(Exec::LONGEST);
        let data = json!({"command": exec.shown(), "timeout_s": timeout.as_secs_f64(), "user": self.user});
        let mut span = self.shared.begin(Op::Exec, data);
        let result = run(self, exec, timeout).instrument(span.traced().clone()).await;
        if let Ok(result) = &result {
            span.output(&result.stdout, &result.stderr);
        }
        let mut data = result
            .as_ref()
            .map_or(json!({}), |result| json!({"exit_code": result.exit.code, "process.exit.code": result.exit.code}));
        if let Some(limit) = result.as_ref().ok().and_then(|result| result.exit.reason.limit()) {
            data["limit"] = limit.into();
        }
        let failed = result.as_ref().is_ok_and(|result| !result.success());
        span.finish(if failed { End::Failed } else { End::from(&result) }, data);
        result
    }
}

async fn run(session: &SandboxSession, exec: Exec, timeout: Duration) -> Result<ExecResult> {
    session.shared.live()?;
    let command = exec.shown();
    let failed =
        |reason: &str, cause: MachineError| SandboxError::exec_transport_error(exec.shown(), reason).because(cause);
    let mut request = Command::new(exec.argv.clone()).deadline(timeout);
    request.env = exec.env.clone();
    request.stdin = exec.stdin.is_some();
    request.user = session.user.clone();
    let cwd = exec.cwd.as_deref().unwrap_or(session.shared.paths.root().as_os_str());
    request.cwd = Some(session.shared.paths.target(cwd, Intent::Read)?.path);
    let begun = Instant::now();
    let until = begun + timeout + GRACE;
    let spawned = timeout_at(until, session.shared.machine.spawn(request)).await;
    let silent = || MachineError::transport("spawn", "the machine does not respond");
    let process = spawned.unwrap_or_else(|_| Err(silent())).map_err(|cause| failed("it cannot be started", cause))?;
    let limit = exec.output_limit.unwrap_or(session.shared.limits.exec_output);
    let collected = timeout_at(until, collect(process, exec.stdin.clone(), limit)).await;
    let (exit, mut streams) =
        collected.unwrap_or_else(|_| Err(silent())).map_err(|cause| failed("the connection to it was lost", cause))?;
    let (stdout, stdout_omitted) = streams[0].take();
    let (stderr, stderr_omitted) = streams[1].take();
    let secrets = session.shared.secrets.clone();
    if exit.reason == ExitReason::Deadline {
        let (stdout, stderr) = (clipped(&stdout, &secrets), clipped(&stderr, &secrets));
        return Err(SandboxError::exec_timeout(command, timeout.as_secs_f64(), stdout, stderr));
    }
    let duration = begun.elapsed();
    Ok(ExecResult { stdout, stderr, stdout_omitted, stderr_omitted, exit, duration, command, secrets })
}

/// The output of a command, shortened for an error message. Secrets are hidden before the cut, which could leave half a
/// secret.
fn clipped(bytes: &[u8], secrets: &SecretStore) -> String {
    truncate_bytes(&secrets.redact(&String::from_utf8_lossy(bytes)), 8 << 10)
}

/// Sends input to a process and collects its output until it exits. Dropping this future drops the process, which kills
/// it.
async fn collect(
    mut process: Process,
    input: Option<Bytes>,
    limit: usize,
) -> Result<(Exit, [HeadTail; 2]), MachineError> {
    let mut streams = [HeadTail::new(limit), HeadTail::new(limit)];
    let stdin = process.stdin.take();
    let feed = async {
        if let (Some(stdin), Some(input)) = (stdin, input) {
            let _the_command_may_not_read_it = stdin.send(input).await;
        }
        std::future::pending::<()>().await;
    };
    let follow = async {
        let mut exit = None;
        let mut closing = None;
        loop {
            let next = match closing {
                None => process.output.recv().await,
                Some(until) => timeout_at(until, process.output.recv()).await.unwrap_or(None),
            };
            match next {
                Some(Ok(Output::Stdout(bytes))) => streams[0].push(&bytes),
                Some(Ok(Output::Stderr(bytes))) => streams[1].push(&bytes),
                // Only adopted commands report omitted output.
                Some(Ok(Output::Omitted(_))) => {}
                Some(Ok(Output::Exit(how))) => {
                    exit = Some(how);
                    closing = Some(Instant::now() + AFTER_EXIT);
                }
                Some(Err(error)) if exit.is_none() => return Err(error),
                Some(Err(_)) | None => return exit.ok_or(MachineError::Gone),
            }
        }
    };
    let exit = tokio::select! {
        exit = follow => exit?,
        () = feed => return Err(MachineError::Gone),
    };
    Ok((exit, streams))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_in_an_error_contains_no_part_of_a_secret() {
        let secrets = SecretStore::new().with("TOKEN", "first-half-second-half");
        for before in 4000..4200 {
            let text = format!("{}first-half-second-half{}", "x".repeat(before), "y".repeat(9000));
            let shown = clipped(text.as_bytes(), &secrets);
            assert!(!shown.contains("first") && shown.contains("truncated"), "{before}: {shown}");
        }
    }
}
