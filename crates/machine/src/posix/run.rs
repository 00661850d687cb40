//! One script run to its end: what it printed, within limits, or why it failed.

use std::{ffi::OsString, io, time::Duration};

use bytes::{Bytes, BytesMut};
use tokio::time::{Instant, timeout_at};

use super::script;
use crate::{Command, Exit, ExitReason, Machine, MachineError, MachinePath, Output, Process, Result, Target};

/// How long any script may run; trees can be large.
const DEADLINE: Duration = Duration::from_secs(3600);
/// How long output may still arrive after the exit, should something keep the stream open.
const STRAGGLERS: Duration = Duration::from_millis(50);
/// How much of standard error is kept, from its end.
const STDERR_LIMIT: usize = 16 << 10;

/// A script with its arguments, about one path (or, to rename, two).
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) action: &'static str,
    pub(super) paths: [MachinePath; 2],
    command: Command,
}

impl Call {
    /// The script on this target; the first argument is what must not be left.
    pub(super) fn new(action: &'static str, target: &Target, text: &str) -> Result<Self> {
        if target.group.is_some() {
            return Err(MachineError::Unsupported("give what is made to a group"));
        }
        let argv = ["sh".into(), "-c".into(), format!("{}{text}", script::PRELUDE), "sh".into()];
        // Not the workspace, which may be what is missing.
        let command = Command::new(argv).cwd(MachinePath::root()).deadline(DEADLINE);
        let command = Command { user: target.user.clone(), ..command };
        Self { action, paths: [target.path.clone(), target.path.clone()], command }.beneath(target)
    }

    /// Adds the target that a rename leads to.
    pub(super) fn other(mut self, target: &Target) -> Result<Self> {
        if target.user != self.command.user {
            return Err(MachineError::invalid("the users", "must be the same for both names"));
        }
        self.paths[1] = target.path.clone();
        self.beneath(target)
    }

    fn beneath(self, target: &Target) -> Result<Self> {
        match &target.beneath {
            None => Ok(self.arg("")),
            Some(root) if target.path.is_within(root) => Ok(self.arg(root)),
            Some(_) => Err(leaves(&target.path)),
        }
    }

    /// Adds an argument.
    pub(super) fn arg(mut self, argument: impl Into<OsString>) -> Self {
        self.command.argv.push(argument.into());
        self
    }

    /// Adds arguments.
    pub(super) fn args(mut self, arguments: &[OsString]) -> Self {
        self.command.argv.extend_from_slice(arguments);
        self
    }

    /// Gives it a standard input.
    pub(super) fn stdin(mut self) -> Self {
        self.command.stdin = true;
        self
    }

    /// Starts it.
    pub(super) async fn start<M: Machine + ?Sized>(&self, machine: &M) -> Result<Process> {
        machine.spawn(self.command.clone()).await
    }

    /// Runs it and returns what it printed, if that is at most `limit` bytes and it succeeded.
    pub(super) async fn run<M: Machine + ?Sized>(&self, machine: &M, limit: usize) -> Result<Bytes> {
        let mut events = Events::new(self.start(machine).await?);
        let mut stdout = BytesMut::new();
        while let Some(piece) = events.next().await? {
            if stdout.len() + piece.len() > limit {
                let reason = format!("to {} {} takes more than {limit} bytes", self.action, self.paths[0]);
                return Err(MachineError::Exhausted { what: "the buffer".to_owned(), reason });
            }
            stdout.extend_from_slice(&piece);
        }
        self.check(&events)?;
        Ok(stdout.freeze())
    }

