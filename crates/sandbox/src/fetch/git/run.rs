//! Git at work in its machine: each command followed to its end, and the disk it takes watched meanwhile.

use std::time::Duration;

use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::BytesMut;
use sandbar_machine::{Command, EntryKind, Exit, ExitReason, MachineError, MachinePath, Output, ScanOptions, Target};
use tokio::time::{Instant, sleep, timeout};

use super::{
    GitRequest, Plan, Source, Throwaway,
    source::{ALLOWED_BY, NOWHERE},
};
use crate::{Op, Result, SandboxError, error::Outside};

/// How much of each stream is kept: of its output the beginning, of its errors the end.
const KEPT: usize = 8 << 10;
/// How long output may still arrive after a command has ended.
const STRAGGLERS: Duration = Duration::from_millis(50);
/// How often the disk is looked at. Looking takes a tenth of the time at most.
const GLANCE: Duration = Duration::from_millis(500);

/// One clone in progress.
pub(super) struct Worker<'a> {
    pub(super) place: &'a Throwaway,
    pub(super) request: &'a GitRequest,
    pub(super) source: &'a Source,
    pub(super) plan: &'a Plan,
}

impl Worker<'_> {
    /// Runs one command, which must succeed, and returns what it said first.
    pub(super) async fn run(&self, command: Command) -> Result<BytesMut> {
        // Whichever comes second is dropped, and a command that is dropped is killed.
        tokio::select! {
            ended = self.follow(command) => {
                let (exit, said, complaint) = ended.map_err(|error| {
                    self.source.error("lost contact with the machine that clones").because(error)
                })?;
                self.judge(exit, &complaint).map(|()| said)
            }
            error = self.outgrown() => Err(error),
        }
    }

    /// The same for a command that says one line.
    pub(super) async fn text(&self, command: Command) -> Result<String> {
        Ok(String::from_utf8_lossy(&self.run(command).await?).trim().to_owned())
    }

    async fn follow(&self, command: Command) -> Result<(Exit, BytesMut, BytesMut), MachineError> {
        let mut process = self.place.machine.spawn(command.deadline(self.request.limits.time)).await?;
        let (mut said, mut complaint) = (BytesMut::new(), BytesMut::new());
        let mut exit = None;
        loop {
            let event = match exit {
                None => process.output.recv().await.ok_or(MachineError::Gone)?,
                Some(exit) => match timeout(STRAGGLERS, process.output.recv()).await {
                    Ok(Some(event)) => event,
                    Ok(None) | Err(_) => return Ok((exit, said, complaint)),
                },
            };
            match event? {
                Output::Stdout(bytes) => said.extend_from_slice(&bytes[..bytes.len().min(KEPT - said.len())]),
                Output::Stderr(bytes) => {
                    complaint.extend_from_slice(&bytes);
                    let surplus = complaint.len().saturating_sub(KEPT);
                    drop(complaint.split_to(surplus));
                }
                // Said of adopted commands only.
                Output::Omitted(_) => {}
                Output::Exit(ended) => exit = Some(ended),
            }
        }
    }

    fn judge(&self, exit: Exit, complaint: &[u8]) -> Result<()> {
        let said = self.readable(complaint);
        match exit {
            Exit { code: 0, reason: ExitReason::Exited } => Ok(()),
            Exit { code: 127, reason: ExitReason::Exited } => {
                let error = SandboxError::git_missing_in_image(&self.source.shown);
                Err(if said.is_empty() { error } else { error.because(said) })
            }
            Exit { code, .. } if said.is_empty() => Err(self.source.error(&format!("git ended with {code}"))),
            // What git says when a server wants to know who is asking and nobody can be asked.
            Exit { .. } if said.contains("could not read Username") => {
                let hint = match self.request.auth {
                    Some(_) => "the server does not accept the secret",
                    None => "it is not there, or the server wants to know who is asking: name a secret",
                };
                Err(self.source.error(&format!("{hint}\n{said}")).because(Outside::lasting()))
            }
            Exit { .. } if said.contains(NOWHERE) => {
                let hint = "it leads to another server, which need not be a public one";
                Err(self.source.error(&format!("{hint}{ALLOWED_BY}\n{said}")).because(Outside::lasting()))
            }
            Exit { .. } => Err(self.source.error(&said)),
        }
    }

    /// What git said, without secrets and without what would move a terminal's cursor.
    fn readable(&self, complaint: &[u8]) -> String {
        let text = String::from_utf8_lossy(complaint).replace('\r', "\n");
        let text: String = text.chars().filter(|letter| *letter == '\n' || !letter.is_control()).collect();
        let Some(secret) = &self.request.auth else { return text.trim().to_owned() };
        let secret = secret.expose();
        let encoded = [BASE64_STANDARD.encode(secret), BASE64_STANDARD.encode(format!("x-access-token:{secret}"))];
        let forms = encoded.iter().map(String::as_str).chain([secret]).chain(secret.split(':'));
        let text = forms.filter(|form| form.len() >= 4).fold(text, |text, form| text.replace(form, "[secret]"));
        text.trim().to_owned()
    }

    /// Ends when the clone has become too large.
    async fn outgrown(&self) -> SandboxError {
        let mut pause = GLANCE;
        loop {
            sleep(pause).await;
            let begun = Instant::now();
            match self.measure().await {
                Err(error @ SandboxError::LimitExceeded { .. }) => return error,
                // Files come and go while git works; what cannot be seen now will be seen at the end.
                Ok(_) | Err(_) => pause = GLANCE.max(begun.elapsed().saturating_mul(10)),
            }
        }
    }

    /// How many bytes and entries the clone has, if it has no more than it may.
    pub(super) async fn measure(&self) -> Result<(u64, u64)> {
        let limits = self.request.limits;
        let too_much = |limit, actual| Err(SandboxError::limit_exceeded(&self.source.shown, limit, actual));
        let root = Target::from(&self.plan.clone);
        let index = match self.place.machine.scan(&root, &ScanOptions::default()).await {
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

    /// The directory that was asked for, which links must not lead out of the clone.
    pub(super) async fn subdirectory(&self) -> Result<MachinePath> {
        let clone = &self.plan.clone;
        let Some(subpath) = &self.source.subpath else { return Ok(clone.clone()) };
        let root =
            clone.join(subpath.as_str()).map_err(|error| self.source.subpath_error("malformed").because(error))?;
        let target = Target::from(&root).beneath(clone.clone());
        match self.place.machine.list(&target).await {
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
