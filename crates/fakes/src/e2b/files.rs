//! `GET /files` and `POST /files`: whole files, raw or in a form.

use std::{
    collections::HashMap,
    io::{Read as _, Write as _},
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD};
use bytes::Bytes;
use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use http_body_util::{BodyExt as _, Limited};
use hyper::{
    HeaderMap, Method, Response,
    header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HeaderName},
    http::request::Parts,
};
use sandbar_machine::{EntryKind, MachineError, MachinePath, collect, once};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::{
    connect::words,
    entry::{resolve, target},
    envd::{Caller, expand, refuse},
    multipart,
    sandbox::Sandbox,
};
use crate::{
    body::{self, Body, RequestBody},
    listener::respond,
};

/// Size limit of uploads and downloads.
const LONGEST_FILE: usize = 256 << 20;

/// Refusal of a request: a status and a reason.
type Refusal = (u16, String);

/// Answers a request for files.
pub(super) async fn answer(sandbox: &Arc<Sandbox>, parts: Parts, body: RequestBody) -> Response<Body> {
    let query: HashMap<String, String> =
        form_urlencoded::parse(parts.uri.query().unwrap_or_default().as_bytes()).into_owned().collect();
    let operation = if parts.method == Method::GET { "read" } else { "write" };
    let answer = async {
        permit(sandbox, &parts.headers, &query, operation).map_err(|reason| (401, reason))?;
        let username = query.get("username").map(String::as_str).unwrap_or_default();
        let caller = Caller::named(sandbox, username)
            .map_err(|name| (401, format!("error looking up user '{name}': user: unknown user {name}")))?;
        if parts.method == Method::GET {
            return download(&caller, &parts.headers, query.get("path").map_or("", String::as_str)).await;
        }
        upload(&caller, &parts.headers, query.get("path").map(String::as_str), body).await
    };
    answer.await.unwrap_or_else(|(status, reason): Refusal| refuse(status, &reason))
}

