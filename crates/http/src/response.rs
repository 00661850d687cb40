//! An answer whose head has arrived: its status and headers, and a body that is read within limits.

use std::{fmt, net::SocketAddr, time::Duration};

use bytes::Bytes;
use futures::{
    StreamExt,
    stream::{self, BoxStream},
};
use reqwest::{StatusCode, Version, header::HeaderMap};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout_at};

use crate::{Complaint, HttpError, Phase, Redaction, coding::Body, error, request::Timeouts, retry::retry_after};

/// Maximum length of an error body, and how long it is read.
const LONGEST_COMPLAINT: usize = 64 << 10;
const COMPLAINT_TIME: Duration = Duration::from_secs(10);
/// How long the end of an answer may come after its last part.
const LINGER: Duration = Duration::from_millis(20);
/// Longer timeouts count as this one: a clock cannot add arbitrary durations.
const LONGEST: Duration = Duration::from_hours(24 * 365);

/// An answer. Its body is decompressed while it is read.
pub struct Response {
    pub(crate) inner: reqwest::Response,
    pub(crate) body: Body,
    pub(crate) peer: Peer,
    pub(crate) idle: Duration,
    pub(crate) deadline: Deadline,
}

/// The server of a request, as errors name it.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub(crate) server: String,
    pub(crate) redaction: Redaction,
    /// Whether the connection goes through a proxy.
    pub(crate) is_proxied: bool,
}

/// The deadline of a whole request with all its attempts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    at: Instant,
    limit: Duration,
}

impl Deadline {
    pub(crate) fn of(timeouts: &Timeouts) -> Self {
        let limit = timeouts.total.unwrap_or(LONGEST);
        Self { at: Instant::now() + limit.min(LONGEST), limit }
    }

    /// The deadline of a step: its own, or that of the whole request if that is earlier.
    pub(crate) fn step(&self, phase: Phase, limit: Duration) -> (Instant, Phase, Duration) {
        let step = Instant::now() + limit.min(LONGEST);
        if self.at < step { (self.at, Phase::Total, self.limit) } else { (step, phase, limit) }
    }

    /// Whether this much time remains.
    pub(crate) fn allows(&self, pause: Duration) -> bool {
        Instant::now() + pause.min(LONGEST) < self.at
    }
}

impl Peer {
    /// The error of a connection that could not be opened, or that broke.
    pub(crate) fn lost(&self, error: reqwest::Error) -> HttpError {
        let server = self.server.clone();
        let (is_builder, was_reached) = (error.is_builder(), !error.is_connect() || error::was_cut(&error));
        let reason = self.redaction.clean(&error::reason(&error.without_url()));
        match (is_builder, was_reached) {
            (true, _) => HttpError::Unusable { server, reason },
            (false, true) => HttpError::Broken { server, reason },
            (false, false) => HttpError::Connect { server, reason },
        }
    }

    pub(crate) fn late(&self, phase: Phase, limit: Duration) -> HttpError {
        HttpError::Timeout { server: self.server.clone(), phase, limit }
    }

    pub(crate) fn malformed(&self, reason: &str) -> HttpError {
        HttpError::Malformed { server: self.server.clone(), reason: self.redaction.clean(reason) }
    }
}

