//! The methods `Start` and `Connect`: start or find a process, and stream its events.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::{Bytes, BytesMut};
use futures::{Stream, stream};
use hyper::{HeaderMap, Response};
use sandbar_machine::{Command, MachineError, MachinePath, Output, Process, TerminalSize};
use serde_json::{Value, json};
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep_until},
};

use super::{
    connect::{self, Code, Envelopes, RpcError},
    envd::{Caller, expand},
    processes::{self, Channel, Event, NewProcess},
    sandbox::Sandbox,
};
use crate::body::{Body, RequestBody};

/// Default interval of keepalive events on an idle stream.
const KEEPALIVE: Duration = Duration::from_secs(90);
/// Time limit for starting a process.
const BEGIN_DEADLINE: Duration = Duration::from_secs(60);
/// Time limit for killing a process at its deadline.
const KILL_DEADLINE: Duration = Duration::from_secs(5);
/// Prints the pid and executes the program in the same process: machines do not report the pids of their commands.
const ANNOUNCE: &str = "echo $$ && exec \"$@\"";
/// Longest line that can be a pid.
const LONGEST_NUMBER: usize = 32;

/// Starts a process and streams its events. It survives a disconnect of the client, until the deadline of the call.
pub(super) async fn start(caller: Caller, headers: &HeaderMap, body: RequestBody) -> Response<Body> {
    let began = Instant::now();
    match begin(&caller, headers, body).await {
        Ok(begun) => follow(&caller.sandbox, headers, begun, began),
        Err(error) => connect::stream(stream::iter([Err(error)])),
    }
}

/// Streams the events of a running process. The deadline of the call ends the stream, not the process.
pub(super) async fn attach(sandbox: &Arc<Sandbox>, headers: &HeaderMap, body: RequestBody) -> Response<Body> {
    let began = Instant::now();
    let found = async {
        let after = connect::deadline(headers)?;
        let request = Envelopes::new(body).next().await?.unwrap_or_default();
        let running = sandbox.processes.select(&request["process"])?;
        let on_deadline = OnDeadline::LeaveProcess;
        Ok(EventSource { pid: running.pid, channel: running.channel, events: running.listen(), after, on_deadline })
    };
    match found.await {
        Ok(begun) => follow(sandbox, headers, begun, began),
        Err(error) => connect::stream(stream::iter([Err(error)])),
    }
}

/// The events of a process, with the settings of the stream.
struct EventSource {
    pid: u32,
    channel: Channel,
    events: mpsc::Receiver<Event>,
    /// The call's timeout, counted from its start.
    after: Option<Duration>,
    on_deadline: OnDeadline,
}

/// Effect of the deadline of a stream on its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OnDeadline {
    KillProcess,
    LeaveProcess,
}

async fn begin(caller: &Caller, headers: &HeaderMap, body: RequestBody) -> Result<EventSource, RpcError> {
    let deadline = connect::deadline(headers)?;
    let request = Envelopes::new(body).next().await?.unwrap_or_default();
    let Caller { sandbox, user } = caller;
    let config = &request["process"];
    let cwd = expand(config["cwd"].as_str().unwrap_or_default(), user)?;
    let channel = if request["pty"].is_object() { Channel::Terminal } else { Channel::Pipes };
    let command = command(caller, &request, cwd.clone())?;
    let missing = || RpcError::new(Code::InvalidArgument, format!("cwd '{cwd}' does not exist"));
    let process = match sandbox.machine.spawn(command).await {
        Err(MachineError::NotFound(path)) if path == cwd => return Err(missing()),
        spawned => spawned?,
    };
    let announced = tokio::time::timeout(BEGIN_DEADLINE, number(process, channel)).await;
    let (pid, printed, process) = announced.map_err(|_| RpcError::deadline())??;
    let started = NewProcess {
        pid,
        tag: request["tag"].as_str().map(str::to_owned),
        config: listed_config(config),
        user: user.name.clone(),
        channel,
        printed,
        process,
        deadline,
    };
    let events = processes::keep(sandbox, started);
    Ok(EventSource { pid, channel, events, after: deadline, on_deadline: OnDeadline::KillProcess })
}

