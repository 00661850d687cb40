//! Machines at E2B: virtual machines of a hosted provider, reached over HTTP.
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
//!   because the service's own file requests run as root and follow every link; only uploads to `/tmp` use them.
//! - Output of background children after the exit of their command is lost. Old versions of the service report the exit
//!   only after those children have closed the streams.
//! - A kill reaches the processes that inherited the command's environment and user. If the client itself is killed, the
//!   command runs on: half a minute longer than its deadline if it has one, otherwise until the machine ends.
//! - There is one user, and no directory of this host can be mounted.
//! - A bound machine ends at most two minutes after its owner was killed. A detached one is paused, with its processes,
//!   after an hour without a client, and resumes with the next request. A lease starts again with each attach.
//! - Ports carry HTTP only, and require a header unless they are [public](E2b::public_ports).
//! - The template decides memory, processors and disk.

mod envd;
mod handle;
mod machine;
mod messages;
mod provider;

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
pub use sandbar_http::Proxies;
use sandbar_http::{Client, HttpError, Method, Request, Response};
use sandbar_machine::{
    Isolation, Machine, MachineError, MachineHandle, MachineSpec, NEUTRAL_ENVIRONMENT, Network, Recorder, Result,
    SandboxClient, Support, Supports,
};
use serde::Deserialize;
use serde_json::{Value, json};

pub(crate) use self::provider::E2bProvider;
use self::{
    envd::Sandbox,
    handle::{HandleState, StoredLifetime, is_id},
    machine::{E2bMachine, HeldSandboxes, OnDrop, SandboxGuard},
};
use crate::{
    guest::check_variable,
    random::{hex, random_bytes},
    registry::Unreachable,
};

const ID: &str = "e2b";
/// The metadata that finds a sandbox if the reply to its creation was lost.
const MARK: &str = "sandbar";
/// The metadata that finds the sandboxes of a session list.
const SESSIONS: &str = "sandbar-sessions";
/// Maximum number of pages of a list that are read.
const MOST_PAGES: usize = 100;
const SUPPORTS: Supports = Supports::new(
    Isolation::Vm,
    &[Support::Time, Support::Ports, Support::Detached, Support::Snapshots, Support::NetworkOff, Support::NetworkOpen],
);
/// How long a sandbox lives after its owner stopped renewing it.
const OWNED: Duration = Duration::from_secs(120);
/// The longest timeout that every account may request.
const DETACHED: Duration = Duration::from_hours(1);
/// Maximum length of a reply in bytes.
const LONGEST_REPLY: u64 = 1 << 20;

/// Creates machines at E2B. See the [module](self) for what they can do.
#[derive(Clone)]
pub struct E2b {
    template: String,
    key: Option<String>,
    domain: String,
    api_url: Option<String>,
    sandbox_url: Option<String>,
    is_public: bool,
    /// Id of the session list that sandboxes are created for.
    sessions: Option<String>,
    /// The sandboxes that this client, or a clone of it, owns.
    held: HeldSandboxes,
    http: Client,
}

impl E2b {
    /// Creates machines from this template. The account's [key](Self::key) must be set.
    #[must_use]
    pub fn template(name: impl Into<String>) -> Self {
        let (template, domain) = (name.into(), "e2b.app".to_owned());
        let (held, http) = (HeldSandboxes::default(), Client::new(Proxies::none()));
        let (api_url, sandbox_url, sessions) = (None, None, None);
        Self { template, key: None, domain, api_url, sandbox_url, is_public: false, sessions, held, http }
    }

    /// Creates machines from this template, with the key from `E2B_API_KEY`, the addresses from `E2B_DOMAIN`,
    /// `E2B_API_URL` and `E2B_SANDBOX_URL`, and the proxies of the environment.
    ///
    /// # Errors
    /// [`MachineError::Invalid`] if there is no key, or a proxy is malformed.
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

    /// Sets the domain of the service; the default is `e2b.app`.
    #[must_use]
    pub fn domain(self, domain: impl Into<String>) -> Self {
        Self { domain: domain.into(), ..self }
    }

    /// Sets the address of the API; the default is `https://api.DOMAIN`.
    #[must_use]
    pub fn api_url(self, url: impl Into<String>) -> Self {
        Self { api_url: Some(url.into()), ..self }
    }

    /// Sets the address at which sandboxes are reached, but not that of their ports.
    #[must_use]
    pub fn sandbox_url(self, url: impl Into<String>) -> Self {
        Self { sandbox_url: Some(url.into()), ..self }
    }

    /// Sets the proxies; the default is none.
    #[must_use]
    pub fn proxies(self, proxies: Proxies) -> Self {
        Self { http: Client::new(proxies), ..self }
    }

    /// Opens ports to every client that knows their address, such as a browser.
    #[must_use]
    pub fn public_ports(self) -> Self {
        Self { is_public: true, ..self }
    }

    /// Pauses a machine with its processes; [`attach`](SandboxClient::attach) resumes it. Succeeds if the machine is
    /// already paused.
    ///
    /// # Errors
    /// [`MachineError::Gone`] if the machine does not exist.
    pub async fn pause(&self, handle: &MachineHandle) -> Result<()> {
        let request =
            self.request(Method::POST, &format!("/sandboxes/{}/pause", HandleState::read(handle)?.sandbox))?;
        match self.send(request.json(&json!({}))).await {
            Err(error) if error.status() != Some(409) => Err(refused("pause the machine", error)),
            _ => Ok(()),
        }
    }

