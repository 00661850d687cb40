//! The control plane: creates, lists, changes and removes sandboxes and snapshots.

use std::{collections::HashMap, sync::Arc, time::Duration};

use http_body_util::{BodyExt as _, Limited};
use hyper::{Method, Response, http::request::Parts};
use sandbar_machine::MachineError;
use serde_json::{Value, json};

use super::{
    clock::{self, rfc3339},
    connect::words,
    envd,
    sandbox::{Memory, OnTimeout, OnTraffic, Sandbox, SandboxConfig, Security, State, Traffic},
    service::Service,
    snapshot::Snapshot,
};
use crate::{
    body::{self, Body, RequestBody},
    listener::respond,
};

/// Limit of a request, in bytes.
const LONGEST_BODY: usize = 1 << 20;
/// Default timeout of a sandbox in seconds.
const DEFAULT_TIMEOUT: u64 = 15;
/// Longest timeout of a sandbox in seconds.
const LONGEST_TIMEOUT: u64 = 24 * 3600;
/// Sandboxes or snapshots on a page.
const PAGE: usize = 100;

type Answer = Result<Response<Body>, Refusal>;

/// Refusal of a request: a status and a reason.
struct Refusal(u16, String);

impl From<MachineError> for Refusal {
    fn from(error: MachineError) -> Self {
        Self(500, words(&error))
    }
}

/// Whether a path begins with `/v2`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// Answers a request.
pub(super) async fn answer(service: &Service, parts: Parts, body: RequestBody) -> Response<Body> {
    let answer = async {
        let key = parts.headers.get("x-api-key").and_then(|key| key.to_str().ok());
        match key {
            None => return Err(Refusal(401, "API key is missing in the header X-API-KEY".to_owned())),
            Some(key) if key != service.key => return Err(Refusal(401, "Invalid API key".to_owned())),
            Some(_) => {}
        }
        let read = Limited::new(body, LONGEST_BODY).collect().await;
        let bytes = read.map_err(|error| Refusal(400, format!("Error when parsing request: {error}")))?.to_bytes();
        let body = match bytes.is_empty() {
            true => json!({}),
            false => serde_json::from_slice(&bytes)
                .map_err(|error| Refusal(400, format!("Error when parsing request: {error}")))?,
        };
        route(service, &parts, &body).await
    };
    answer
        .await
        .unwrap_or_else(|Refusal(status, message)| write(status, &json!({"code": status, "message": message}), &[]))
}

async fn route(service: &Service, parts: &Parts, body: &Value) -> Answer {
    let path = parts.uri.path().to_owned();
    let words: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let (version, words) = match &words[..] {
        ["v2", rest @ ..] => (Version::Two, rest),
        rest => (Version::One, rest),
    };
    let query: HashMap<String, String> =
        form_urlencoded::parse(parts.uri.query().unwrap_or_default().as_bytes()).into_owned().collect();
    let (get, post, delete) = (&Method::GET, &Method::POST, &Method::DELETE);
    match (&parts.method, words) {
        (method, ["sandboxes"]) if method == post => {
            let key = parts.headers.get("idempotency-key").and_then(|key| key.to_str().ok()).map(str::to_owned);
            create(service, version, body, key).await
        }
        (method, ["sandboxes"]) if method == get => list(service, version, &query),
        (method, ["sandboxes", id]) if method == get => Ok(write(200, &detail(&*find(service, id)?), &[])),
        (method, ["sandboxes", id]) if method == delete => kill(service, id).await,
        (method, ["sandboxes", id, "metrics"]) if method == get => {
            find(service, id).map(|_there| write(200, &json!([]), &[]))
        }
        (method, ["sandboxes", id, action]) if method == post => act(service, id, action, body).await,
        (method, ["snapshots"]) if method == get => snapshots(service, &query),
        (method, ["templates", id]) if method == delete => match service.catalog.remove_snapshot(id) {
            Some(_removed) => Ok(empty()),
            None => Err(Refusal(404, format!("Template '{id}' not found"))),
        },
        _ => Err(Refusal(404, format!("no route was found matching {} {path}", parts.method))),
    }
}

/// `POST /sandboxes/ID/ACTION`.
async fn act(service: &Service, id: &str, action: &str, body: &Value) -> Answer {
    let sandbox = find(service, id)?;
    let answer = match action {
        "connect" | "resume" => connect(&sandbox, action, body).await,
        "pause" => match sandbox.pause(memory(&body["memory"])).await? {
            true => Ok(empty()),
            false => Err(Refusal(409, format!("Sandbox '{id}' is already paused"))),
        },
        "timeout" => {
            if sandbox.state() == State::Paused {
                return Err(missing(id));
            }
            sandbox.set_timeout(timeout(&body["timeout"])?);
            Ok(empty())
        }
        "refreshes" => {
            sandbox.extend(timeout(&body["duration"])?);
            Ok(empty())
        }
        "snapshots" => save(service, &sandbox, body).await,
        _ => Err(Refusal(404, format!("no route was found matching POST /sandboxes/{id}/{action}"))),
    };
    service.rescheduled.notify_one();
    answer
}

