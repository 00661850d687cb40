//! One request: its target, its content, its timeouts and retries.

use std::{fmt, io, time::Duration};

use bytes::Bytes;
use futures::{Stream, StreamExt, stream::BoxStream};
use reqwest::{
    Method, Url,
    header::{
        ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE, COOKIE, HeaderMap, HeaderName, HeaderValue, PROXY_AUTHORIZATION,
    },
};
use serde::Serialize;

use crate::{
    Key, Redaction, Retries,
    address::{self, Credentials},
    coding::ACCEPTED,
    retry::Repeat,
};

/// Minimum length of a query value that is hidden. Shorter values are words like `running`, and stay in messages.
const SHORTEST_QUERY_SECRET: usize = 8;

/// The timeouts of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// From the start of an attempt to the head of its answer.
    pub head: Duration,
    /// Longest time without a byte of the body.
    pub idle: Duration,
    /// For all attempts, the pauses between them, and the body. `None` is for streams without an end.
    pub total: Option<Duration>,
}

impl Default for Timeouts {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { head: seconds(60), idle: seconds(60), total: Some(seconds(600)) }
    }
}

/// A request. Errors in it are reported when it is sent.
///
/// ```
/// use sandbar_http::{Request, Retries};
///
/// let request = Request::post("https://api.example/v1/sandboxes")
///     .secret_header("x-api-key", "key-123456")
///     .json(&serde_json::json!({ "template": "base" }))
///     .retries(Retries::none());
/// assert!(!format!("{request:?}").contains("key-123456"));
/// ```
pub struct Request {
    pub(crate) method: Method,
    pub(crate) url: Result<Url, String>,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Body,
    pub(crate) timeouts: Timeouts,
    pub(crate) retries: Retries,
    pub(crate) coding: Accepted,
    pub(crate) fault: Option<String>,
    /// The given address, without secrets.
    shown: String,
    secrets: Vec<String>,
    repeat: Repeat,
}

pub(crate) enum Body {
    Bytes(Bytes),
    /// `None` after the first attempt.
    Stream(Option<BoxStream<'static, io::Result<Bytes>>>),
}

/// Whether the body of the answer may be compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Accepted {
    Compressed,
    AsItIs,
}

impl Request {
    /// A request with this method to this address. A user and a password in the address become a header.
    pub fn new(method: Method, url: impl AsRef<str>) -> Self {
        let text = url.as_ref().trim();
        let repeat = if method.is_idempotent() { Repeat::Harmless } else { Repeat::IfUntouched };
        let url = Url::parse(text).map_err(|error| format!("its address is malformed: {error}"));
        let url = url.and_then(|url| match url.scheme() {
            "http" | "https" => Ok(url),
            _ => Err("its address must begin with http:// or https://".to_owned()),
        });
        let mut request = Self {
            method,
            url,
            headers: HeaderMap::new(),
            body: Body::Bytes(Bytes::new()),
            timeouts: Timeouts::default(),
            retries: Retries::default(),
            coding: Accepted::Compressed,
            fault: None,
            shown: address::shown_text(text),
            secrets: Vec::new(),
            repeat,
        };
        if let Some(credentials) = request.url.as_mut().ok().and_then(Credentials::take) {
            request.secrets.extend(credentials.secrets());
            request = request.secret_header(AUTHORIZATION.as_str(), &credentials.basic());
        }
        request
    }

    /// A `GET` request.
    pub fn get(url: impl AsRef<str>) -> Self {
        Self::new(Method::GET, url)
    }

    /// A `POST` request.
    pub fn post(url: impl AsRef<str>) -> Self {
        Self::new(Method::POST, url)
    }

    /// A `PUT` request.
    pub fn put(url: impl AsRef<str>) -> Self {
        Self::new(Method::PUT, url)
    }

    /// A `DELETE` request.
    pub fn delete(url: impl AsRef<str>) -> Self {
        Self::new(Method::DELETE, url)
    }

