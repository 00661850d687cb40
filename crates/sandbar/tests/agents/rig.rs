//! The rig of these tests: a model server with a script, a client with its own state directory, and checks for leftovers.

use std::{
    env, fs,
    path::Path,
    process::Command as Program,
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use sandbar::{
    client::{Docker, E2b, UnixLocal, docker::Pull},
    machine::MachineHandle,
    mock::{MockServer, Script, item},
    prelude::*,
    sandbox::processes::{Ids, TableOptions},
};
use sandbar_fakes::e2b::{Options, Server};
use serde_json::{Value, json};

/// Variable that selects the provider of machines, `docker:IMAGE` or `e2b`; without it, machines are local.
pub(crate) const SANDBOX: &str = "SANDBAR_TEST_SANDBOX";
/// Label that the containers of one test share.
const LABEL: &str = "sandbar.test";

/// Provider of machines.
#[derive(Debug)]
enum Source {
    /// Local machines.
    Host,
    /// Containers of this Docker image.
    Image(String),
    /// A fake of E2B, one for each test.
    E2b(Server),
}

impl Source {
    fn from_env(state: &Path) -> Self {
        let Ok(text) = env::var(SANDBOX) else { return Self::Host };
        match text.strip_prefix("docker:") {
            Some(image) => Self::Image(image.to_owned()),
            None => {
                assert_eq!(text, "e2b", "{SANDBOX} must be docker:IMAGE or e2b");
                let options = Options { state_dir: Some(state.to_owned()), ..Options::default() };
                Self::E2b(Server::with(options).expect("a fake of E2B"))
            }
        }
    }
}

/// Directory of a machine in which commands start.
pub(crate) fn workspace() -> &'static str {
    if env::var(SANDBOX).as_deref() == Ok("e2b") { "/home/user/workspace" } else { "/workspace" }
}

/// A client of any provider.
#[derive(Clone, Debug)]
pub(crate) struct Client(Arc<dyn SandboxClient>);

#[async_trait]
impl SandboxClient for Client {
    fn id(&self) -> &'static str {
        self.0.id()
    }

    async fn create(&self, spec: MachineSpec) -> sandbar::machine::Result<Arc<dyn Machine>> {
        self.0.create(spec).await
    }

    async fn attach(&self, handle: &MachineHandle) -> sandbar::machine::Result<Option<Arc<dyn Machine>>> {
        self.0.attach(handle).await
    }

    async fn delete(&self, handle: &MachineHandle) -> sandbar::machine::Result<()> {
        self.0.delete(handle).await
    }
}

/// A model server, and a client with its own state directory.
pub(crate) struct Rig {
    pub(crate) server: MockServer,
    source: Source,
    state: tempfile::TempDir,
}

impl Rig {
    pub(crate) fn new(script: Script) -> Self {
        let server = MockServer::start(script).expect("a server");
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        let state = tempfile::Builder::new().prefix("agents-").permissions(private).tempdir().expect("a directory");
        Self { server, source: Source::from_env(state.path()), state }
    }

    /// A rig whose script has turns with one item each.
    pub(crate) fn turns(items: impl IntoIterator<Item = Value>) -> Self {
        Self::new(items.into_iter().fold(Script::new(), Script::turn))
    }

    pub(crate) fn client(&self) -> Client {
        match &self.source {
            Source::Host => Client(Arc::new(UnixLocal::new().state_dir(self.state.path()))),
            Source::Image(image) => Client(Arc::new(Docker::image(image).pull(Pull::Never).label(LABEL, self.label()))),
            Source::E2b(fake) => {
                let client = E2b::template("base").key(fake.key()).api_url(fake.url()).sandbox_url(fake.url());
                Client(Arc::new(client))
            }
        }
    }

    fn label(&self) -> String {
        self.state.path().display().to_string()
    }

    /// A configuration whose commands have the ids 1000, 1001 and so on.
    pub(crate) fn sandbox(&self) -> SandboxRunConfig {
        SandboxRunConfig::new(self.client()).options(|options| options.processes(numbered()))
    }

    pub(crate) fn model(&self) -> Responses {
        Responses::new("gpt-5.5").base_url(self.server.base_url())
    }

    pub(crate) fn chat(&self) -> Chat {
        Chat::new("qwen3:8b", sandbar::agent::ModelEndpoint::new(self.server.base_url()))
    }

    pub(crate) fn agent(&self) -> SandboxAgent {
        SandboxAgent::new("worker").model(self.model())
    }