    /// The address of the API.
    fn address(&self) -> String {
        let base = self.api_url.clone().unwrap_or_else(|| format!("https://api.{}", self.domain));
        base.trim_end_matches('/').to_owned()
    }

    fn request(&self, method: Method, path: &str) -> Result<Request> {
        let key = self.key.as_ref().ok_or_else(keyless)?;
        Ok(Request::new(method, format!("{}{path}", self.address())).secret_header("X-API-Key", key))
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
        let env = NEUTRAL_ENVIRONMENT.map(|(name, value)| (name.to_owned(), value.to_owned())).into_iter();
        let env: serde_json::Map<_, _> = env.chain(spec.env).map(|(name, value)| (name, value.into())).collect();
        let is_detached = lifetime == StoredLifetime::Detached;
        let template = spec.snapshot.map_or_else(|| self.template.clone(), |snapshot| snapshot.0);
        let mark = random("create the machine")?;
        let mut metadata = BTreeMap::from([(MARK, mark.clone())]);
        metadata.extend(self.sessions.clone().filter(|_| is_detached).map(|list| (SESSIONS, list)));
        let body = json!({
            "templateID": template,
            "timeout": lifetime.seconds(),
            "secure": true,
            "allow_internet_access": spec.network == Network::Open,
            "network": { "allowPublicTraffic": self.is_public },
            "autoPause": is_detached,
            "autoResume": { "enabled": is_detached },
            "envVars": env,
            "metadata": metadata,
        });
        // A task continues when this future is dropped. The guard that the task returns is then dropped too, and
        // deletes the sandbox.
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
                guard.on_drop = if lifetime == StoredLifetime::Owner { OnDrop::Delete } else { OnDrop::Leave };
                guard.renew(lifetime.seconds());
                if lifetime == StoredLifetime::Owner {
                    self.held.add(&guard.sandbox);
                }
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
        // A sandbox may exist nevertheless.
        let _lesser = self.remove_marked(&mark).await;
        Err(error)
    }

    /// Whether this client can use a machine: only its owner renews, and so can use, a bound machine.
    fn may_attach(&self, state: &HandleState) -> bool {
        state.lifetime != StoredLifetime::Owner || self.held.contains(&state.sandbox)
    }

    /// Removes the sandbox that was created with this mark.
    async fn remove_marked(&self, mark: &str) -> Result<()> {
        for reply in self.marked(MARK, mark).await? {
            self.remove(&reply.sandbox_id).await?;
        }
        Ok(())
    }

    /// The sandboxes with this metadata, running or paused.
    async fn marked(&self, name: &str, value: &str) -> Result<Vec<SandboxReply>> {
        let failed = |error| refused("list the machines", error);
        let (mut found, mut token) = (Vec::new(), None::<String>);
        for _ in 0..MOST_PAGES {
            let mut request = self.request(Method::GET, "/v2/sandboxes")?.query("metadata", &format!("{name}={value}"));
            if let Some(token) = &token {
                request = request.query("nextToken", token);
            }
            let response = self.send(request).await.map_err(failed)?;
            token = response.header("x-next-token").filter(|token| !token.is_empty()).map(ToOwned::to_owned);
            let page = response.json::<Vec<SandboxReply>>(LONGEST_REPLY).await.map_err(failed)?;
            // The service filters by metadata. If its filter fails, sandboxes of other clients must not be found.
            let is_marked = |reply: &SandboxReply| reply.metadata.get(name).is_some_and(|found| found == value);
            found.extend(page.into_iter().filter(|reply| is_id(&reply.sandbox_id) && is_marked(reply)));
            if token.is_none() {
                return Ok(found);
            }
        }
        Err(MachineError::transport("list the machines", format!("there are more than {MOST_PAGES} pages of them")))
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
        if !self.may_attach(&state) {
            return Ok(None);
        }
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

    /// Does not use `connect`, which would resume a paused sandbox and extend the timeout of a running one.
    async fn exists(&self, handle: &MachineHandle) -> Result<bool> {
        let state = HandleState::read(handle)?;
        if !self.may_attach(&state) {
            return Ok(false);
        }
        let request = self.request(Method::GET, &format!("/sandboxes/{}", state.sandbox))?;
        match self.send(request).await {
            Err(error) if error.status() == Some(404) => Ok(false),
            reply => reply.map(|_there| true).map_err(|error| refused("ask for the machine", error)),
        }
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

fn keyless() -> MachineError {
    MachineError::invalid("E2B_API_KEY", "is not set; set it to a key of your account, from https://e2b.dev/dashboard")
}

/// The error if the API refuses a request.
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
    if let HttpError::Connect { server, reason } = &error {
        let (address, reason) = (server.clone(), reason.clone());
        let fix = "check the network, and E2B_DOMAIN and E2B_API_URL if they are set".to_owned();
        let stage = format!("cannot reach E2B at {address}: {reason}; {fix}");
        let source = Unreachable { address, reason, fix, cause: error.into() };
        return MachineError::Start { stage, source: source.into() };
    }
    match error.status() {
        Some(404) => MachineError::invalid(format!("template {template:?}"), format!("is not there ({error})")),
        Some(400) => MachineError::Start { stage: "the service refused it".to_owned(), source: error.into() },
        _ => refused("create the machine", error),
    }
}

/// A random text.
fn random(action: &'static str) -> Result<String> {
    let bytes = random_bytes::<16>().map_err(|error| MachineError::transport(action, error))?;
    Ok(hex(&bytes))
}