    /// Sets a header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        match (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            (Ok(name), Ok(value)) => self.insert(name, value),
            _ => self.fault = Some(format!("no request can carry the header {name:?}")),
        }
        self
    }

    /// Sets a header whose value is a key, a password or a token.
    #[must_use]
    pub fn secret_header(mut self, name: &str, value: &str) -> Self {
        match (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            (Ok(name), Ok(mut value)) => {
                value.set_sensitive(true);
                self.insert(name, value);
            }
            _ => self.fault = Some(format!("no request can carry the header {name:?}")),
        }
        self.secret(value)
    }

    /// Sends this key in the `Authorization` header.
    #[must_use]
    pub fn bearer(self, key: &str) -> Self {
        self.secret_header(AUTHORIZATION.as_str(), &format!("Bearer {key}"))
    }

    /// Sets these headers. Those that are marked as sensitive are secrets.
    #[must_use]
    pub fn headers(mut self, headers: &HeaderMap) -> Self {
        for (name, value) in headers {
            self.insert(name.clone(), value.clone());
        }
        self
    }

    /// Adds a parameter to the address.
    #[must_use]
    pub fn query(mut self, name: &str, value: &str) -> Self {
        if let Ok(url) = &mut self.url {
            url.query_pairs_mut().append_pair(name, value);
        }
        self
    }

    /// Adds a parameter whose value is a key, a password or a token.
    #[must_use]
    pub fn secret_query(self, name: &str, value: &str) -> Self {
        self.query(name, value).secret(value)
    }

    /// Hides this text in every message. The request then counts as one that carries a key.
    #[must_use]
    pub fn secret(mut self, text: &str) -> Self {
        self.secrets.push(text.to_owned());
        self
    }

    /// Sends this value as JSON.
    #[must_use]
    pub fn json(mut self, value: &(impl Serialize + ?Sized)) -> Self {
        self.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        match serde_json::to_vec(value) {
            Ok(bytes) => self.body = Body::Bytes(bytes.into()),
            Err(error) => self.fault = Some(format!("its body cannot be written as JSON: {error}")),
        }
        self
    }

    /// Sends these bytes.
    #[must_use]
    pub fn body(mut self, bytes: impl Into<Bytes>) -> Self {
        self.body = Body::Bytes(bytes.into());
        self
    }

    /// Sends this stream. The request is then never repeated.
    #[must_use]
    pub fn stream(mut self, stream: impl Stream<Item = io::Result<Bytes>> + Send + 'static) -> Self {
        self.body = Body::Stream(Some(stream.boxed()));
        self
    }

    /// Sets the timeouts.
    #[must_use]
    pub fn timeouts(mut self, timeouts: Timeouts) -> Self {
        self.timeouts = timeouts;
        self
    }

    /// Sets the retries.
    #[must_use]
    pub fn retries(mut self, retries: Retries) -> Self {
        self.retries = retries;
        self
    }

    /// Marks the request as harmless to repeat, as `GET`, `PUT` and `DELETE` already are.
    #[must_use]
    pub fn idempotent(mut self) -> Self {
        self.repeat = Repeat::Harmless;
        self
    }

    /// Asks for an uncompressed body, and does not decompress it.
    #[must_use]
    pub fn uncompressed(mut self) -> Self {
        self.coding = Accepted::AsItIs;
        self
    }

    /// The secrets of the request, for removing them from texts of its answer.
    #[must_use]
    pub fn redaction(&self) -> Redaction {
        let headers = self.headers.values().filter(|value| value.is_sensitive());
        let headers = headers.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
        // A server that receives `Bearer KEY` may repeat the key alone.
        let headers = headers.flat_map(|value| {
            let key = value.split_once(' ').map(|(_, key)| key.to_owned());
            [Some(value), key].into_iter().flatten()
        });
        let query = self.url.iter().flat_map(Url::query_pairs).map(|(_, value)| value.into_owned());
        let query = query.filter(|value| value.len() >= SHORTEST_QUERY_SECRET);
        Redaction::new(headers.chain(query).chain(self.secrets.iter().cloned()))
    }

    /// Whether the request carries a key.
    pub(crate) fn key(&self) -> Key {
        let carried = !self.secrets.is_empty() || self.headers.values().any(HeaderValue::is_sensitive);
        if carried { Key::Carried } else { Key::Absent }
    }

    pub(crate) fn repeat(&self) -> Repeat {
        match self.body {
            Body::Bytes(_) => self.repeat,
            Body::Stream(_) => Repeat::Impossible,
        }
    }

    /// The given address without secrets; it may not be a valid address.
    pub(crate) fn shown(&self) -> &str {
        &self.shown
    }

    /// The headers, with those that every request has.
    pub(crate) fn complete_headers(&self) -> HeaderMap {
        let mut headers = self.headers.clone();
        let accepted = match self.coding {
            Accepted::Compressed => ACCEPTED,
            Accepted::AsItIs => "identity",
        };
        headers.entry(ACCEPT_ENCODING).or_insert(HeaderValue::from_static(accepted));
        headers
    }

    fn insert(&mut self, name: HeaderName, mut value: HeaderValue) {
        if [AUTHORIZATION, PROXY_AUTHORIZATION, COOKIE].contains(&name) {
            value.set_sensitive(true);
        }
        self.headers.insert(name, value);
    }
}

