//! The log of the requests that a fake received, for golden tests.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use hyper::{HeaderMap, header::HeaderValue, http::request::Parts};
use parking_lot::Mutex;
use serde_json::Value;

/// Limit of a logged body, in bytes.
const LONGEST_BODY: usize = 256 << 10;
/// Limit of logged requests; the oldest are dropped first.
const MOST_ENTRIES: usize = 4096;

/// A received request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Method, such as `GET`.
    pub method: String,
    /// Path, still encoded.
    pub path: String,
    /// Query after the `?`, still encoded; empty if there is none.
    pub query: String,
    /// Headers in the order of arrival, with names in lower case.
    pub headers: Vec<(String, String)>,
    /// The first 256 KiB of the body that the service read.
    pub body: Bytes,
    /// Whether the body was longer than the logged part.
    pub truncated: bool,
}

impl Request {
    /// The value of a header, by its name in lower case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The body as JSON, if it is.
    #[must_use]
    pub fn json(&self) -> Option<Value> {
        serde_json::from_slice(&self.body).ok()
    }

    /// The messages of an enveloped body, each with its flags and its JSON, up to the first incomplete message.
    #[must_use]
    pub fn messages(&self) -> Vec<(u8, Value)> {
        let mut rest = self.body.clone();
        let mut messages = Vec::new();
        while rest.len() >= 5 {
            let head = rest.split_to(5);
            let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
            if rest.len() < length {
                break;
            }
            let Ok(value) = serde_json::from_slice(&rest.split_to(length)) else { break };
            messages.push((head[0], value));
        }
        messages
    }
}

/// All requests so far.
#[derive(Debug, Default)]
pub(crate) struct Log(Mutex<Entries>);

#[derive(Debug, Default)]
struct Entries {
    /// The number of the oldest kept request.
    first: usize,
    kept: std::collections::VecDeque<(Request, BytesMut)>,
}

impl Log {
    /// Adds a request; its body is added as it is read.
    pub(crate) fn begin(self: &Arc<Self>, parts: &Parts) -> Recorder {
        let request = Request {
            method: parts.method.to_string(),
            path: parts.uri.path().to_owned(),
            query: parts.uri.query().unwrap_or_default().to_owned(),
            headers: headers(&parts.headers),
            body: Bytes::new(),
            truncated: false,
        };
        let mut entries = self.0.lock();
        if entries.kept.len() == MOST_ENTRIES {
            entries.kept.pop_front();
            entries.first += 1;
        }
        entries.kept.push_back((request, BytesMut::new()));
        let number = entries.first + entries.kept.len() - 1;
        Recorder { log: self.clone(), number }
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        let entries = self.0.lock();
        let whole =
            |(request, body): &(Request, BytesMut)| Request { body: Bytes::copy_from_slice(body), ..request.clone() };
        entries.kept.iter().map(whole).collect()
    }

    pub(crate) fn clear(&self) {
        let mut entries = self.0.lock();
        entries.first += entries.kept.len();
        entries.kept.clear();
    }
}

/// Appends to the logged body of one request.
#[derive(Debug)]
pub(crate) struct Recorder {
    log: Arc<Log>,
    number: usize,
}

impl Recorder {
    pub(crate) fn add(&self, bytes: &[u8]) {
        let mut entries = self.log.0.lock();
        let Some(at) = self.number.checked_sub(entries.first) else { return };
        let Some((request, body)) = entries.kept.get_mut(at) else { return };
        let room = LONGEST_BODY - body.len();
        body.extend_from_slice(&bytes[..bytes.len().min(room)]);
        request.truncated |= bytes.len() > room;
    }
}

fn headers(headers: &HeaderMap) -> Vec<(String, String)> {
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect()
}