/// The command of a request.
fn command(caller: &Caller, request: &Value, cwd: MachinePath) -> Result<Command, RpcError> {
    let bad = |message: &str| RpcError::new(Code::InvalidArgument, message);
    let Caller { sandbox, user } = caller;
    let config = &request["process"];
    let program = config["cmd"].as_str().filter(|program| !program.is_empty());
    let program = program.ok_or_else(|| bad("error starting process '': exec: no command"))?;
    let arguments = config["args"].as_array().into_iter().flatten().map(|word| word.as_str().unwrap_or_default());
    // tidy: allow(shell) — a fixed text, whose arguments travel as arguments; `envd` starts programs in the same way
    let words = ["/bin/sh", "-c", ANNOUNCE, "sh", program];
    let mut command = Command::new(words.into_iter().chain(arguments)).user(&user.name).cwd(cwd);
    let mut env: BTreeMap<&str, &str> = BTreeMap::from([
        ("HOME", user.home.as_str()),
        ("USER", &user.name),
        ("LOGNAME", &user.name),
        ("E2B_SANDBOX", "true"),
        ("E2B_SANDBOX_ID", &sandbox.id),
        ("E2B_TEMPLATE_ID", &sandbox.config.template),
    ]);
    env.extend(sandbox.config.env.iter().map(|(name, value)| (name.as_str(), value.as_str())));
    let own = config["envs"].as_object().into_iter().flatten();
    env.extend(own.map(|(name, value)| (name.as_str(), value.as_str().unwrap_or_default())));
    for (name, value) in env {
        command = command.env(name, value);
    }
    if request["pty"].is_object() {
        return Ok(command.tty(size(&request["pty"])));
    }
    // The field is newer than the protocol: standard input is open when it is missing.
    if request["stdin"].as_bool().unwrap_or(true) { Ok(command.stdin()) } else { Ok(command) }
}

/// The requested size of the terminal.
pub(super) fn size(pty: &Value) -> TerminalSize {
    let side = |name: &str| u16::try_from(pty["size"][name].as_u64().unwrap_or_default()).unwrap_or(u16::MAX);
    TerminalSize::new(side("rows"), side("cols"))
}

/// The set fields of a `ProcessConfig`.
fn listed_config(config: &Value) -> Value {
    let unset = |value: &Value| {
        value.is_null()
            || value.as_object().is_some_and(serde_json::Map::is_empty)
            || value.as_array().is_some_and(Vec::is_empty)
    };
    let known = ["cmd", "args", "envs", "cwd"].into_iter().filter(|name| !unset(&config[*name]));
    known.map(|name| (name.to_owned(), config[name].clone())).collect::<serde_json::Map<_, _>>().into()
}

/// Reads the pid from the first line of output; returns it with the output after that line.
async fn number(mut process: Process, channel: Channel) -> Result<(u32, Option<Bytes>, Process), RpcError> {
    let failed = |message: String| RpcError::new(Code::InvalidArgument, message);
    let mut head = BytesMut::new();
    while head.len() < LONGEST_NUMBER || head.contains(&b'\n') {
        if let Some(end) = head.iter().position(|byte| *byte == b'\n') {
            let line = head.split_to(end + 1);
            let text = String::from_utf8_lossy(&line);
            let pid = text.trim().parse().map_err(|_| failed(format!("error starting process: {text}")))?;
            return Ok((pid, Some(head.freeze()), process));
        }
        match process.output.recv().await {
            Some(Ok(Output::Stdout(bytes))) => head.extend_from_slice(&bytes),
            Some(Ok(Output::Stderr(_) | Output::Omitted(_))) => {}
            Some(Ok(Output::Exit(exit))) => {
                return Err(failed(format!("error starting process in {channel:?}: exit status {}", exit.code)));
            }
            Some(Err(error)) => return Err(error.into()),
            None => return Err(MachineError::Gone.into()),
        }
    }
    Err(failed("error starting process: it has no number".to_owned()))
}

