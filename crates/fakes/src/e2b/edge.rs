//! The edge in front of the sandboxes: finds the sandbox and the port of a request.

use std::sync::Arc;

use futures::StreamExt as _;
use http_body_util::BodyExt as _;
use hyper::{
    HeaderMap, Response,
    header::{CONNECTION, HOST, HeaderName, TE, TRANSFER_ENCODING, UPGRADE},
    http::request::Parts,
};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use super::{
    envd,
    sandbox::{OnTraffic, Sandbox, State},
    service::Service,
};
use crate::{
    body::{self, Body, RequestBody},
    listener::respond,
};

/// Headers that are not forwarded.
const HOP_BY_HOP: [HeaderName; 4] = [CONNECTION, TE, TRANSFER_ENCODING, UPGRADE];

/// A port of a sandbox.
pub(super) struct Destination {
    id: String,
    port: u16,
}

/// Destination of a request; `None` is the control plane.
///
/// # Errors
/// The fault of the headers that name a sandbox.
pub(super) fn destination(parts: &Parts) -> Result<Option<Destination>, &'static str> {
    let header = |name: &str| parts.headers.get(name).map(|value| value.to_str().unwrap_or_default());
    match (header("e2b-sandbox-id"), header("e2b-sandbox-port")) {
        (None, None) => Ok(header(HOST.as_str()).and_then(from_host)),
        (Some(id), Some(port)) => match port.parse() {
            Ok(port) => Ok(Some(Destination { id: id.to_owned(), port })),
            Err(_) => Err("Invalid sandbox port"),
        },
        _ => Err("missing header"),
    }
}

/// Parses `PORT-ID.DOMAIN`.
fn from_host(host: &str) -> Option<Destination> {
    let (label, _domain) = host.split_once('.')?;
    let (port, id) = label.split_once('-')?;
    Some(Destination { id: id.to_owned(), port: port.parse().ok()? })
}

/// Answers a request to a sandbox.
pub(super) async fn answer(service: &Service, to: Destination, parts: Parts, body: RequestBody) -> Response<Body> {
    let Some(sandbox) = service.catalog.sandbox(&to.id) else { return not_found(&to.id) };
    if sandbox.state() == State::Paused {
        let resumed = match sandbox.config.on_traffic {
            OnTraffic::Resume => sandbox.resume(sandbox.config.timeout).await.is_ok(),
            OnTraffic::Refuse => false,
        };
        if !resumed {
            return not_found(&to.id);
        }
        service.rescheduled.notify_one();
    }
    // Requests in flight are aborted when the sandbox is paused or killed.
    let mut cut = sandbox.cut();
    let id = to.id.clone();
    tokio::select! {
        biased;
        response = reach(sandbox, to.port, parts, body) => response,
        _changed = cut.changed() => not_found(&id),
    }
}

async fn reach(sandbox: Arc<Sandbox>, port: u16, parts: Parts, body: RequestBody) -> Response<Body> {
    if port == envd::PORT {
        return envd::answer(sandbox, parts, body).await;
    }
    if let Some(refusal) = refuse_traffic(&sandbox, &parts.headers) {
        return refusal;
    }
    match forward(&sandbox, port, parts, body).await {
        Some(response) => response,
        None => port_closed(&sandbox.id, port),
    }
}

fn refuse_traffic(sandbox: &Sandbox, headers: &HeaderMap) -> Option<Response<Body>> {
    let token = sandbox.traffic_token.as_ref()?;
    let given = headers.get("e2b-traffic-access-token");
    if given.is_some_and(|given| given.as_bytes() == token.as_bytes()) {
        return None;
    }
    let what = if given.is_some() { "invalid" } else { "missing" };
    Some(refuse(403, json!({"sandboxId": sandbox.id, "message": format!("the traffic access token is {what}")})))
}

/// Forwards a request to a port of the machine; `None` if the port is closed.
async fn forward(sandbox: &Sandbox, port: u16, mut parts: Parts, body: RequestBody) -> Option<Response<Body>> {
    let address = sandbox.machine.ports()?.open(port).await.ok()?.socket()?;
    let stream = TcpStream::connect(address).await.ok()?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.ok()?;
    // The task ends with the request, or with the machine.
    tokio::spawn(connection);
    for name in HOP_BY_HOP {
        parts.headers.remove(name);
    }
    parts.uri = parts.uri.path_and_query()?.as_str().parse().ok()?;
    let response = sender.send_request(hyper::Request::from_parts(parts, body)).await.ok()?;
    let (mut parts, body) = response.into_parts();
    for name in HOP_BY_HOP {
        parts.headers.remove(name);
    }
    // The sender is held until the body is over: without it the connection ends.
    let stream = body.into_data_stream().map(move |piece| {
        let _open = &sender;
        piece.map_err(Into::into)
    });
    Some(Response::from_parts(parts, body::streamed(stream)))
}

/// The answer for a sandbox that is paused, was killed, or never existed.
fn not_found(id: &str) -> Response<Body> {
    refuse(502, json!({"sandboxId": id, "message": "The sandbox was not found"}))
}

fn port_closed(id: &str, port: u16) -> Response<Body> {
    let message = "The sandbox is running but port is not open";
    refuse(502, json!({"sandboxId": id, "message": message, "port": port}))
}

fn refuse(status: u16, mut value: Value) -> Response<Body> {
    value["code"] = json!(status);
    respond(status, &[("content-type", "application/json; charset=utf-8")], body::full(value.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_names_a_port_and_a_sandbox() {
        let found = |host| from_host(host).map(|to| (to.port, to.id));
        assert_eq!(found("8000-iabc.localhost:4711"), Some((8000, "iabc".to_owned())));
        assert_eq!(found("49983-iabc.e2b.app"), Some((49983, "iabc".to_owned())));
        for host in ["localhost:4711", "127.0.0.1:80", "api.e2b.app", "x-iabc.e2b.app", "99999-iabc.e2b.app", "80-iabc"]
        {
            assert_eq!(found(host), None, "{host}");
        }
    }
}
