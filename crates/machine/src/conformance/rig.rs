//! A machine under test, with short methods for the promises.

use std::{ffi::OsStr, future::Future, sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use tokio::time::timeout;

use crate::{
    Command, Control, DirEntry, Exit, Machine, MachineError, MachinePath, MachineSpec, Output, Process, Result,
    SandboxClient, Signal, Target, collect, once,
    tar::{self, Kind, Member},
};

/// Longest time that any operation may take on a busy host.
pub(super) const SOON: Duration = Duration::from_secs(150);
/// More than any promise reads.
pub(super) const PLENTY: usize = 64 << 20;

/// Waits for the work, and panics after [`SOON`].
#[track_caller]
pub(super) fn soon<T>(what: &str, work: impl Future<Output = T>) -> impl Future<Output = T> {
    let panic = format!("{what}: still waiting after {SOON:?}");
    async move { timeout(SOON, work).await.expect(&panic) }
}

/// A machine under test.
#[derive(Clone, Debug)]
pub(super) struct Rig {
    pub(super) machine: Arc<dyn Machine>,
}

/// The first line of a file, once it is there.
pub(super) async fn once_written(rig: &Rig, path: &MachinePath) -> String {
    soon("a file that another process writes", async {
        loop {
            if let Ok(bytes) = rig.read(&Target::from(path)).await {
                return String::from_utf8_lossy(&bytes).trim().to_owned();
            }
            pause(20).await;
        }
    })
    .await
}

/// A command that has ended.
#[derive(Clone, Debug)]
pub(super) struct Ran {
    pub(super) stdout: Bytes,
    pub(super) stderr: Bytes,
    pub(super) exit: Exit,
}

impl Ran {
    /// Standard output as text.
    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }
}

impl Rig {
    pub(super) async fn new(client: &dyn SandboxClient) -> Self {
        Self::with(client, MachineSpec::default()).await
    }

    pub(super) async fn with(client: &dyn SandboxClient, spec: MachineSpec) -> Self {
        let machine = soon("create", client.create(spec)).await.expect("a machine is created");
        Self { machine }
    }

    /// A path in the workspace.
    pub(super) fn path(&self, relative: impl AsRef<OsStr>) -> MachinePath {
        self.machine.features().workspace.join(relative).expect("a relative path")
    }

    /// The same as a target.
    pub(super) fn at(&self, relative: impl AsRef<OsStr>) -> Target {
        Target::from(self.path(relative))
    }

    /// The same, not to leave the workspace.
    pub(super) fn beneath(&self, relative: impl AsRef<OsStr>) -> Target {
        self.at(relative).beneath(self.machine.features().workspace.clone())
    }

    pub(super) async fn spawn(&self, command: Command) -> Process {
        soon("spawn", self.machine.spawn(command)).await.expect("the command starts")
    }

    pub(super) async fn run(&self, command: Command) -> Ran {
        finish(self.spawn(command).await).await
    }

    /// Runs a script that must succeed.
    pub(super) async fn sh(&self, script: &str) -> Ran {
        let ran = self.run(shell(script)).await;
        assert!(ran.exit.success(), "{script}: {:?}, {}", ran.exit, String::from_utf8_lossy(&ran.stderr));
        ran
    }

    pub(super) async fn put(&self, relative: impl AsRef<OsStr>, bytes: impl Into<Bytes>) {
        let target = self.at(relative);
        soon("write", self.machine.write(&target, once(bytes))).await.expect("the file is written");
    }

    /// The error of a write that must fail.
    pub(super) async fn put_fails(&self, target: &Target) -> MachineError {
        soon("write", self.machine.write(target, once("x"))).await.expect_err("the write is refused")
    }

    /// A file's bytes; an error may come at once or from the stream.
    pub(super) async fn read(&self, target: &Target) -> Result<Bytes> {
        soon("read", async { collect(self.machine.read(target).await?, PLENTY).await }).await
    }

    pub(super) async fn get(&self, relative: impl AsRef<OsStr>) -> Bytes {
        self.read(&self.at(relative)).await.expect("the file is read")
    }

    pub(super) async fn stat(&self, relative: impl AsRef<OsStr>) -> Option<DirEntry> {
        soon("stat", self.machine.stat(&self.at(relative))).await.expect("the path can be looked at")
    }

    pub(super) async fn make_dir(&self, relative: impl AsRef<OsStr>) {
        soon("make_dir", self.machine.make_dir(&self.at(relative))).await.expect("the directory is made");
    }

    /// Unpacks members into the workspace. The way to make links without running commands.
    pub(super) async fn unpack(&self, members: &[(Member, &[u8])]) -> Result<()> {
        self.unpack_at("", members).await
    }

    pub(super) async fn unpack_at(&self, relative: &str, members: &[(Member, &[u8])]) -> Result<()> {
        soon("unpack", self.machine.unpack(&self.at(relative), once(archive(members)))).await
    }

