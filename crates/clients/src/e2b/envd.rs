//! `envd`, the service inside a sandbox: its requests, and the commands that it runs.

use std::{
    fmt, io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use bytes::Bytes;
use futures::{StreamExt as _, stream};
use parking_lot::Mutex;
use sandbar_http::{HttpError, Method, Request, Timeouts};
use sandbar_machine::{
    ByteStream, Command, MachineError, MachinePath, Output, Process, Result, Signal, TerminalSize,
    posix::{self, Launch},
    remote::{self, Gone, RemoteCommand},
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::{runtime::Handle, time::timeout};

use super::{
    E2b, LONGEST_REPLY, SandboxReply, is_id,
    messages::{Event, Message, Messages},
    random, refused,
};

/// Port of the service.
const PORT: &str = "49983";
/// Domains whose sandboxes are all reached at one address.
const SHARED_EDGES: [&str; 4] = ["e2b.app", "e2b.dev", "e2b.pro", "e2b-staging.dev"];
/// Interval of keepalive events on an idle stream, in seconds, and the longest accepted silence.
const KEEPALIVE: &str = "50";
const SILENCE: Duration = Duration::from_secs(150);
/// How much later the service's own deadline is than this client's: it matters only if the client is killed.
const GRACE: Duration = Duration::from_secs(30);
/// How long a kill may take.
const KILLING: Duration = Duration::from_secs(60);
/// Timeout of uploads, and of input to a command that does not read.
const LONG: Duration = Duration::from_hours(24);

/// A sandbox, and the addresses and tokens to reach it.
pub(super) struct Sandbox {
    pub(super) client: E2b,
    pub(super) id: String,
    pub(super) domain: String,
    pub(super) traffic_token: Option<String>,
    token: Option<String>,
    base: String,
    gone: Gone,
    deleted: AtomicBool,
}

/// Without the tokens.
impl fmt::Debug for Sandbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sandbox").field("id", &self.id).field("base", &self.base).finish_non_exhaustive()
    }
}

impl Sandbox {
    pub(super) fn new(client: E2b, reply: SandboxReply) -> Result<Self> {
        let is_host = |text: &String| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-:".contains(&byte));
        if !is_id(&reply.sandbox_id) || !reply.domain.iter().all(is_host) {
            return Err(MachineError::transport(
                "reach the machine",
                "the service answered with an invalid id or domain",
            ));
        }
        let domain = reply.domain.unwrap_or_else(|| client.domain.clone());
        let base = match &client.sandbox_url {
            Some(url) => url.trim_end_matches('/').to_owned(),
            None if SHARED_EDGES.contains(&domain.as_str()) => format!("https://sandbox.{domain}"),
            None => format!("https://{PORT}-{}.{domain}", reply.sandbox_id),
        };
        Ok(Self {
            client,
            id: reply.sandbox_id,
            domain,
            traffic_token: reply.traffic_access_token,
            token: reply.envd_access_token,
            base,
            gone: Gone::default(),
            deleted: AtomicBool::new(false),
        })
    }

    pub(super) fn is_gone(&self) -> bool {
        self.gone.is_set()
    }

    pub(super) fn is_deleted(&self) -> bool {
        self.deleted.load(Ordering::Acquire)
    }

    /// Marks the sandbox as gone without deleting it. Later requests fail at once.
    pub(super) fn lose(&self) {
        self.gone.set();
    }

    /// Deletes the sandbox. Later requests fail at once.
    pub(super) async fn delete(&self) -> Result<()> {
        self.deleted.store(true, Ordering::Release);
        self.lose();
        self.client.remove(&self.id).await
    }

    /// Sets the timeout of the sandbox, counted from now.
    pub(super) async fn renew(&self, seconds: u64) -> Result<()> {
        let request = self.client.request(Method::POST, &format!("/sandboxes/{}/timeout", self.id))?;
        let renewed = self.client.send(request.json(&json!({ "timeout": seconds })).idempotent()).await;
        renewed.map(|_empty| ()).map_err(|error| refused("renew the machine", error))
    }

    /// The directory of the agent's files. A relative path is below the home of the template's user.
    pub(super) async fn workspace(&self, method: &str) -> Result<MachinePath> {
        #[derive(Deserialize)]
        struct Reply {
            entry: Entry,
        }
        #[derive(Deserialize)]
        struct Entry {
            path: String,
        }
        let ask = |method| self.call::<Reply>("filesystem.Filesystem", method, json!({ "path": "workspace" }));
        let reply = match ask(method).await {
            Err(error) if error.status() == Some(409) => ask("Stat").await,
            reply => reply,
        };
        MachinePath::new(reply.map_err(|error| self.failed("find the workspace", error))?.entry.path)
    }

