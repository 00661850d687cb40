//! What every test here needs: a model server with a script, machines in a place of their own, and a look at what is left.

use std::{
    env, fs,
    path::Path,
    process::Command as Program,
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use sandbar::{
    MachineHandle,
    client::{Docker, UnixLocal, docker::Pull},
    mock::{MockServer, Script, item},
    prelude::*,
    processes::{Ids, TableOptions},
};
use serde_json::{Value, json};

/// The variable that names the image to work in, instead of this host itself.
pub(crate) const IMAGE: &str = "SANDBAR_TEST_IMAGE";
/// What containers of one test have in common.
const LABEL: &str = "sandbar.test";

/// Where machines come from.
#[derive(Clone, Debug)]
pub(crate) struct Client(Arc<dyn SandboxClient>);

#[async_trait]
impl SandboxClient for Client {
    fn id(&self) -> &'static str {
        self.0.id()
    }

    async fn create(&self, spec: MachineSpec) -> sandbar::Result<Arc<dyn Machine>> {
        self.0.create(spec).await
    }

    async fn attach(&self, handle: &MachineHandle) -> sandbar::Result<Option<Arc<dyn Machine>>> {
        self.0.attach(handle).await
    }

    async fn delete(&self, handle: &MachineHandle) -> sandbar::Result<()> {
        self.0.delete(handle).await
    }
}

/// A model server, and a client whose machines live in a directory of their own.
pub(crate) struct Rig {
    pub(crate) server: MockServer,
    state: tempfile::TempDir,
}

impl Rig {
    pub(crate) fn new(script: Script) -> Self {
        let server = MockServer::start(script).expect("a server");
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        let state = tempfile::Builder::new().prefix("agents-").permissions(private).tempdir().expect("a directory");
        Self { server, state }
    }

    /// Turns with one item each.
    pub(crate) fn turns(items: impl IntoIterator<Item = Value>) -> Self {
        Self::new(items.into_iter().fold(Script::new(), Script::turn))
    }

    pub(crate) fn client(&self) -> Client {
        match env::var(IMAGE) {
            Err(_) => Client(Arc::new(UnixLocal::new().state_dir(self.state.path()))),
            Ok(image) => Client(Arc::new(Docker::image(image).pull(Pull::Never).label(LABEL, self.label()))),
        }
    }

    fn label(&self) -> String {
        self.state.path().display().to_string()
    }

    /// Machines whose commands are numbered 1000, 1001 and so on.
    pub(crate) fn sandbox(&self) -> SandboxRunConfig {
        SandboxRunConfig::new(self.client()).processes(numbered())
    }

    pub(crate) fn model(&self) -> Responses {
        Responses::new("gpt-5.5").base_url(self.server.base_url())
    }

    pub(crate) fn chat(&self) -> Chat {
        Chat::new("qwen3:8b", sandbar::agent::Endpoint::new(self.server.base_url()))
    }

    pub(crate) fn agent(&self) -> SandboxAgent {
        SandboxAgent::new("worker").model(self.model())
    }

    /// Runs it to its end.
    pub(crate) async fn run(&self, agent: &SandboxAgent) -> RunResult {
        let result = run(agent, "Go.").sandbox(self.sandbox()).await.expect("the run ends well");
        assert_eq!(*result.stop(), Stop::Finished);
        result
    }

    /// What went wrong with a run that must fail, all of it.
    pub(crate) async fn failure(&self, agent: &SandboxAgent, sandbox: SandboxRunConfig) -> String {
        let error = run(agent, "Go.").sandbox(sandbox).await.expect_err("the run fails");
        full(&error)
    }

    /// A live session of the caller's, for runs to work in.
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

    /// What the first question told the agent to be.
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

    /// What tools answered, as the last question tells it.
    pub(crate) fn answers(&self) -> Vec<Value> {
        let last = self.bodies().pop().expect("there were questions");
        let items = last["input"].as_array().cloned().unwrap_or_default();
        items.into_iter().filter(|item| item["type"].as_str().is_some_and(|kind| kind.ends_with("_output"))).collect()
    }

    /// The texts of those answers.
    pub(crate) fn texts(&self) -> Vec<String> {
        self.answers().iter().map(|answer| answer["output"].as_str().expect("a text").to_owned()).collect()
    }

    /// What tools answered on a Chat model.
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

    /// How many machines there are.
    pub(crate) fn machines(&self) -> usize {
        self.containers().map_or_else(|| machines_in(self.state.path()), |containers| containers.len())
    }

    /// The same as the engine names them; `None` where there is none to ask.
    pub(crate) fn containers(&self) -> Option<Vec<String>> {
        env::var_os(IMAGE)?;
        let filter = format!("label={LABEL}={}", self.label());
        let listed = Program::new("docker").args(["ps", "--all", "--quiet", "--filter", &filter]).output();
        let listed = String::from_utf8(listed.expect("the engine's client runs").stdout).expect("names");
        Some(listed.lines().map(str::to_owned).collect())
    }

    /// Every request followed the rules.
    pub(crate) fn well_asked(&self) {
        assert_eq!(self.server.problems(), []);
    }

    /// Every request followed the rules, and no machine is left, soon.
    pub(crate) async fn leaves_nothing(self) {
        self.well_asked();
        eventually("no machine is left", || self.machines() == 0).await;
    }
}

fn machines_in(state: &Path) -> usize {
    let entries = fs::read_dir(state).expect("the state directory");
    entries.filter(|entry| entry.as_ref().is_ok_and(|entry| entry.path().is_dir())).count()
}

pub(crate) fn numbered() -> TableOptions {
    TableOptions { ids: Ids::Sequential, ..TableOptions::default() }
}

/// Waits for something that takes a moment.
pub(crate) async fn eventually(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !holds() {
        assert!(Instant::now() < deadline, "it never came true: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// An error with everything behind it.
pub(crate) fn full(error: &dyn std::error::Error) -> String {
    let mut said = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        said = format!("{said}: {cause}");
        source = cause.source();
    }
    said
}

/// A call of `exec_command` that waits for its command for as long as it may.
pub(crate) fn exec(cmd: &str) -> Value {
    item::function_call("exec_command", json!({ "cmd": cmd, "yield_time_ms": 30000 }))
}

/// Tries again, with ever more time, what a busy machine may be too slow for, until it came as it should.
pub(crate) async fn patiently<N, T>(
    times: impl IntoIterator<Item = N>,
    attempt: impl AsyncFn(N) -> Result<T, String>,
) -> T {
    let mut missed = String::new();
    for time in times {
        match attempt(time).await {
            Ok(came) => return came,
            Err(told) => missed = told,
        }
    }
    panic!("it never came as it should: {missed}");
}

/// A time to sleep that nobody else has: the same tests run in containers and as another user beside this one.
pub(crate) fn own_word(number: u32) -> String {
    format!("31337.{number}{:07}", std::process::id())
}

pub(crate) fn call(name: &str, arguments: Value) -> Value {
    item::function_call(name, arguments)
}

pub(crate) fn done() -> Value {
    item::text("Done.")
}

/// What follows the first two lines of a command's news, which are never the same.
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

/// The news of a command that exited like this.
pub(crate) fn exited(code: i32, output: &str) -> String {
    format!("Process exited with code {code}\nOutput:\n{output}")
}

/// Whether a process of this host has this word among its arguments.
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