async fn create(service: &Service, version: Version, body: &Value, key: Option<String>) -> Answer {
    if let Some(made) = key.as_ref().and_then(|key| service.catalog.created(key)) {
        return Ok(write(201, &brief(&made), &[]));
    }
    let config = sandbox_config(version, body)?;
    let reference = config.template.clone();
    let snapshot = service.catalog.snapshots().into_iter().find(|snapshot| snapshot.is(&reference));
    let name = reference.split(':').next().unwrap_or_default();
    if snapshot.is_none() && !service.templates.iter().any(|template| template == name) {
        return Err(Refusal(404, format!("template '{reference}' not found")));
    }
    let sandbox = Sandbox::create(&service.client, config).await?;
    if let Some(snapshot) = snapshot {
        snapshot.restore(&sandbox.machine).await?;
    }
    let sandbox = Arc::new(sandbox);
    service.catalog.add(sandbox.clone(), key);
    service.rescheduled.notify_one();
    Ok(write(201, &brief(&sandbox), &[]))
}

fn sandbox_config(version: Version, body: &Value) -> Result<SandboxConfig, Refusal> {
    let template = body["templateID"].as_str().filter(|template| !template.is_empty());
    let texts = |value: &Value| {
        let pairs = value.as_object().into_iter().flatten();
        pairs.map(|(name, value)| (name.clone(), value.as_str().unwrap_or_default().to_owned())).collect()
    };
    let secure = body["secure"].as_bool().unwrap_or(version == Version::Two);
    let public = body["network"]["allowPublicTraffic"].as_bool().unwrap_or(true);
    let pauses = body["autoPause"].as_bool().unwrap_or(false);
    let resumes = body["autoResume"]["enabled"].as_bool().unwrap_or(false);
    if !public && !secure {
        return Err(Refusal(400, "a sandbox without public traffic must be secure".to_owned()));
    }
    Ok(SandboxConfig {
        template: template.ok_or_else(|| Refusal(400, "property \"templateID\" is missing".to_owned()))?.to_owned(),
        timeout: timeout(&body["timeout"])?,
        metadata: texts(&body["metadata"]),
        env: texts(&body["envVars"]),
        secure: if secure { Security::Token } else { Security::Open },
        traffic: if public { Traffic::Public } else { Traffic::Token },
        on_timeout: if pauses { OnTimeout::Pause(memory(&body["autoPauseMemory"])) } else { OnTimeout::Kill },
        on_traffic: if resumes { OnTraffic::Resume } else { OnTraffic::Refuse },
        allow_internet_access: body["allow_internet_access"].as_bool(),
    })
}

fn memory(value: &Value) -> Memory {
    if value.as_bool().unwrap_or(true) { Memory::Kept } else { Memory::Dropped }
}

fn timeout(value: &Value) -> Result<Duration, Refusal> {
    let seconds = match value {
        Value::Null => DEFAULT_TIMEOUT,
        given => {
            given.as_u64().ok_or_else(|| Refusal(400, format!("the timeout {given} is not a number of seconds")))?
        }
    };
    match seconds {
        0..=LONGEST_TIMEOUT => Ok(Duration::from_secs(seconds)),
        _ => Err(Refusal(400, format!("Timeout cannot be greater than {} hours", LONGEST_TIMEOUT / 3600))),
    }
}

/// Resumes a paused sandbox, or extends the timeout of a running one.
async fn connect(sandbox: &Sandbox, action: &str, body: &Value) -> Answer {
    let timeout = timeout(&body["timeout"])?;
    if sandbox.resume(timeout).await? {
        return Ok(write(201, &brief(sandbox), &[]));
    }
    if action == "resume" {
        return Err(Refusal(409, format!("Sandbox '{}' is already running", sandbox.id)));
    }
    sandbox.extend(timeout);
    Ok(write(200, &brief(sandbox), &[]))
}

async fn kill(service: &Service, id: &str) -> Answer {
    let sandbox = service.catalog.remove(id).ok_or_else(|| missing(id))?;
    sandbox.kill().await?;
    Ok(empty())
}

async fn save(service: &Service, sandbox: &Sandbox, body: &Value) -> Answer {
    let names: Vec<String> = body["name"].as_str().map(str::to_owned).into_iter().collect();
    let snapshot = Snapshot::take(sandbox, clock::random_name(20), names).await?;
    let answer = written(&snapshot);
    service.catalog.add_snapshot(snapshot);
    Ok(write(201, &answer, &[]))
}

fn snapshots(service: &Service, query: &HashMap<String, String>) -> Answer {
    let of = |snapshot: &Arc<Snapshot>| query.get("sandboxID").is_none_or(|id| *id == snapshot.sandbox);
    let called = |snapshot: &Arc<Snapshot>| query.get("name").is_none_or(|name| snapshot.is(name));
    let all = service.catalog.snapshots().into_iter().filter(of).filter(called);
    page(all.map(|snapshot| written(&snapshot)).collect(), query, &[])
}

