//! Machines at E2B: virtual machines of a provider, reached over HTTP.
//!
//! Tested against a fake of the service that its official SDKs accept too; **not yet run against the live service**.
//!
//! ```no_run
//! use sandbar_clients::E2b;
//!
//! # fn main() -> sandbar_machine::Result<()> {
//! let client = E2b::from_env("base")?;
//! # Ok(())
//! # }
//! ```
//!
//! What differs from a machine with a guest:
//!
//! - Commands run as the template's user, in `~/workspace`. Files are read, placed and listed by commands of that user,
//!   because the service's own file requests have root's rights and follow every link; only uploads to `/tmp` are such
//!   requests.
//! - Output of background children after the exit of their command is lost. Old versions of the service report the exit only
//!   after those children have closed the streams.
//! - A kill reaches the processes that inherited the command's environment and user. If the client itself is killed, the
//!   command runs on: half a minute longer than its deadline if it has one, else until the machine ends.
//! - A machine that ends with its owner ends at most two minutes after the owner was killed. A detached one is paused, with its
//!   processes, after an hour without a client, and resumes with the next request. A lease starts again with each attach.
//! - Ports carry HTTP only, and require a header unless they are [public](E2b::public_ports).
//! - Memory, processors and disk are the template's.

mod envd;
mod machine;
mod messages;

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
pub use sandbar_http::Proxies;
use sandbar_http::{Client, HttpError, Method, Request, Response};
use sandbar_machine::{
    Isolation, Lifetime, Machine, MachineError, MachineHandle, MachineSpec, Network, Recorder, Result, SandboxClient,
    Support, Supports,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use self::{
    envd::Sandbox,
    machine::{E2bMachine, OnDrop, SandboxGuard},
};
use crate::{
    draw::{draw, hex},
    guest::check_variable,
};

const ID: &str = "e2b";
/// The metadata by which a sandbox is found whose reply was lost.
const MARK: &str = "sandbar";
const SUPPORTS: Supports = Supports::new(
    Isolation::Vm,
    &[Support::Ports, Support::Detached, Support::Snapshots, Support::NetworkOff, Support::NetworkOpen],
);
/// A sandbox ends this long after its owner stopped renewing it.
const OWNED: Duration = Duration::from_secs(120);
/// The longest timeout that every account may ask for.
const DETACHED: Duration = Duration::from_hours(1);
/// The most that is read of a reply.
const LONGEST_REPLY: u64 = 1 << 20;
/// What every command gets, unless the specification says something else.
const ENVIRONMENT: [(&str, &str); 7] = [
    ("LANG", "C.UTF-8"),
    ("LC_ALL", "C.UTF-8"),
    ("PAGER", "cat"),
    ("GIT_PAGER", "cat"),
    ("MANPAGER", "cat"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("DEBIAN_FRONTEND", "noninteractive"),
];

/// Makes machines at E2B. See the [module](self) for what they can do.
#[derive(Clone)]
pub struct E2b {
    template: String,
    key: Option<String>,
    domain: String,
    api_url: Option<String>,
    sandbox_url: Option<String>,
    is_public: bool,
    http: Client,
}

impl E2b {
    /// Machines out of this template, for an account whose [key](Self::key) is still to be given.
    #[must_use]
    pub fn template(name: impl Into<String>) -> Self {
        let (template, domain) = (name.into(), "e2b.app".to_owned());
        let http = Client::new(Proxies::none());
        Self { template, key: None, domain, api_url: None, sandbox_url: None, is_public: false, http }
    }

    /// The same with the key from `E2B_API_KEY`, the addresses from `E2B_DOMAIN`, `E2B_API_URL` and `E2B_SANDBOX_URL`, and the
    /// environment's proxies.
    ///
    /// # Errors
    /// [`MachineError::Invalid`] without a key, or with a malformed proxy.
    pub fn from_env(template: impl Into<String>) -> Result<Self> {
        let value = |name| std::env::var(name).ok().map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
        let proxies = Proxies::from_env().map_err(|error| MachineError::invalid("proxy", error.to_string()))?;
        let mut client = Self::template(template).proxies(proxies).key(value("E2B_API_KEY").ok_or_else(keyless)?);
        client.domain = value("E2B_DOMAIN").unwrap_or(client.domain);
        (client.api_url, client.sandbox_url) = (value("E2B_API_URL"), value("E2B_SANDBOX_URL"));
        Ok(client)
    }

    /// Sets the key of the account.
    #[must_use]
    pub fn key(self, key: impl Into<String>) -> Self {
        Self { key: Some(key.into()), ..self }
    }

    /// Sets the domain of the service, `e2b.app` if not set.
    #[must_use]
    pub fn domain(self, domain: impl Into<String>) -> Self {
        Self { domain: domain.into(), ..self }
    }

    /// Sets the address of the API, `https://api.DOMAIN` if not set.
    #[must_use]
    pub fn api_url(self, url: impl Into<String>) -> Self {
        Self { api_url: Some(url.into()), ..self }
    }

    /// Sets the address at which sandboxes are reached; not that of their ports.
    #[must_use]
    pub fn sandbox_url(self, url: impl Into<String>) -> Self {
        Self { sandbox_url: Some(url.into()), ..self }
    }

    /// Sets the proxies to use, none if not set.
    #[must_use]
    pub fn proxies(self, proxies: Proxies) -> Self {
        Self { http: Client::new(proxies), ..self }
    }

    /// Opens ports to every request that has their address, as a browser's.
    #[must_use]
    pub fn public_ports(self) -> Self {
        Self { is_public: true, ..self }
    }

    /// Pauses a machine with its processes; [`attach`](SandboxClient::attach) resumes it. Pausing a paused one is fine.
    ///
    /// # Errors
    /// [`MachineError::Gone`] when it is not there.
    pub async fn pause(&self, handle: &MachineHandle) -> Result<()> {
        let request =
            self.request(Method::POST, &format!("/sandboxes/{}/pause", HandleState::read(handle)?.sandbox))?;
        match self.send(request.json(&json!({}))).await {
            Err(error) if error.status() != Some(409) => Err(refused("pause the machine", error)),
            _ => Ok(()),
        }
    }

    fn request(&self, method: Method, path: &str) -> Result<Request> {
        let key = self.key.as_ref().ok_or_else(keyless)?;
        let base = self.api_url.clone().unwrap_or_else(|| format!("https://api.{}", self.domain));
        Ok(Request::new(method, format!("{}{path}", base.trim_end_matches('/'))).secret_header("X-API-Key", key))
    }

    async fn send(&self, request: Request) -> Result<Response, HttpError> {
        self.http.send(request).await?.success().await
    }

    async fn make(&self, spec: MachineSpec, record: &Recorder<'_>) -> Result<Arc<dyn Machine>> {
        spec.refuse_unless(&SUPPORTS)?;
        let lifetime = StoredLifetime::new(spec.lifetime)?;
        for (name, value) in &spec.env {
            check_variable(name.as_ref(), value.as_ref())?;
        }
        let env = ENVIRONMENT.map(|(name, value)| (name.to_owned(), value.to_owned())).into_iter();
        let env: serde_json::Map<_, _> = env.chain(spec.env).map(|(name, value)| (name, value.into())).collect();
        let is_detached = lifetime == StoredLifetime::Detached;
        let template = spec.snapshot.map_or_else(|| self.template.clone(), |snapshot| snapshot.0);
        let mark = random("create the machine")?;
        let body = json!({
            "templateID": template,
            "timeout": lifetime.seconds(),
            "secure": true,
            "allow_internet_access": spec.network == Network::Open,
            "network": { "allowPublicTraffic": self.is_public },
            "autoPause": is_detached,
            "autoResume": { "enabled": is_detached },
            "envVars": env,
            "metadata": { MARK: mark },
        });
        // In a task, which runs on when this future is dropped: the guard that it returns is then dropped as well, and with
        // it the sandbox.
        let created = tokio::spawn(self.clone().create_sandbox(template, mark, body)).await;
        let mut guard = created.map_err(|error| MachineError::transport("create the machine", error))??;
        let sandbox = guard.sandbox.id.clone();
        let state = HandleState { sandbox, ports: spec.ports, lifetime, time: spec.limits.time };
        let prepared = match record(&state.handle()) {
            Ok(()) => guard.sandbox.workspace("MakeDir").await,
            Err(error) => Err(error),
        };
        match prepared {
            Ok(workspace) => {
                guard.renew(lifetime.seconds());
                guard.on_drop = if lifetime == StoredLifetime::Owner { OnDrop::Delete } else { OnDrop::Leave };
                Ok(Arc::new(E2bMachine::new(guard, state, workspace)))
            }
            Err(error) => {
                let _lesser = guard.sandbox.delete().await;
                Err(error)
            }
        }
    }

    async fn create_sandbox(self, template: String, mark: String, body: Value) -> Result<SandboxGuard> {
        let request = self.request(Method::POST, "/sandboxes")?.json(&body);
        let reply = async { self.send(request).await?.json::<SandboxReply>(LONGEST_REPLY).await };
        let error = match reply.await {
            Ok(reply) => match Sandbox::new(self.clone(), reply) {
                Ok(sandbox) => return Ok(SandboxGuard::new(sandbox, OnDrop::Delete)),
                Err(error) => error,
            },
            Err(error) if error.status().is_some_and(|status| status < 500) => {
                return Err(not_created(&template, error));
            }
            Err(error) => not_created(&template, error),
        };
        // There may be a sandbox all the same.
        let _lesser = self.remove_marked(&mark).await;
        Err(error)
    }

    /// Removes the sandbox that was created with this mark.
    async fn remove_marked(&self, mark: &str) -> Result<()> {
        let request = self.request(Method::GET, "/v2/sandboxes")?.query("metadata", &format!("{MARK}={mark}"));
        let listed = async { self.send(request).await?.json::<Vec<SandboxReply>>(LONGEST_REPLY).await };
        for reply in listed.await.map_err(|error| refused("list the machines", error))? {
            // The filter is the service's; a sandbox of another client must not be removed if it does not work.
            if is_id(&reply.sandbox_id) && reply.metadata.get(MARK).is_some_and(|found| found == mark) {
                self.remove(&reply.sandbox_id).await?;
            }
        }
        Ok(())
    }

    async fn remove(&self, id: &str) -> Result<()> {
        match self.send(self.request(Method::DELETE, &format!("/sandboxes/{id}"))?).await {
            Err(error) if error.status() != Some(404) => Err(refused("delete the machine", error)),
            _ => Ok(()),
        }
    }
}

/// Without the key.
impl fmt::Debug for E2b {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("E2b");
        shown.field("template", &self.template).field("domain", &self.domain);
        shown.field("api_url", &self.api_url).field("sandbox_url", &self.sandbox_url).finish_non_exhaustive()
    }
}

#[async_trait]
impl SandboxClient for E2b {
    fn id(&self) -> &'static str {
        ID
    }

    async fn create(&self, spec: MachineSpec) -> Result<Arc<dyn Machine>> {
        self.make(spec, &|_handle| Ok(())).await
    }

    async fn create_recorded(&self, spec: MachineSpec, record: &Recorder<'_>) -> Result<Arc<dyn Machine>> {
        self.make(spec, record).await
    }

    async fn attach(&self, handle: &MachineHandle) -> Result<Option<Arc<dyn Machine>>> {
        let state = HandleState::read(handle)?;
        let request = self.request(Method::POST, &format!("/sandboxes/{}/connect", state.sandbox))?;
        let request = request.json(&json!({ "timeout": state.lifetime.seconds() })).idempotent();
        let reply = async { self.send(request).await?.json::<SandboxReply>(LONGEST_REPLY).await };
        let reply = match reply.await {
            Err(error) if error.status() == Some(404) => return Ok(None),
            reply => reply.map_err(|error| refused("attach to the machine", error))?,
        };
        let mut guard = SandboxGuard::new(Sandbox::new(self.clone(), reply)?, OnDrop::Leave);
        if guard.sandbox.id != state.sandbox {
            return Err(MachineError::transport("attach to the machine", "the service answered with another sandbox"));
        }
        let workspace = match guard.sandbox.workspace("Stat").await {
            Err(MachineError::Gone) => return Ok(None),
            workspace => workspace?,
        };
        if state.lifetime != StoredLifetime::Owner {
            guard.renew(state.lifetime.seconds());
        }
        Ok(Some(Arc::new(E2bMachine::new(guard, state, workspace))))
    }

    async fn delete(&self, handle: &MachineHandle) -> Result<()> {
        self.remove(&HandleState::read(handle)?.sandbox).await
    }
}