    /// Why it failed, if it did.
    pub(super) fn check(&self, events: &Events) -> Result<()> {
        let Some(exit) = events.exit else { return Err(MachineError::Gone) };
        let [path, other] = &self.paths;
        match (exit.reason, exit.code) {
            (ExitReason::Exited, 0) => Ok(()),
            (ExitReason::Deadline, _) => {
                let reason = format!("to {} {path} took longer than {} s", self.action, DEADLINE.as_secs());
                Err(MachineError::Exhausted { what: "time".to_owned(), reason })
            }
            (ExitReason::Exited, 21) => Err(leaves(path)),
            (ExitReason::Exited, 22) => {
                Err(MachineError::Denied { path: path.clone(), reason: "a symbolic link is there".to_owned() })
            }
            (ExitReason::Exited, 23) => {
                Err(MachineError::transport(self.action, format!("{path}: its uploaded bytes are not on the machine")))
            }
            (ExitReason::Exited, 31) => Err(leaves(other)),
            (ExitReason::Exited, 30) => Err(fault(self.action, other, &events.stderr)),
            (ExitReason::Exited, 126 | 127) => Err(MachineError::Unsupported("work on files without sh and its tools")),
            (reason @ (ExitReason::Memory | ExitReason::Disk), _) => {
                let what = if reason == ExitReason::Memory { "memory" } else { "disk space" }.to_owned();
                Err(MachineError::Exhausted { what, reason: format!("{path}: {}", reason.limit().unwrap_or_default()) })
            }
            (ExitReason::Exited | ExitReason::Signaled, _) => Err(fault(self.action, path, &events.stderr)),
        }
    }
}

/// A running script's standard output, with its error output and exit set aside.
#[derive(Debug)]
pub(super) struct Events {
    process: Process,
    pub(super) exit: Option<Exit>,
    pub(super) stderr: BytesMut,
    until: Instant,
}

impl Events {
    pub(super) fn new(process: Process) -> Self {
        Self { process, exit: None, stderr: BytesMut::new(), until: Instant::now() }
    }

    /// Closes the script's standard input, or hands it over.
    pub(super) fn take_stdin(&mut self) -> Option<tokio::sync::mpsc::Sender<Bytes>> {
        self.process.stdin.take()
    }

    /// The next bytes of standard output; `None` once the script has exited and said all it had to say.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>> {
        loop {
            let event = match self.exit {
                None => self.process.output.recv().await.ok_or(MachineError::Gone)?,
                Some(_) => match timeout_at(self.until, self.process.output.recv()).await {
                    Ok(Some(event)) => event,
                    Ok(None) | Err(_) => return Ok(None),
                },
            };
            match event? {
                Output::Stdout(bytes) => return Ok(Some(bytes)),
                Output::Stderr(bytes) => self.complain(&bytes),
                // Said of adopted commands only.
                Output::Omitted(_) => {}
                Output::Exit(exit) => {
                    self.exit = Some(exit);
                    self.until = Instant::now() + STRAGGLERS;
                }
            }
        }
    }

    fn complain(&mut self, bytes: &[u8]) {
        self.stderr.extend_from_slice(bytes);
        let surplus = self.stderr.len().saturating_sub(STDERR_LIMIT);
        let _oldest = self.stderr.split_to(surplus);
    }
}

/// The tools' complaint as the kind a caller can branch on. They end it in the system's own words, after the name,
/// which could be anything.
pub(super) fn fault(action: &'static str, path: &MachinePath, stderr: &[u8]) -> MachineError {
    const WORDS: [(&str, io::ErrorKind); 10] = [
        ("No such file or directory", io::ErrorKind::NotFound),
        ("Permission denied", io::ErrorKind::PermissionDenied),
        ("Operation not permitted", io::ErrorKind::PermissionDenied),
        ("Read-only file system", io::ErrorKind::ReadOnlyFilesystem),
        ("No space left on device", io::ErrorKind::StorageFull),
        ("Disk quota exceeded", io::ErrorKind::QuotaExceeded),
        ("Not a directory", io::ErrorKind::NotADirectory),
        ("Is a directory", io::ErrorKind::IsADirectory),
        ("File exists", io::ErrorKind::AlreadyExists),
        ("Directory not empty", io::ErrorKind::DirectoryNotEmpty),
    ];
    let said = String::from_utf8_lossy(stderr);
    // The last line that says why; after it, some tools only say that they failed.
    let telling = said.lines().rev().find_map(|line| {
        let (_, kind) = WORDS.iter().find(|(words, _)| line.trim_end().ends_with(words))?;
        Some((*kind, line))
    });
    let silent = || (io::ErrorKind::Other, said.lines().last().unwrap_or("the tool did not say why"));
    let (kind, line) = telling.unwrap_or_else(silent);
    MachineError::from_io(action, path, io::Error::new(kind, line.to_owned()))
}

fn leaves(path: &MachinePath) -> MachineError {
    MachineError::Denied { path: path.clone(), reason: "the path leaves the directory it must stay in".to_owned() }
}