    fn request(&self, method: Method, path: &str) -> Request {
        let request = Request::new(method, format!("{}{path}", self.base)).uncompressed();
        let request = request.header("E2b-Sandbox-Id", &self.id).header("E2b-Sandbox-Port", PORT);
        match &self.token {
            Some(token) => request.secret_header("X-Access-Token", token),
            None => request,
        }
    }

    fn unary(&self, service: &str, method: &str, body: &Value) -> Request {
        let request = self.request(Method::POST, &format!("/{service}/{method}"));
        request.header("Connect-Protocol-Version", "1").json(body)
    }

    async fn call<T: DeserializeOwned>(&self, service: &str, method: &str, body: Value) -> Result<T, HttpError> {
        self.client.send(self.unary(service, method, &body)).await?.json(LONGEST_REPLY).await
    }

    /// The error of a failed request. The edge answers 502 for a sandbox that does not exist.
    fn failed(&self, action: &'static str, error: HttpError) -> MachineError {
        let is_missing =
            matches!(&error, HttpError::Status { status: 502, message, .. } if message.contains("not found"));
        if is_missing || self.is_gone() { MachineError::Gone } else { MachineError::transport(action, error) }
    }

    /// Uploads a file. If the source fails, its error is returned, and the partial file remains.
    pub(super) async fn upload(&self, path: &MachinePath, data: ByteStream) -> Result<()> {
        if self.is_gone() {
            return Err(MachineError::Gone);
        }
        let boundary = random("upload a file")?;
        let head = format!(
            "--{boundary}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{path}\"\r\n\
             Content-Type: application/octet-stream\r\n\r\n"
        );
        let fault: Arc<Mutex<Option<MachineError>>> = Arc::default();
        let slot = fault.clone();
        let data = data.map(move |piece| {
            piece.map_err(|error| {
                *slot.lock() = Some(error);
                io::Error::other("the source of the file failed")
            })
        });
        let whole = |text: String| stream::iter([Ok(Bytes::from(text))]);
        let body = whole(head).chain(data).chain(whole(format!("\r\n--{boundary}--\r\n")));
        let request = self.request(Method::POST, "/files").query("path", &path.to_string());
        let request = request.header("Content-Type", &format!("multipart/form-data; boundary={boundary}")).stream(body);
        let sent =
            self.client.send(request.timeouts(Timeouts { head: LONG, total: None, ..Timeouts::default() })).await;
        let source = fault.lock().take();
        match (source, sent) {
            (Some(error), _) => Err(error),
            (None, Err(error)) if error.status() == Some(507) => {
                Err(MachineError::Exhausted { what: "disk space".to_owned(), reason: error.to_string() })
            }
            (None, sent) => sent.map(|_entry| ()).map_err(|error| self.failed("upload a file", error)),
        }
    }

    /// Starts a command. The inner error is the service's message if the command cannot be started.
    pub(super) async fn start(self: &Arc<Self>, command: &Command) -> Result<Result<Process, String>> {
        let tag = random("start a command")?;
        let launch = posix::launch(command, &tag)?;
        let remote = EnvdCommand { sandbox: self.clone(), tag, is_terminal: command.tty.is_some() };
        let mut unstarted = Unstarted(Some(remote.clone()));
        let opened = match self.open(command, launch).await {
            // The command may run nevertheless; it is killed when `unstarted` is dropped.
            Err(error) if !matches!(error, MachineError::Gone) => return Err(error),
            opened => opened,
        };
        unstarted.0 = None;
        let messages = match opened? {
            Ok(messages) => messages,
            Err(message) => return Ok(Err(message)),
        };
        let events = stream::unfold(Some(messages), |messages| async {
            let mut messages = messages?;
            let output = messages.output().await.transpose()?;
            let is_last = output.is_err();
            Some((output, (!is_last).then_some(messages)))
        });
        Ok(Ok(remote::process(command, remote, events.boxed(), &self.gone)))
    }

    fn start_request(&self, command: &Command, launch: Launch) -> Request {
        let Launch { argv, env, cwd } = launch;
        let tag = env.get(posix::TREE_VARIABLE).cloned();
        let (program, arguments) =
            argv.split_first().map_or((None, argv.as_slice()), |(first, rest)| (Some(first), rest));
        let mut body = json!({
            "process": { "cmd": program, "args": arguments, "envs": env, "cwd": cwd.unwrap_or_else(|| "/".to_owned()) },
            "tag": tag,
            "stdin": command.stdin,
        });
        if let Some(size) = command.tty {
            body["pty"] = sized(size);
        }
        let text = body.to_string();
        let length = u32::try_from(text.len()).unwrap_or(u32::MAX).to_be_bytes();
        let message = [&[0][..], &length, text.as_bytes()].concat();
        let request = self.request(Method::POST, "/process.Process/Start").body(message);
        let request =
            request.header("Content-Type", "application/connect+json").header("Connect-Protocol-Version", "1");
        let request = request.header("Keepalive-Ping-Interval", KEEPALIVE);
        let request = request.timeouts(Timeouts { idle: SILENCE, total: None, ..Timeouts::default() });
        match command.deadline {
            Some(after) => request.header("Connect-Timeout-Ms", &after.saturating_add(GRACE).as_millis().to_string()),
            None => request,
        }
    }