fn written(snapshot: &Snapshot) -> Value {
    json!({"snapshotID": snapshot.id, "names": snapshot.names})
}

fn list(service: &Service, version: Version, query: &HashMap<String, String>) -> Answer {
    let states: Vec<&str> = match (version, query.get("state")) {
        (Version::One, _) => vec!["running"],
        (Version::Two, None) => vec!["running", "paused"],
        (Version::Two, Some(states)) => states.split(',').collect(),
    };
    // The SDKs encode each name and value once more than the query string needs.
    let again = |text: &str| {
        let text = text.replace('&', "%26").replace('=', "%3D");
        form_urlencoded::parse(text.as_bytes()).next().map(|(text, _)| text.into_owned())
    };
    let metadata = query.get("metadata").map(String::as_str).unwrap_or_default();
    let wanted: Vec<(String, String)> = form_urlencoded::parse(metadata.as_bytes())
        .map(|(name, value)| (again(&name).unwrap_or_default(), again(&value).unwrap_or_default()))
        .collect();
    let fits = |sandbox: &Arc<Sandbox>| {
        states.contains(&sandbox.state().name())
            && wanted.iter().all(|(name, value)| sandbox.config.metadata.get(name) == Some(value))
            && query.get("template").is_none_or(|template| *template == sandbox.config.template)
    };
    let mut found: Vec<_> = service.catalog.sandboxes().into_iter().filter(fits).collect();
    if query.get("order").is_none_or(|order| order != "asc") {
        found.reverse();
    }
    let running = found.iter().filter(|sandbox| sandbox.state() == State::Running).count().to_string();
    page(found.iter().map(|sandbox| detail(sandbox)).collect(), query, &[("x-total-running", &running)])
}

/// One page of a list. The token of the next page is the index of its first item.
fn page(all: Vec<Value>, query: &HashMap<String, String>, headers: &[(&str, &str)]) -> Answer {
    let number = |name: &str, default: usize| match query.get(name) {
        None => Ok(default),
        Some(text) => text.parse().map_err(|_| Refusal(400, format!("{name} {text:?} is not valid"))),
    };
    let (limit, from) = (number("limit", PAGE)?.clamp(1, PAGE), number("nextToken", 0)?);
    let next = (from.saturating_add(limit) < all.len()).then(|| (from + limit).to_string());
    let page: Vec<_> = all.into_iter().skip(from).take(limit).collect();
    let mut headers = headers.to_vec();
    headers.extend(next.as_ref().map(|next| ("x-next-token", next.as_str())));
    Ok(write(200, &page.into(), &headers))
}

fn find(service: &Service, id: &str) -> Result<Arc<Sandbox>, Refusal> {
    service.catalog.sandbox(id).ok_or_else(|| missing(id))
}

fn missing(id: &str) -> Refusal {
    Refusal(404, format!("Sandbox '{id}' not found"))
}

/// The `Sandbox` of the API.
fn brief(sandbox: &Sandbox) -> Value {
    let mut brief = json!({
        "templateID": sandbox.config.template,
        "alias": sandbox.config.template,
        "sandboxID": sandbox.id,
        "clientID": "00000000",
        "envdVersion": envd::VERSION,
        "domain": null,
    });
    if let Some(token) = &sandbox.token {
        brief["envdAccessToken"] = json!(token);
    }
    if let Some(token) = &sandbox.traffic_token {
        brief["trafficAccessToken"] = json!(token);
    }
    brief
}

/// The `SandboxDetail` of the API, which is also what lists contain.
fn detail(sandbox: &Sandbox) -> Value {
    let mut detail = brief(sandbox);
    let pauses = sandbox.config.on_timeout != OnTimeout::Kill;
    let more = json!({
        "startedAt": rfc3339(sandbox.started),
        "endAt": rfc3339(sandbox.end()),
        "cpuCount": 2,
        "memoryMB": 512,
        "diskSizeMB": 1024,
        "state": sandbox.state().name(),
        "metadata": sandbox.config.metadata,
        "allowInternetAccess": sandbox.config.allow_internet_access,
        "lifecycle": {
            "autoResume": sandbox.config.on_traffic == OnTraffic::Resume,
            "onTimeout": if pauses { "pause" } else { "kill" },
        },
    });
    if let (Some(detail), Value::Object(more)) = (detail.as_object_mut(), more) {
        detail.remove("trafficAccessToken");
        detail.extend(more);
    }
    detail
}

fn empty() -> Response<Body> {
    respond(204, &[], body::full(""))
}

fn write(status: u16, value: &Value, headers: &[(&str, &str)]) -> Response<Body> {
    let mut all = vec![("content-type", "application/json; charset=utf-8")];
    all.extend_from_slice(headers);
    respond(status, &all, body::full(value.to_string()))
}