impl Response {
    /// The status.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.inner.status()
    }

    /// The headers.
    #[must_use]
    pub fn headers(&self) -> &HeaderMap {
        self.inner.headers()
    }

    /// A header's value, if it is text.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers().get(name)?.to_str().ok()
    }

    /// How long the server asks to wait before the next attempt.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        retry_after(self.headers(), jiff::Timestamp::now())
    }

    /// The address of the server; `None` behind a proxy.
    #[must_use]
    pub fn server_address(&self) -> Option<SocketAddr> {
        self.inner.remote_addr().filter(|_| !self.peer.is_proxied)
    }

    /// Length of the body before decompression, if the server announced it.
    #[must_use]
    pub fn announced(&self) -> Option<u64> {
        self.inner.content_length()
    }

    /// The secrets of the request, for removing them from texts of this answer.
    #[must_use]
    pub fn redaction(&self) -> &Redaction {
        &self.peer.redaction
    }

    /// Returns this answer if its status is a success.
    ///
    /// # Errors
    /// [`HttpError::Status`] with the server's message.
    pub async fn success(mut self) -> Result<Self, HttpError> {
        if self.status().is_success() {
            return Ok(self);
        }
        let told = self.complaint().await;
        Err(HttpError::Status {
            server: self.peer.server.clone(),
            status: self.status().as_u16(),
            code: told.code,
            message: told.message,
            retry_after: self.retry_after(),
        })
    }

    /// The error in the body, without secrets. If only a part of the body arrives, that part is used.
    pub async fn complaint(&mut self) -> Complaint {
        let until = Instant::now() + COMPLAINT_TIME;
        let mut plain = Vec::new();
        while plain.len() < LONGEST_COMPLAINT {
            match timeout_at(until, self.chunk()).await {
                Ok(Ok(Some(more))) => plain.extend_from_slice(&more[..more.len().min(LONGEST_COMPLAINT - plain.len())]),
                Ok(Err(HttpError::Malformed { reason, .. })) if plain.is_empty() => plain = reason.into_bytes(),
                Ok(Ok(None) | Err(_)) | Err(_) => break,
            }
        }
        let told = Complaint::read(&plain);
        let redaction = &self.peer.redaction;
        let code = told.code.map(|code| redaction.clean(&code));
        Complaint { code, message: redaction.clean_beginning(&told.message), ..told }
    }

    /// The next part of the body, decompressed; `None` at the end.
    ///
    /// # Errors
    /// If the connection breaks, a timeout expires, or the body is not in the form that the server announced.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, HttpError> {
        loop {
            if let Some(plain) = self.body.next().map_err(|reason| self.peer.malformed(&reason))? {
                return Ok(Some(plain));
            }
            let Some(piece) = self.receive().await? else { return Ok(None) };
            self.body.push(piece);
        }
    }

    /// The parts of the body as a stream.
    pub fn into_stream(self) -> BoxStream<'static, Result<Bytes, HttpError>> {
        let parts = stream::try_unfold(self, |mut response| async move {
            let part = response.chunk().await?;
            Ok(part.map(|part| (part, response)))
        });
        parts.boxed()
    }

    /// The whole body.
    ///
    /// # Errors
    /// [`HttpError::TooLarge`] if the body is longer than `limit`, and the errors of [`chunk`](Self::chunk).
    pub async fn bytes(mut self, limit: u64) -> Result<Bytes, HttpError> {
        let too_large = || HttpError::TooLarge { server: self.peer.server.clone(), limit };
        let is_plain = self.body.is_plain();
        if self.announced().is_some_and(|size| is_plain && size > limit) {
            return Err(too_large());
        }
        let too_large = too_large();
        let mut whole = Vec::new();
        while let Some(part) = self.chunk().await? {
            if (whole.len() + part.len()) as u64 > limit {
                return Err(too_large);
            }
            whole.extend_from_slice(&part);
        }
        Ok(whole.into())
    }

    /// The whole body, parsed as JSON.
    ///
    /// # Errors
    /// [`HttpError::Malformed`] if the body is not the expected JSON, and the errors of [`bytes`](Self::bytes).
    pub async fn json<T: DeserializeOwned>(self, limit: u64) -> Result<T, HttpError> {
        let peer = self.peer.clone();
        let body = self.bytes(limit).await?;
        serde_json::from_slice(&body).map_err(|error| peer.malformed(&format!("it is not the expected JSON: {error}")))
    }

    /// Reads the end of the answer, so that the connection can be reused for the next request.
    pub async fn finish(&mut self) {
        if self.inner.version() >= Version::HTTP_2 {
            return;
        }
        let until = Instant::now() + LINGER;
        while let Ok(Ok(Some(_trailing))) = timeout_at(until, self.inner.chunk()).await {}
    }

    async fn receive(&mut self) -> Result<Option<Bytes>, HttpError> {
        let (until, phase, limit) = self.deadline.step(Phase::Body, self.idle);
        match timeout_at(until, self.inner.chunk()).await {
            Err(_late) => Err(self.peer.late(phase, limit)),
            Ok(chunk) => chunk.map_err(|error| self.peer.lost(error)),
        }
    }
}

impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (server, status) = (&self.peer.server, self.status());
        f.debug_struct("Response").field("server", server).field("status", &status).finish_non_exhaustive()
    }
}