impl Body {
    /// The body of the next attempt.
    pub(crate) fn take(&mut self) -> reqwest::Body {
        match self {
            Self::Bytes(bytes) => bytes.clone().into(),
            Self::Stream(stream) => match stream.take() {
                Some(stream) => reqwest::Body::wrap_stream(stream),
                None => Bytes::new().into(),
            },
        }
    }
}

/// Without secrets.
impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("method", &self.method)
            .field("url", &self.shown)
            .field("headers", &self.headers)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_secret_of_a_request_is_redacted() {
        let request = Request::get("https://me:hunter-2@h/x?sig=signed-12345&state=running")
            .header("authorization", "Token abc-123456")
            .secret_header("x-api-key", "key-123456")
            .secret_query("t", "tok-1")
            .secret("other");
        let echo = "hunter-2 bWU6aHVudGVyLTI= signed-12345 running abc-123456 key-123456 tok-1 other";
        let expected = "[secret] [secret] [secret] running [secret] [secret] [secret] [secret]";
        assert_eq!(request.redaction().clean(echo), expected);
        let shown = format!("{request:?}");
        assert!(!["hunter", "signed", "abc-", "key-1"].iter().any(|secret| shown.contains(secret)), "{shown}");
        assert_eq!(
            request.url.as_ref().expect("usable").as_str(),
            "https://h/x?sig=signed-12345&state=running&t=tok-1"
        );
    }

    #[test]
    fn a_key_is_seen_wherever_it_is() {
        for (request, expected) in [
            (Request::get("http://h/"), Key::Absent),
            (Request::get("http://h/").header("accept", "text/plain"), Key::Absent),
            (Request::get("http://h/").header("Authorization", "x"), Key::Carried),
            (Request::get("http://h/").header("Cookie", "x"), Key::Carried),
            (Request::get("http://h/").bearer("x"), Key::Carried),
            (Request::get("http://me@h/"), Key::Carried),
            (Request::get("http://h/").secret_query("key", "x"), Key::Carried),
        ] {
            assert_eq!(request.key(), expected, "{request:?}");
        }
    }

    #[test]
    fn a_request_is_repeated_as_its_method_its_caller_and_its_body_allow() {
        let post = || Request::post("http://h/");
        let empty = || futures::stream::empty();
        for (request, expected) in [
            (Request::get("http://h/"), Repeat::Harmless),
            (Request::put("http://h/"), Repeat::Harmless),
            (Request::delete("http://h/"), Repeat::Harmless),
            (post(), Repeat::IfUntouched),
            (post().idempotent(), Repeat::Harmless),
            (Request::get("http://h/").stream(empty()), Repeat::Impossible),
        ] {
            assert_eq!(request.repeat(), expected, "{request:?}");
        }
    }
}
