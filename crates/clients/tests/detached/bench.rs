//! Shared functions of these tests: a place for machines, this program in other roles, and helpers.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command as HostCommand, Stdio},
    sync::Arc,
    time::Duration,
};

use bollard::query_parameters::RemoveContainerOptions;
use rustix::process::{Pid, Signal, kill_process};
use sandbar_clients::{Docker, UnixLocal};
use sandbar_guest::protocol::DOOR;
use sandbar_machine::{
    Command, Lifetime, Machine, MachineHandle, MachinePath, MachineSpec, Output, SandboxClient, Target,
};
use tokio::net::UnixStream;

use crate::docker::{DEBIAN, client, engine, left};

/// Variable with the role of the test `part` when this program starts itself.
pub(crate) const PART: &str = "SANDBAR_TEST_PART";
pub(crate) const PLACE: &str = "SANDBAR_TEST_PLACE";
pub(crate) const WHERE: &str = "SANDBAR_TEST_WHERE";

pub(crate) async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), what).await.expect("took longer than a minute")
}

pub(crate) async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..6000 {
        if is_so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{what}: not so after a minute");
}

/// Standard output of a script.
pub(crate) async fn printed(machine: &dyn Machine, script: &str) -> String {
    said_by(machine, Command::new(["sh", "-c", script])).await
}

/// Standard output of a command.
pub(crate) async fn said_by(machine: &dyn Machine, command: Command) -> String {
    let mut process = soon(machine.spawn(command)).await.expect("spawn");
    let mut text = Vec::new();
    while let Some(output) = soon(process.output.recv()).await {
        if let Output::Stdout(bytes) = output.expect("output") {
            text.extend_from_slice(&bytes);
        }
    }
    String::from_utf8(text).expect("text")
}

pub(crate) fn file(name: &str) -> Target {
    Target::from(MachinePath::workspace().join(name).expect("path"))
}

pub(crate) fn detached() -> MachineSpec {
    let env = [("DECLARED", "remembered")];
    MachineSpec::default().lifetime(Lifetime::Detached).env(env).ports([4321])
}

/// A place for machines, and the handle of the machine there.
pub(crate) struct Bench(pub(crate) tempfile::TempDir, Where);

/// Which client creates a bench's machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Where {
    ThisHost,
    Containers,
}

/// The client for a role at a place.
pub(crate) fn player(place: &Path) -> Arc<dyn SandboxClient> {
    match std::env::var(WHERE).as_deref() {
        Ok("Containers") => Arc::new(containers(place)),
        _ => Arc::new(UnixLocal::new().state_dir(place.join("state"))),
    }
}

fn containers(place: &Path) -> Docker {
    client(DEBIAN).label("sandbar.test", label(place))
}