    /// Opens the stream of a command and reads it up to the start event.
    async fn open(&self, command: &Command, launch: Launch) -> Result<Result<Messages, String>> {
        if self.is_gone() {
            return Err(MachineError::Gone);
        }
        let response = self.client.send(self.start_request(command, launch)).await;
        let mut messages = Messages::new(response.map_err(|error| self.failed("start a command", error))?);
        loop {
            match messages.next().await {
                Ok(Message::Event(Event { start: Some(_), .. })) => return Ok(Ok(messages)),
                Ok(Message::Event(_)) => {}
                Ok(Message::End(error)) => return Ok(Err(error.map_or_else(String::new, |error| error.message))),
                Err(_) if self.is_gone() => return Err(MachineError::Gone),
                Err(error) => return Err(error),
            }
        }
    }

    /// Runs a command to its exit, within [`KILLING`].
    async fn run(&self, command: Command) -> Result<()> {
        let failed = |reason: String| MachineError::transport("run a tool", reason);
        let launch = posix::launch(&command, &random("run a tool")?)?;
        let run = async {
            let mut messages = self.open(&command, launch).await?.map_err(failed)?;
            while !matches!(messages.output().await?, Some(Output::Exit(_)) | None) {}
            Ok(())
        };
        timeout(KILLING, run).await.map_err(|_late| failed("it did not end in time".to_owned()))?
    }
}

fn sized(size: TerminalSize) -> Value {
    json!({ "size": { "cols": size.cols, "rows": size.rows } })
}

/// A running command.
#[derive(Clone)]
struct EnvdCommand {
    sandbox: Arc<Sandbox>,
    /// Identifies the command in requests; process ids are reused.
    tag: String,
    is_terminal: bool,
}

impl EnvdCommand {
    /// Sends a request about the command; `false` if the command has ended, or has closed its input.
    async fn ask(&self, method: &str, mut body: Value, timeouts: Timeouts) -> Result<bool> {
        body["process"] = json!({ "tag": self.tag });
        let request = self.sandbox.unary("process.Process", method, &body).timeouts(timeouts);
        match self.sandbox.client.send(request).await {
            Ok(_empty) => Ok(true),
            Err(HttpError::Status { code: Some(code), .. }) if REFUSALS.contains(&code.as_str()) => Ok(false),
            Err(error) => Err(self.sandbox.failed("reach a command", error)),
        }
    }
}

/// Kills a command when it is dropped: its start was cancelled, or failed so that it may run nevertheless.
struct Unstarted(Option<EnvdCommand>);

impl Drop for Unstarted {
    fn drop(&mut self) {
        if let (Some(remote), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            runtime.spawn(async move {
                if let Err(error) = remote.signal(Signal::Kill).await {
                    tracing::debug!(%error, "a command whose start failed could not be killed");
                }
            });
        }
    }
}

/// Error codes for a command that has ended, or has closed its input.
const REFUSALS: [&str; 4] = ["not_found", "failed_precondition", "internal", "unknown"];

impl RemoteCommand for EnvdCommand {
    async fn input(&self, bytes: Bytes) -> Result<bool> {
        let stream = if self.is_terminal { "pty" } else { "stdin" };
        let timeouts = Timeouts { head: LONG, total: None, ..Timeouts::default() };
        self.ask("SendInput", json!({ "input": { stream: BASE64.encode(bytes) } }), timeouts).await
    }

    async fn close_input(&self) -> Result<()> {
        if self.is_terminal {
            // Twice: in the middle of a line, the first one only completes the line.
            return self.input(Bytes::from_static(b"\x04\x04")).await.map(|_taken| ());
        }
        self.ask("CloseStdin", json!({}), Timeouts::default()).await.map(|_closed| ())
    }

    async fn resize(&self, size: TerminalSize) -> Result<()> {
        self.ask("Update", json!({ "pty": sized(size) }), Timeouts::default()).await.map(|_resized| ())
    }

    async fn signal(&self, signal: Signal) -> Result<()> {
        if self.sandbox.is_gone() {
            return Ok(());
        }
        // The service's own signal reaches one process only, and discards the output that follows.
        let mut sent = self.sandbox.run(posix::signal_tree(&self.tag, signal)).await;
        if signal == Signal::Kill {
            if sent.is_err() {
                sent = self.sandbox.run(posix::signal_tree(&self.tag, signal)).await;
            }
            // Reaches a command that became root by `sudo`.
            self.ask("SendSignal", json!({ "signal": "SIGNAL_SIGKILL" }), Timeouts::default()).await?;
        }
        sent
    }
}