/// One stream of events.
struct EventStream {
    sandbox: Arc<Sandbox>,
    events: mpsc::Receiver<Event>,
    cut: watch::Receiver<u64>,
    deadline: Option<Instant>,
    on_deadline: OnDeadline,
    keepalive: Duration,
    channel: Channel,
    /// The start event, until it is sent.
    first: Option<Value>,
    over: bool,
}

fn follow(sandbox: &Arc<Sandbox>, headers: &HeaderMap, begun: EventSource, began: Instant) -> Response<Body> {
    let EventSource { pid, channel, events, after, on_deadline } = begun;
    let interval = headers.get("keepalive-ping-interval").and_then(|value| value.to_str().ok()?.parse().ok());
    let state = EventStream {
        sandbox: sandbox.clone(),
        events,
        cut: sandbox.cut(),
        deadline: after.map(|after| began + after),
        on_deadline,
        keepalive: interval.filter(|seconds| *seconds > 0).map_or(KEEPALIVE, Duration::from_secs),
        channel,
        first: Some(json!({"start": {"pid": pid}})),
        over: false,
    };
    connect::stream(state.stream())
}

impl EventStream {
    fn stream(self) -> impl Stream<Item = Result<Value, RpcError>> {
        stream::unfold(self, |mut state| async move {
            if state.over {
                return None;
            }
            let event = match state.first.take() {
                Some(first) => Ok(first),
                None => state.next().await,
            };
            state.over |= event.is_err();
            Some((event.map(|event| json!({"event": event})), state))
        })
    }

    async fn next(&mut self) -> Result<Value, RpcError> {
        let (deadline, silence) = (self.deadline, Instant::now() + self.keepalive);
        tokio::select! {
            // The deadline first, or endless output would hide it; then queued events, before the stream is cut.
            biased;
            () = async { match deadline { Some(at) => sleep_until(at).await, None => std::future::pending().await } } => {
                self.killed().await;
                Err(RpcError::deadline())
            }
            event = self.events.recv() => match event {
                Some(event) => Ok(self.written(event)),
                None => Err(self.lost()),
            },
            _changed = self.cut.changed() => Err(self.lost()),
            () = sleep_until(silence) => Ok(json!({"keepalive": {}})),
        }
    }

    /// Waits for the end of a process that is killed at its deadline: here that takes a command inside the machine, and in
    /// `envd` it has happened when the stream ends.
    async fn killed(&mut self) {
        let ended = async { while !matches!(self.events.recv().await, Some(Event::End(_)) | None) {} };
        if self.on_deadline == OnDeadline::KillProcess {
            let _ended_or_late = tokio::time::timeout(KILL_DEADLINE, ended).await;
        }
    }

    fn lost(&self) -> RpcError {
        let message = format!("the connection to sandbox {} ended before the stream completed", self.sandbox.id);
        RpcError::new(Code::Unavailable, message)
    }

    fn written(&mut self, event: Event) -> Value {
        match (event, self.channel) {
            (Event::Stdout(bytes), Channel::Pipes) => json!({"data": {"stdout": STANDARD.encode(bytes)}}),
            (Event::Stderr(bytes), Channel::Pipes) => json!({"data": {"stderr": STANDARD.encode(bytes)}}),
            (Event::Stdout(bytes) | Event::Stderr(bytes), Channel::Terminal) => {
                json!({"data": {"pty": STANDARD.encode(bytes)}})
            }
            (Event::End(exit), _) => {
                self.over = true;
                json!({"end": processes::end(exit)})
            }
        }
    }
}