    /// Runs an agent to the end.
    pub(crate) async fn run(&self, agent: &SandboxAgent) -> RunResult {
        let result = run(agent, "Go.").sandbox(self.sandbox()).await.expect("the run ends well");
        assert_eq!(*result.stop(), Stop::Finished);
        result
    }

    /// The error of a run that must fail, with all its causes.
    pub(crate) async fn failure(&self, agent: &SandboxAgent, sandbox: SandboxRunConfig) -> String {
        let error = run(agent, "Go.").sandbox(sandbox).await.expect_err("the run fails");
        full(&error)
    }

    /// A live session that the test owns.
    pub(crate) async fn session(&self, manifest: Manifest) -> SandboxSession {
        let options = SessionOptions::new(manifest).processes(numbered());
        SandboxSession::open(std::sync::Arc::new(self.client()), options).await.expect("a session")
    }

    pub(crate) fn bodies(&self) -> Vec<Value> {
        self.server.requests().into_iter().map(|request| request.body).collect()
    }

    pub(crate) fn body(&self, number: usize) -> Value {
        self.bodies().get(number).cloned().unwrap_or_else(|| panic!("there was no request {number}"))
    }

    /// Instructions in the request of this number.
    pub(crate) fn prompt(&self, number: usize) -> String {
        self.body(number)["instructions"].as_str().expect("instructions").to_owned()
    }

    pub(crate) fn tool_names(&self, number: usize) -> Vec<String> {
        let body = self.body(number);
        let name = |tool: &Value| {
            tool.get("name").or_else(|| tool["function"].get("name")).and_then(Value::as_str).map(str::to_owned)
        };
        let tools = body["tools"].as_array().cloned().unwrap_or_default();
        tools.iter().map(|tool| name(tool).unwrap_or_else(|| format!("({})", tool["type"]))).collect()
    }

    pub(crate) fn tool(&self, number: usize, name: &str) -> Value {
        let body = self.body(number);
        let tools = body["tools"].as_array().cloned().unwrap_or_default();
        tools
            .into_iter()
            .find(|tool| tool["name"] == name || tool["function"]["name"] == name)
            .expect("the tool is offered")
    }

    /// Tool outputs in the last request.
    pub(crate) fn answers(&self) -> Vec<Value> {
        let last = self.bodies().pop().expect("there were questions");
        let items = last["input"].as_array().cloned().unwrap_or_default();
        items.into_iter().filter(|item| item["type"].as_str().is_some_and(|kind| kind.ends_with("_output"))).collect()
    }

    /// Texts of the tool outputs in the last request.
    pub(crate) fn texts(&self) -> Vec<String> {
        self.answers().iter().map(|answer| answer["output"].as_str().expect("a text").to_owned()).collect()
    }

    /// Texts of the tool outputs in the last request to a chat model.
    pub(crate) fn chat_texts(&self) -> Vec<String> {
        let last = self.bodies().pop().expect("there were questions");
        let messages = last["messages"].as_array().cloned().unwrap_or_default();
        messages
            .iter()
            .filter(|message| message["role"] == "tool")
            .filter_map(|message| Some(message["content"].as_str()?.to_owned()))
            .collect()
    }

    pub(crate) fn path(&self) -> &Path {
        self.state.path()
    }

    /// Number of existing machines.
    pub(crate) fn machines(&self) -> usize {
        match &self.source {
            Source::Host => machines_in(self.state.path()),
            Source::Image(_) => self.containers().len(),
            Source::E2b(fake) => fake.sandboxes().len(),
        }
    }

    fn containers(&self) -> Vec<String> {
        let filter = format!("label={LABEL}={}", self.label());
        let listed = Program::new("docker").args(["ps", "--all", "--quiet", "--filter", &filter]).output();
        let listed = String::from_utf8(listed.expect("the engine's client runs").stdout).expect("names");
        listed.lines().map(str::to_owned).collect()
    }

    /// Ends the only machine from outside.
    pub(crate) fn end_machine(&self) {
        match &self.source {
            Source::Host => kill_supervisor(self.state.path()),
            Source::Image(_) => {
                let containers = self.containers();
                assert_eq!(containers.len(), 1, "{containers:?}");
                let killed = Program::new("docker").arg("kill").args(containers).output().expect("it runs");
                assert!(killed.status.success(), "{killed:?}");
            }
            Source::E2b(fake) => {
                let sandboxes = fake.sandboxes();
                assert_eq!(sandboxes.len(), 1, "{sandboxes:?}");
                assert!(fake.expire(&sandboxes[0]), "it was there");
            }
        }
    }

    /// Checks that every request followed the rules.
    pub(crate) fn well_asked(&self) {
        assert_eq!(self.server.problems(), []);
    }