/// Checks the access token, or else the signature of the URL.
fn permit(
    sandbox: &Sandbox,
    headers: &HeaderMap,
    query: &HashMap<String, String>,
    operation: &str,
) -> Result<(), String> {
    let Some(token) = &sandbox.token else { return Ok(()) };
    if let Some(given) = headers.get("x-access-token").filter(|given| !given.is_empty()) {
        let fits = given.as_bytes() == token.as_bytes();
        return if fits { Ok(()) } else { Err("access token present in header but does not match".to_owned()) };
    }
    let value = |name: &str| query.get(name).map_or("", String::as_str);
    let Some(given) = query.get("signature") else { return Err("missing signature query parameter".to_owned()) };
    let mut signed = format!("{}:{operation}:{}:{token}", value("path"), value("username"));
    let expiration = query.get("signature_expiration");
    if let Some(expiration) = expiration {
        signed = format!("{signed}:{expiration}");
    }
    if *given != format!("v1_{}", STANDARD_NO_PAD.encode(Sha256::digest(signed))) {
        return Err("invalid signature".to_owned());
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    match expiration.map(|expiration| expiration.parse::<u64>()) {
        Some(Ok(until)) if until >= now => Ok(()),
        None => Ok(()),
        _ => Err("signature is already expired".to_owned()),
    }
}

async fn download(caller: &Caller, headers: &HeaderMap, path: &str) -> Result<Response<Body>, Refusal> {
    let path = expand(path, &caller.user).map_err(|error| (400, error.message))?;
    let (real, found) = resolve(caller, &path).await.map_err(|error| (500, error.message))?;
    match found.map(|found| found.kind) {
        Some(EntryKind::File) => {}
        None => return Err((404, format!("path '{path}' does not exist"))),
        Some(EntryKind::Dir) => return Err((400, format!("path '{path}' is a directory"))),
        Some(_) => return Err((400, format!("path '{path}' is not a regular file"))),
    }
    let opened = caller.sandbox.machine.read(&target(caller, &real)).await.map_err(|error| failed(&error))?;
    let content = collect(opened, LONGEST_FILE).await.map_err(|error| failed(&error))?;
    let name = path.name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let disposition = format!("inline; filename={}", quoted(&name));
    let kind = kind_of(&name, &content);
    let mut response =
        [("content-disposition", disposition.as_str()), ("content-type", kind), ("vary", "Accept-Encoding")].to_vec();
    if !mentions(headers, ACCEPT_ENCODING, "gzip") {
        response.push(("accept-ranges", "bytes"));
        return Ok(respond(200, &response, body::full(content)));
    }
    response.push(("content-encoding", "gzip"));
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    let packed = packed.write_all(&content).and_then(|()| packed.finish()).map_err(|error| (500, error.to_string()))?;
    Ok(respond(200, &response, body::full(packed)))
}

async fn upload(
    caller: &Caller,
    headers: &HeaderMap,
    path: Option<&str>,
    body: RequestBody,
) -> Result<Response<Body>, Refusal> {
    let read = Limited::new(body, LONGEST_FILE).collect().await;
    let mut content = read.map_err(|error| (400, format!("error reading form: {error}")))?.to_bytes();
    if mentions(headers, CONTENT_ENCODING, "gzip") {
        let mut plain = Vec::new();
        let limit = LONGEST_FILE as u64 + 1;
        let read = GzDecoder::new(&content[..]).take(limit).read_to_end(&mut plain);
        read.map_err(|error| (400, format!("error decompressing request body: {error}")))?;
        content = Bytes::from(plain);
    }
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let mut written: Vec<Value> = Vec::new();
    if kind.split(';').next().is_some_and(|kind| kind.trim() == "application/octet-stream") {
        let missing = || (400, "path query parameter is required for raw body upload".to_owned());
        written.push(write(caller, path.ok_or_else(missing)?, content).await?);
    } else if let Some(boundary) = multipart::boundary(kind) {
        let parts = multipart::parts(&content, &boundary);
        for part in parts.map_err(|fault| (500, format!("error parsing multipart form: {fault}")))? {
            let Some(path) = path.or(part.filename.as_deref()).filter(|_| part.name == "file") else { continue };
            let entry = write(caller, path, part.content).await?;
            if written.contains(&entry) {
                return Err((400, format!("you cannot upload multiple files to the same path {}", entry["path"])));
            }
            written.push(entry);
        }
    } else {
        return Err((400, format!("unsupported content type: {kind}")));
    }
    let headers = [("vary", "Origin"), ("content-type", "text/plain; charset=utf-8")];
    Ok(respond(200, &headers, body::full(Value::from(written).to_string())))
}

async fn write(caller: &Caller, path: &str, content: Bytes) -> Result<Value, Refusal> {
    let path = expand(path, &caller.user).map_err(|error| (400, format!("error resolving path: {}", error.message)))?;
    let (real, found) = resolve(caller, &path).await.map_err(|error| (500, error.message))?;
    if found.is_some_and(|found| found.kind == EntryKind::Dir) {
        return Err((400, format!("path is a directory: {path}")));
    }
    caller.sandbox.machine.write(&target(caller, &real), once(content)).await.map_err(|error| failed(&error))?;
    Ok(entry(&path))
}

fn entry(path: &MachinePath) -> Value {
    let name = path.name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    json!({"name": name, "path": path.to_string(), "type": "file"})
}

fn failed(error: &MachineError) -> Refusal {
    let status = if matches!(error, MachineError::Exhausted { .. }) { 507 } else { 500 };
    (status, words(error))
}

fn mentions(headers: &HeaderMap, name: HeaderName, wanted: &str) -> bool {
    let listed = headers.get_all(name);
    let names = listed.iter().filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','));
    names.map(|name| name.split(';').next().unwrap_or_default().trim()).any(|name| name == wanted)
}

/// A file name as a parameter: bare if it is a token.
fn quoted(name: &str) -> String {
    let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if !name.is_empty() && name.bytes().all(token) {
        return name.to_owned();
    }
    format!("\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\""))
}

fn kind_of(name: &str, content: &[u8]) -> &'static str {
    match name.rsplit_once('.').map_or("", |(_, extension)| extension) {
        "html" | "htm" => "text/html; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "json" => "application/json",
        "txt" => "text/plain; charset=utf-8",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "pdf" => "application/pdf",
        "bin" => "application/octet-stream",
        _ if content.iter().take(512).all(|byte| *byte >= 0x20 || b"\t\n\r\x0c\x1b".contains(byte)) => {
            "text/plain; charset=utf-8"
        }
        _ => "application/octet-stream",
    }
}
