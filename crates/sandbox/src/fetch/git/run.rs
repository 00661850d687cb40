//! Runs the git commands of a clone in its machine, and watches the disk usage meanwhile.

use std::time::Duration;

use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::BytesMut;
use sandbar_machine::{Command, EntryKind, Exit, ExitReason, MachineError, MachinePath, Output, ScanOptions, Target};
use tokio::time::{Instant, sleep, timeout};

use super::{
    CloneMachine, GitRequest, Plan, Source,
    source::{ALLOWED_BY, UNREACHABLE_PROXY},
};
use crate::{Op, Result, SandboxError, error::Outside};

/// Bytes of each stream that are captured: the beginning of standard output, the end of standard error.
const CAPTURE_LIMIT: usize = 8 << 10;
/// Time for output that arrives after a command has exited.
const OUTPUT_GRACE: Duration = Duration::from_millis(50);
/// Interval of measuring the disk usage. Measuring takes at most a tenth of the time.
const MEASURE_INTERVAL: Duration = Duration::from_millis(500);

/// One clone in progress.
pub(super) struct Worker<'a> {
    pub(super) sandbox: &'a CloneMachine,
    pub(super) request: &'a GitRequest,
    pub(super) source: &'a Source,
    pub(super) plan: &'a Plan,
}