    /// Checks that every request followed the rules, and waits until no machine is left.
    pub(crate) async fn leaves_nothing(self) {
        self.well_asked();
        eventually("no machine is left", || self.machines() == 0).await;
    }
}

fn machines_in(state: &Path) -> usize {
    let entries = fs::read_dir(state).expect("the state directory");
    entries.filter(|entry| entry.as_ref().is_ok_and(|entry| entry.path().is_dir())).count()
}

/// Supervisors of the machines in this directory, which are children of this process.
fn supervisors(state: &Path) -> Vec<i32> {
    let own = std::process::id().to_string();
    let of = |entry: fs::DirEntry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let status = fs::read_to_string(entry.path().join("status")).ok()?;
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().to_owned();
        let opened = fs::read_dir(entry.path().join("fd"))
            .ok()?
            .flatten()
            .any(|fd| fs::read_link(fd.path()).is_ok_and(|to| to.starts_with(state)));
        (parent == own && opened).then_some(pid)
    };
    fs::read_dir("/proc").expect("/proc").flatten().filter_map(of).collect()
}

fn kill_supervisor(state: &Path) {
    let found = supervisors(state);
    assert_eq!(found.len(), 1, "{found:?}");
    let pid = rustix::process::Pid::from_raw(found[0]).expect("a process");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("killed");
}

pub(crate) fn numbered() -> TableOptions {
    TableOptions { ids: Ids::Sequential, ..TableOptions::default() }
}

/// Waits until a condition holds.
pub(crate) async fn eventually(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !holds() {
        assert!(Instant::now() < deadline, "it never came true: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// An error with all its causes.
pub(crate) fn full(error: &dyn std::error::Error) -> String {
    let mut message = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        message = format!("{message}: {cause}");
        source = cause.source();
    }
    message
}

/// A call of `exec_command` with the longest waiting time.
pub(crate) fn exec(cmd: &str) -> Value {
    item::function_call("exec_command", json!({ "cmd": cmd, "yield_time_ms": 30000 }))
}

/// Repeats an attempt with longer and longer times until it succeeds, because a busy host may be too slow.
pub(crate) async fn patiently<N, T>(
    times: impl IntoIterator<Item = N>,
    attempt: impl AsyncFn(N) -> Result<T, String>,
) -> T {
    let mut missed = String::new();
    for time in times {
        match attempt(time).await {
            Ok(came) => return came,
            Err(output) => missed = output,
        }
    }
    panic!("no attempt succeeded: {missed}");
}

/// A duration for `sleep` that no other process uses: the same tests run in containers and as another user at the same time.
pub(crate) fn own_word(number: u32) -> String {
    format!("31337.{number}{:07}", std::process::id())
}

pub(crate) fn call(name: &str, arguments: Value) -> Value {
    item::function_call(name, arguments)
}

pub(crate) fn done() -> Value {
    item::text("Done.")
}

/// Output of a command tool without its first two lines, which differ from run to run.
pub(crate) fn news(text: &str) -> &str {
    let mut parts = text.splitn(3, '\n');
    let (chunk, wall, rest) = (parts.next(), parts.next(), parts.next());
    let id = chunk.and_then(|line| line.strip_prefix("Chunk ID: ")).unwrap_or_else(|| panic!("no chunk id: {text}"));
    assert!(id.len() == 6 && id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')), "{id}");
    let seconds = wall.and_then(|line| line.strip_prefix("Wall time: ")?.strip_suffix(" seconds"));
    let (_, digits) = seconds.and_then(|time| time.split_once('.')).unwrap_or_else(|| panic!("no wall time: {text}"));
    assert!(digits.len() == 4 && digits.bytes().all(|byte| byte.is_ascii_digit()), "{text}");
    rest.unwrap_or_default()
}

/// Output of a command that exited with this code.
pub(crate) fn exited(code: i32, output: &str) -> String {
    format!("Process exited with code {code}\nOutput:\n{output}")
}

/// Whether a process of this host has this argument.
pub(crate) fn is_running(word: &str) -> bool {
    let processes = fs::read_dir("/proc").expect("/proc");
    let own = std::process::id().to_string();
    let of_process = |entry: fs::DirEntry| {
        let name = entry.file_name().into_string().ok()?;
        (name != own && name.bytes().all(|byte| byte.is_ascii_digit()))
            .then(|| fs::read(entry.path().join("cmdline")).ok())?
    };
    processes
        .flatten()
        .filter_map(of_process)
        .any(|line| line.split(|byte| *byte == 0).any(|part| part == word.as_bytes()))
}