fn label(place: &Path) -> &str {
    place.file_name().and_then(|name| name.to_str()).expect("a name")
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self::at(Where::ThisHost)
    }

    pub(crate) fn at(place: Where) -> Self {
        let dir = tempfile::Builder::new().prefix("sandbar-detached-").tempdir_in("/tmp").expect("a directory");
        Self(dir, place)
    }

    /// A client of this bench's kind.
    pub(crate) fn any_client(&self) -> Arc<dyn SandboxClient> {
        match self.1 {
            Where::ThisHost => Arc::new(self.client()),
            Where::Containers => Arc::new(containers(self.0.path())),
        }
    }

    /// What exists of machines: directories, or containers and volumes.
    pub(crate) async fn left(&self) -> Vec<String> {
        match self.1 {
            Where::ThisHost => self.machines().iter().map(|path| path.display().to_string()).collect(),
            Where::Containers => left(&format!("sandbar.test={}", label(self.0.path()))).await,
        }
    }

    /// Waits until nothing exists.
    pub(crate) async fn is_empty(&self) {
        for _ in 0..600 {
            if self.left().await.is_empty() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("left: {:?}", self.left().await);
    }

    /// The same, but removes machines without a known handle. One may appear long after its creator was killed.
    pub(crate) async fn is_empty_once_swept(&self) {
        for _ in 0..600 {
            if self.left().await.is_empty() {
                return;
            }
            self.sweep().await;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("left: {:?}", self.left().await);
    }

    /// Removes the machine without a known handle, if there is one.
    async fn sweep(&self) {
        match self.1 {
            // Removing its door ends it. A machine that is just ending may be gone.
            Where::ThisHost => {
                if let Some(machine) = self.machines().first() {
                    let _gone_already = fs::remove_file(machine.join(DOOR));
                }
            }
            Where::Containers => {
                for found in self.left().await {
                    let force = RemoveContainerOptions { force: true, v: true, ..RemoveContainerOptions::default() };
                    let _gone_or_a_volume = engine().remove_container(&found, Some(force)).await;
                }
            }
        }
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.0.path().join("state")
    }

    pub(crate) fn client(&self) -> UnixLocal {
        UnixLocal::new().state_dir(self.state())
    }

    pub(crate) fn machines(&self) -> Vec<PathBuf> {
        fs::read_dir(self.state()).map(|all| all.flatten().map(|entry| entry.path()).collect()).unwrap_or_default()
    }

    pub(crate) async fn create(&self) -> (MachineHandle, Processes) {
        let machine = soon(self.client().create(detached())).await.expect("create");
        (machine.handle(), self.processes().await)
    }

    /// The supervisor and PID 1 of the only machine here.
    pub(crate) async fn processes(&self) -> Processes {
        let door = self.machines().first().expect("a machine").join(DOOR);
        let stream = UnixStream::connect(door).await.expect("its user can connect");
        let supervisor = stream.peer_cred().expect("credentials").pid().expect("a number");
        let children = fs::read_to_string(format!("/proc/{supervisor}/task/{supervisor}/children"));
        let guest = children.expect("its children").split_whitespace().next().and_then(|pid| pid.parse().ok());
        Processes { supervisor, guest: guest.expect("a guest") }
    }

    /// Starts this program again, in another role.
    pub(crate) fn play(&self, part: &str) -> Child {
        let mut command = HostCommand::new(std::env::current_exe().expect("this program"));
        command.args(["--exact", "part", "--nocapture"]).env(PART, part).env(PLACE, self.0.path());
        command.env(WHERE, format!("{:?}", self.1));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("this program starts")
    }

    pub(crate) fn save(&self, handle: &MachineHandle) {
        fs::write(self.0.path().join("handle"), serde_json::to_vec(handle).expect("json")).expect("write");
    }

    pub(crate) fn saved(&self) -> MachineHandle {
        serde_json::from_slice(&fs::read(self.0.path().join("handle")).expect("a handle")).expect("json")
    }
}

pub(crate) struct Processes {
    pub(crate) supervisor: i32,
    pub(crate) guest: i32,
}

impl Processes {
    pub(crate) async fn are_gone(&self) {
        for pid in [self.guest, self.supervisor] {
            until("the machine's processes end", || !runs(pid)).await;
        }
    }
}

/// Whether a process exists and is not a zombie.
pub(crate) fn runs(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

pub(crate) fn kill(pid: i32) {
    kill_process(Pid::from_raw(pid).expect("a process"), Signal::KILL).expect("it is ours");
}

/// Stops a process without ending it.
pub(crate) fn stop(process: u32) {
    let pid = i32::try_from(process).ok().and_then(Pid::from_raw).expect("a process");
    kill_process(pid, Signal::STOP).expect("it is ours");
}

/// Waits for a line that another process prints.
pub(crate) fn hear(child: &mut Child, word: &str) {
    let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    assert!(lines.map_while(Result::ok).any(|line| line.contains(word)), "it never said {word:?}");
}

pub(crate) fn nonce(handle: &MachineHandle) -> [u8; 16] {
    let text = handle.state.get("nonce").and_then(|nonce| nonce.as_str()).expect("a nonce");
    let mut nonce = [0; 16];
    for (index, byte) in nonce.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[index * 2..index * 2 + 2], 16).expect("a number");
    }
    nonce
}
