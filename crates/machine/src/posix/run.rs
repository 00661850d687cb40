//! Running one shell script on a machine and reading its bounded output or its error.

use std::{ffi::OsString, io, time::Duration};

use bytes::{Bytes, BytesMut};
use tokio::time::{Instant, timeout_at};

use super::script;
use crate::{Command, Exit, ExitReason, Machine, MachineError, MachinePath, Output, Process, Result, Target};

/// Deadline of a script; it is long because trees can be large.
const DEADLINE: Duration = Duration::from_secs(3600);
/// How long to wait for output after the exit, if another process keeps the stream open.
const STRAGGLERS: Duration = Duration::from_millis(50);
/// Bytes of standard error that are stored; the oldest are dropped.
const STDERR_LIMIT: usize = 16 << 10;

/// A script with its arguments, and the path that it works on (two paths for a rename).
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) action: &'static str,
    pub(super) paths: [MachinePath; 2],
    command: Command,
}

impl Call {
    /// The script for this target. Its first argument is [`Target::beneath`], or empty.
    pub(super) fn new(action: &'static str, target: &Target, text: &str) -> Result<Self> {
        if target.group.is_some() {
            return Err(MachineError::Unsupported("give what is made to a group"));
        }
        let argv = ["sh".into(), "-c".into(), format!("{}{text}", script::PRELUDE), "sh".into()];
        // Not the workspace: it may not exist.
        let command = Command::new(argv).cwd(MachinePath::root()).deadline(DEADLINE);
        let command = Command { user: target.user.clone(), ..command };
        Self { action, paths: [target.path.clone(), target.path.clone()], command }.beneath(target)
    }

    /// Adds the target of the new name, for a rename.
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

    pub(super) fn arg(mut self, argument: impl Into<OsString>) -> Self {
        self.command.argv.push(argument.into());
        self
    }

    pub(super) fn args(mut self, arguments: &[OsString]) -> Self {
        self.command.argv.extend_from_slice(arguments);
        self
    }

    /// Gives the script a standard input.
    pub(super) fn stdin(mut self) -> Self {
        self.command.stdin = true;
        self
    }

    pub(super) async fn start<M: Machine + ?Sized>(&self, machine: &M) -> Result<Process> {
        machine.spawn(self.command.clone()).await
    }

    /// Runs the script and returns its standard output, at most `limit` bytes.
    pub(super) async fn run<M: Machine + ?Sized>(&self, machine: &M, limit: usize) -> Result<Bytes> {
        let mut events = Events::new(self.start(machine).await?);
        let mut stdout = BytesMut::new();
        while let Some(piece) = events.next().await? {
            if stdout.len() + piece.len() > limit {
                let reason = format!("to {} {} needs more than {limit} bytes", self.action, self.paths[0]);
                return Err(MachineError::Exhausted { what: "the buffer".to_owned(), reason });
            }
            stdout.extend_from_slice(&piece);
        }
        self.check(&events)?;
        Ok(stdout.freeze())
    }

    /// Converts the exit of the script into a result.
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

/// A running script: a stream of its standard output that also collects its standard error and exit.
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

    /// Takes the script's standard input; dropping it closes the input.
    pub(super) fn take_stdin(&mut self) -> Option<tokio::sync::mpsc::Sender<Bytes>> {
        self.process.stdin.take()
    }

    /// The next bytes of standard output; `None` after the script has exited and its output ended.
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
                Output::Stderr(bytes) => self.push_stderr(&bytes),
                // Only adopted commands have it.
                Output::Omitted(_) => {}
                Output::Exit(exit) => {
                    self.exit = Some(exit);
                    self.until = Instant::now() + STRAGGLERS;
                }
            }
        }
    }

    fn push_stderr(&mut self, bytes: &[u8]) {
        self.stderr.extend_from_slice(bytes);
        let surplus = self.stderr.len().saturating_sub(STDERR_LIMIT);
        let _oldest = self.stderr.split_to(surplus);
    }
}

/// Converts the error output of a tool into the kind of error that fits. Tools print the system's error text at the end of a
/// line, after the file name, which is arbitrary text.
pub(super) fn fault(action: &'static str, path: &MachinePath, stderr: &[u8]) -> MachineError {
    const TEXTS: [(&str, io::ErrorKind); 10] = [
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
    let stderr = String::from_utf8_lossy(stderr);
    // The last line with a known text: some tools print a general failure after it.
    let known = stderr.lines().rev().find_map(|line| {
        let (_, kind) = TEXTS.iter().find(|(text, _)| line.trim_end().ends_with(text))?;
        Some((*kind, line))
    });
    let unknown = || (io::ErrorKind::Other, stderr.lines().last().unwrap_or("the tool printed no error"));
    let (kind, line) = known.unwrap_or_else(unknown);
    MachineError::from_io(action, path, io::Error::new(kind, line.to_owned()))
}

fn leaves(path: &MachinePath) -> MachineError {
    MachineError::Denied { path: path.clone(), reason: "the path leaves the directory it must stay in".to_owned() }
}