/// A sandbox in a reply of the API.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SandboxReply {
    #[serde(rename = "sandboxID")]
    sandbox_id: String,
    envd_access_token: Option<String>,
    traffic_access_token: Option<String>,
    domain: Option<String>,
    #[serde(default)]
    metadata: BTreeMap<String, String>,
}

/// The state of a handle: what another client needs to use the machine, and nothing secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct HandleState {
    sandbox: String,
    ports: Vec<u16>,
    lifetime: StoredLifetime,
    /// How long a command without its own deadline may run.
    time: Option<Duration>,
}

impl HandleState {
    fn read(handle: &MachineHandle) -> Result<Self> {
        let bad = |reason: String| MachineError::invalid("handle", reason);
        if handle.client != ID {
            return Err(bad(format!("belongs to the client {:?}", handle.client)));
        }
        let state: Self = serde_json::from_value(handle.state.clone()).map_err(|error| bad(error.to_string()))?;
        if is_id(&state.sandbox) { Ok(state) } else { Err(bad("has no id of a sandbox".to_owned())) }
    }

    fn handle(&self) -> MachineHandle {
        MachineHandle { client: ID.to_owned(), state: json!(self) }
    }
}

/// Whether this can be the id of a sandbox: it becomes part of addresses.
fn is_id(text: &str) -> bool {
    (1..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

/// The lifetime of a machine, as its handle stores it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StoredLifetime {
    Owner,
    Detached,
    /// Seconds without a client.
    Leased(u64),
}

impl StoredLifetime {
    fn new(lifetime: Lifetime) -> Result<Self> {
        match lifetime {
            Lifetime::WithOwner => Ok(Self::Owner),
            Lifetime::Detached => Ok(Self::Detached),
            Lifetime::Leased(lease) => Ok(Self::Leased(lease.as_secs().max(1))),
            _ => Err(MachineError::Unsupported("keep a machine for this lifetime")),
        }
    }

    /// The timeout of the sandbox.
    fn seconds(self) -> u64 {
        match self {
            Self::Owner => OWNED.as_secs(),
            Self::Detached => DETACHED.as_secs(),
            Self::Leased(seconds) => seconds,
        }
    }
}

fn keyless() -> MachineError {
    MachineError::invalid("E2B_API_KEY", "is not set; set it to a key of your account, from https://e2b.dev/dashboard")
}

/// Why the API did not do what it was asked.
fn refused(action: &'static str, error: HttpError) -> MachineError {
    match error.status() {
        Some(401 | 403) => MachineError::invalid(
            "E2B_API_KEY",
            format!("was refused ({error}); set it to a key of your account, from https://e2b.dev/dashboard"),
        ),
        Some(404) => MachineError::Gone,
        _ => MachineError::transport(action, error),
    }
}

fn not_created(template: &str, error: HttpError) -> MachineError {
    match error.status() {
        Some(404) => MachineError::Start { stage: format!("there is no template {template:?}"), source: error.into() },
        Some(400) => MachineError::Start { stage: "the service refused it".to_owned(), source: error.into() },
        _ => refused("create the machine", error),
    }
}

/// A text that is not used twice.
fn random(action: &'static str) -> Result<String> {
    let bytes = draw::<16>().map_err(|error| MachineError::transport(action, error))?;
    Ok(hex(&bytes))
}