impl Worker<'_> {
    /// Runs one command, which must succeed, and returns the beginning of its output.
    pub(super) async fn run(&self, command: Command) -> Result<BytesMut> {
        // Dropping the future of a command kills the command.
        tokio::select! {
            ended = self.follow(command) => {
                let (exit, stdout, stderr) = ended.map_err(|error| {
                    self.source.error("lost contact with the machine that clones").because(error)
                })?;
                self.judge(exit, &stderr).map(|()| stdout)
            }
            error = self.wait_until_too_large() => Err(error),
        }
    }

    /// The same for a command that prints one line.
    pub(super) async fn text(&self, command: Command) -> Result<String> {
        Ok(String::from_utf8_lossy(&self.run(command).await?).trim().to_owned())
    }

    async fn follow(&self, command: Command) -> Result<(Exit, BytesMut, BytesMut), MachineError> {
        let mut process = self.sandbox.machine.spawn(command.deadline(self.request.limits.time)).await?;
        let (mut stdout, mut stderr) = (BytesMut::new(), BytesMut::new());
        let mut exit = None;
        loop {
            let event = match exit {
                None => process.output.recv().await.ok_or(MachineError::Gone)?,
                Some(exit) => match timeout(OUTPUT_GRACE, process.output.recv()).await {
                    Ok(Some(event)) => event,
                    Ok(None) | Err(_) => return Ok((exit, stdout, stderr)),
                },
            };
            match event? {
                Output::Stdout(bytes) => {
                    stdout.extend_from_slice(&bytes[..bytes.len().min(CAPTURE_LIMIT - stdout.len())]);
                }
                Output::Stderr(bytes) => {
                    stderr.extend_from_slice(&bytes);
                    let surplus = stderr.len().saturating_sub(CAPTURE_LIMIT);
                    drop(stderr.split_to(surplus));
                }
                // Occurs for adopted commands only.
                Output::Omitted(_) => {}
                Output::Exit(ended) => exit = Some(ended),
            }
        }
    }

    fn judge(&self, exit: Exit, stderr: &[u8]) -> Result<()> {
        let message = self.readable(stderr);
        match exit {
            Exit { code: 0, reason: ExitReason::Exited } => Ok(()),
            Exit { code: 127, reason: ExitReason::Exited } => {
                let error = SandboxError::git_missing_in_image(&self.source.shown);
                Err(if message.is_empty() { error } else { error.because(message) })
            }
            Exit { code, .. } if message.is_empty() => Err(self.source.error(&format!("git ended with {code}"))),
            // Git's message if the server requires authentication and git cannot prompt.
            Exit { .. } if message.contains("could not read Username") => {
                let hint = match self.request.auth {
                    Some(_) => "the server does not accept the secret",
                    None => "it does not exist, or the server requires authentication; name a secret",
                };
                Err(self.source.error(&format!("{hint}\n{message}")).because(Outside::lasting()))
            }
            Exit { .. } if message.contains(UNREACHABLE_PROXY) => {
                let hint = "it leads to another server, which may not be public";
                Err(self.source.error(&format!("{hint}{ALLOWED_BY}\n{message}")).because(Outside::lasting()))
            }
            Exit { .. } => Err(self.source.error(&message)),
        }
    }

    /// Git's message without secrets and control characters.
    fn readable(&self, stderr: &[u8]) -> String {
        let text = String::from_utf8_lossy(stderr).replace('\r', "\n");
        let text: String = text.chars().filter(|letter| *letter == '\n' || !letter.is_control()).collect();
        let Some(secret) = &self.request.auth else { return text.trim().to_owned() };
        let secret = secret.expose();
        let encoded = [BASE64_STANDARD.encode(secret), BASE64_STANDARD.encode(format!("x-access-token:{secret}"))];
        let forms = encoded.iter().map(String::as_str).chain([secret]).chain(secret.split(':'));
        let text = forms.filter(|form| form.len() >= 4).fold(text, |text, form| text.replace(form, "[secret]"));
        text.trim().to_owned()
    }

    /// Returns an error as soon as the clone is too large.
    async fn wait_until_too_large(&self) -> SandboxError {
        let mut pause = MEASURE_INTERVAL;
        loop {
            sleep(pause).await;
            let begun = Instant::now();
            match self.measure().await {
                Err(error @ SandboxError::LimitExceeded { .. }) => return error,
                // Files change while git works, so a scan can fail; the last measurement is after all commands.
                Ok(_) | Err(_) => pause = MEASURE_INTERVAL.max(begun.elapsed().saturating_mul(10)),
            }
        }
    }

    /// Bytes and entries of the clone. Fails if they are over the limits.
    pub(super) async fn measure(&self) -> Result<(u64, u64)> {
        let limits = self.request.limits;
        let too_much = |limit, actual| Err(SandboxError::limit_exceeded(&self.source.shown, limit, actual));
        let root = Target::from(&self.plan.clone);
        let index = match self.sandbox.machine.scan(&root, &ScanOptions::default()).await {
            Ok(index) => index,
            Err(MachineError::NotFound(_)) => return Ok((0, 0)),
            Err(error @ MachineError::Exhausted { .. }) => {
                let actual = limits.entries.saturating_add(1);
                return too_much(limits.entries, actual).map_err(|limit| limit.because(error));
            }
            Err(error) => return Err(SandboxError::machine(Op::List, &self.source.shown, error)),
        };
        let files = index.entries.iter().filter(|entry| entry.entry.kind == EntryKind::File);
        let bytes = files.fold(0_u64, |sum, file| sum.saturating_add(file.entry.size));
        let entries = index.entries.len() as u64;
        if bytes > limits.bytes {
            return too_much(limits.bytes, bytes);
        }
        if entries > limits.entries {
            return too_much(limits.entries, entries);
        }
        Ok((bytes, entries))
    }

    /// The requested directory. Links must not lead out of the clone.
    pub(super) async fn subdirectory(&self) -> Result<MachinePath> {
        let clone = &self.plan.clone;
        let Some(subpath) = &self.source.subpath else { return Ok(clone.clone()) };
        let root =
            clone.join(subpath.as_str()).map_err(|error| self.source.subpath_error("malformed").because(error))?;
        let target = Target::from(&root).beneath(clone.clone());
        match self.sandbox.machine.list(&target).await {
            Ok(_) => Ok(root),
            Err(error) => {
                let reason = match &error {
                    MachineError::NotFound(_) => "missing",
                    MachineError::Denied { .. } => "leads_out",
                    MachineError::File { .. } => "not_a_directory",
                    _ => "unreadable",
                };
                Err(self.source.subpath_error(reason).because(error))
            }
        }
    }
}