    /// Makes a symbolic link in the workspace.
    pub(super) async fn link(&self, relative: &str, to: impl AsRef<OsStr>) {
        let member = symlink(relative.as_bytes(), to.as_ref().as_encoded_bytes());
        self.unpack(&[(member, b"")]).await.expect("the link is made");
    }

    /// Waits until a file has something in it.
    pub(super) async fn appears(&self, relative: &str) {
        soon(relative, async {
            while self.stat(relative).await.is_none_or(|entry| entry.size == 0) {
                pause(50).await;
            }
        })
        .await;
    }

    /// Waits until a file that something keeps writing to has stopped growing.
    pub(super) async fn stops_growing(&self, relative: &str) {
        let size = || async { self.stat(relative).await.map_or(0, |entry| entry.size) };
        soon("what should have been killed still writes", async {
            let mut before = size().await;
            loop {
                pause(1000).await;
                let after = size().await;
                if after == before {
                    return;
                }
                before = after;
            }
        })
        .await;
    }
}

/// A script for `sh`.
pub(super) fn shell(script: &str) -> Command {
    Command::new(["sh", "-c", script])
}

/// A shell line that starts a daemon which left its session and parent, and writes to `file` for as long as it lives.
pub(super) fn daemon(file: &str) -> String {
    let beat = format!("while :; do echo x >>{file}; sleep 0.05; done");
    format!("( setsid sh -c '{beat}' </dev/null >/dev/null 2>&1 & )")
}

pub(super) async fn pause(milliseconds: u64) {
    tokio::time::sleep(Duration::from_millis(milliseconds)).await;
}

/// Reads a process to the end of its output. There must be exactly one exit.
pub(super) async fn finish(mut process: Process) -> Ran {
    let (mut stdout, mut stderr, mut exit) = (BytesMut::new(), BytesMut::new(), None);
    drop(process.stdin.take());
    while let Some(output) = soon("output", process.output.recv()).await {
        match output.expect("the machine lives") {
            Output::Stdout(bytes) => stdout.extend_from_slice(&bytes),
            Output::Stderr(bytes) => stderr.extend_from_slice(&bytes),
            Output::Omitted(count) => panic!("{count} bytes were omitted"),
            Output::Exit(now) => assert_eq!(exit.replace(now), None, "the exit arrives once"),
        }
    }
    Ran { stdout: stdout.freeze(), stderr: stderr.freeze(), exit: exit.expect("an exit arrives") }
}

/// Waits for the exit alone.
pub(super) async fn exit(process: &mut Process) -> Exit {
    soon("the exit", async {
        loop {
            if let Output::Exit(exit) = process.output.recv().await.expect("an exit").expect("the machine lives") {
                return exit;
            }
        }
    })
    .await
}

/// Reads standard output until it contains these words.
pub(super) async fn until(process: &mut Process, words: &str) -> String {
    let mut seen = String::new();
    while !seen.contains(words) {
        let output = soon(words, process.output.recv()).await.unwrap_or_else(|| panic!("{words:?} after {seen:?}"));
        match output.expect("the machine lives") {
            Output::Stdout(bytes) => seen.push_str(&String::from_utf8_lossy(&bytes)),
            Output::Stderr(bytes) => panic!("{}", String::from_utf8_lossy(&bytes)),
            Output::Omitted(count) => panic!("{count} bytes were omitted before {words:?}"),
            Output::Exit(exit) => panic!("{exit:?} instead of {words:?}, after {seen:?}"),
        }
    }
    seen
}

pub(super) async fn signal(process: &Process, signal: Signal) {
    soon("signal", process.control.send(Control::Signal(signal))).await.expect("a running process takes signals");
}

pub(super) async fn send(process: &Process, bytes: impl Into<Bytes>) {
    let stdin = process.stdin.as_ref().expect("it has input");
    soon("stdin", stdin.send(bytes.into())).await.expect("a running process takes input");
}

/// A member of an archive.
pub(super) fn file(path: &[u8], mode: u32, content: &[u8]) -> Member {
    Member { size: content.len() as u64, ..Member::new(Kind::File, path, mode) }
}

pub(super) fn symlink(path: &[u8], to: &[u8]) -> Member {
    Member { link: to.to_vec(), ..Member::new(Kind::Symlink, path, 0o777) }
}

/// An archive of members with their contents.
pub(super) fn archive(members: &[(Member, &[u8])]) -> Bytes {
    let mut out = BytesMut::new();
    for (member, content) in members {
        out.extend_from_slice(&member.encode());
        out.extend_from_slice(content);
        out.resize(out.len() + tar::padding(member.size), 0);
    }
    out.extend_from_slice(&tar::end());
    out.freeze()
}
