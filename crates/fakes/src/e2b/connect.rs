//! The Connect protocol in JSON: error codes, unary answers, and streams of envelopes.

use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use futures::{Stream, StreamExt as _};
use http_body_util::{BodyExt as _, Limited};
use hyper::{HeaderMap, Response, header::CONTENT_TYPE};
use sandbar_machine::MachineError;
use serde_json::{Value, json};

use crate::{
    body::{self, Body, RequestBody},
    listener::respond,
};

/// Limit of a message, in bytes.
const LONGEST_MESSAGE: usize = 16 << 20;
const UNARY: &str = "application/json";
const STREAM: &str = "application/connect+json";
const END_OF_STREAM: u8 = 2;

/// An error code of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Code {
    Unknown,
    InvalidArgument,
    DeadlineExceeded,
    NotFound,
    AlreadyExists,
    FailedPrecondition,
    Unimplemented,
    Internal,
    Unavailable,
    Unauthenticated,
}

impl Code {
    fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::InvalidArgument => "invalid_argument",
            Self::DeadlineExceeded => "deadline_exceeded",
            Self::NotFound => "not_found",
            Self::AlreadyExists => "already_exists",
            Self::FailedPrecondition => "failed_precondition",
            Self::Unimplemented => "unimplemented",
            Self::Internal => "internal",
            Self::Unavailable => "unavailable",
            Self::Unauthenticated => "unauthenticated",
        }
    }

    /// The status of a unary answer; a stream's is always 200.
    fn status(self) -> u16 {
        match self {
            Self::InvalidArgument | Self::FailedPrecondition => 400,
            Self::Unauthenticated => 401,
            Self::NotFound => 404,
            Self::AlreadyExists => 409,
            Self::Unknown | Self::Internal => 500,
            Self::Unimplemented => 501,
            Self::Unavailable => 503,
            Self::DeadlineExceeded => 504,
        }
    }
}

/// Failure of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RpcError {
    pub(super) code: Code,
    pub(super) message: String,
}

impl RpcError {
    pub(super) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    pub(super) fn deadline() -> Self {
        Self::new(Code::DeadlineExceeded, "context deadline exceeded")
    }

    fn json(&self) -> Value {
        json!({"code": self.code.name(), "message": self.message})
    }
}

impl From<MachineError> for RpcError {
    fn from(error: MachineError) -> Self {
        let code = match error {
            MachineError::NotFound(_) => Code::NotFound,
            MachineError::Invalid { .. } => Code::InvalidArgument,
            MachineError::Gone | MachineError::Transport { .. } => Code::Unavailable,
            _ => Code::Internal,
        };
        Self::new(code, words(&error))
    }
}

/// An error with its causes.
pub(super) fn words(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |words, cause| format!("{words}: {cause}"))
}

/// The call's `Connect-Timeout-Ms`; 0 means none.
///
/// # Errors
/// The value is not a number.
pub(super) fn deadline(headers: &HeaderMap) -> Result<Option<Duration>, RpcError> {
    let Some(given) = headers.get("connect-timeout-ms") else { return Ok(None) };
    let millis = given.to_str().ok().and_then(|text| text.parse().ok());
    let millis = millis.ok_or_else(|| RpcError::new(Code::InvalidArgument, "Connect-Timeout-Ms is not a number"))?;
    Ok(Some(Duration::from_millis(millis)).filter(|after| !after.is_zero()))
}

/// Framing of the messages of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    Unary,
    Stream,
}

impl Framing {
    /// Status 415 for a call whose content type is not the JSON variant of this framing.
    pub(super) fn refuse(self, headers: &HeaderMap) -> Option<Response<Body>> {
        let wanted = if self == Self::Unary { UNARY } else { STREAM };
        let given = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let given = given.split(';').next().unwrap_or_default().trim();
        (given != wanted).then(|| respond(415, &[("accept-post", wanted)], body::full("")))
    }
}

/// The one message of a unary call.
pub(super) async fn message(body: RequestBody) -> Result<Value, RpcError> {
    let read = Limited::new(body, LONGEST_MESSAGE).collect().await;
    let bytes = read.map_err(|error| RpcError::new(Code::InvalidArgument, error.to_string()))?.to_bytes();
    parse(&bytes)
}

fn parse(bytes: &[u8]) -> Result<Value, RpcError> {
    if bytes.is_empty() {
        return Ok(json!({}));
    }
    serde_json::from_slice(bytes)
        .map_err(|error| RpcError::new(Code::InvalidArgument, format!("unmarshal message: {error}")))
}

/// The messages of a stream that a client sends.
pub(super) struct Envelopes {
    body: RequestBody,
    pending: BytesMut,
}

impl Envelopes {
    pub(super) fn new(body: RequestBody) -> Self {
        Self { body, pending: BytesMut::new() }
    }

    /// The next message; `None` at the end of the body.
    pub(super) async fn next(&mut self) -> Result<Option<Value>, RpcError> {
        let bad = |reason: &str| RpcError::new(Code::InvalidArgument, format!("protocol error: {reason}"));
        loop {
            if let [flags, a, b, c, d, rest @ ..] = &self.pending[..] {
                let length = u32::from_be_bytes([*a, *b, *c, *d]) as usize;
                if *flags != 0 {
                    return Err(bad("sent compressed message without compression support"));
                }
                if length > LONGEST_MESSAGE {
                    return Err(bad("message is too long"));
                }
                if let Some(message) = rest.get(..length) {
                    let message = parse(message)?;
                    let _consumed = self.pending.split_to(5 + length);
                    return Ok(Some(message));
                }
            }
            match self.body.frame().await {
                Some(Ok(frame)) => self.pending.extend_from_slice(frame.data_ref().map_or(&[], |data| &data[..])),
                Some(Err(error)) => return Err(RpcError::new(Code::Unknown, error.to_string())),
                None if self.pending.is_empty() => return Ok(None),
                None => return Err(bad("incomplete envelope")),
            }
        }
    }
}

/// The answer to a unary call.
pub(super) fn unary(answer: Result<Value, RpcError>) -> Response<Body> {
    let (status, value) = match answer {
        Ok(value) => (200, value),
        Err(error) => (error.code.status(), error.json()),
    };
    respond(status, &[("content-type", UNARY), ("vary", "Origin")], body::full(value.to_string()))
}

/// The answer to a streaming call: messages, and an error at the end if there is one.
pub(super) fn stream(messages: impl Stream<Item = Result<Value, RpcError>> + Send + 'static) -> Response<Body> {
    let messages = messages.map(Some).chain(futures::stream::once(async { None }));
    let envelopes = messages.scan(false, |ended, message| {
        let envelope = match message {
            _ if *ended => return futures::future::ready(None),
            Some(Ok(value)) => envelope(0, &value),
            Some(Err(error)) => {
                *ended = true;
                envelope(END_OF_STREAM, &json!({"error": error.json()}))
            }
            None => envelope(END_OF_STREAM, &json!({})),
        };
        futures::future::ready(Some(Ok(envelope)))
    });
    let headers = [("content-type", STREAM), ("connect-accept-encoding", "gzip"), ("vary", "Origin")];
    respond(200, &headers, body::streamed(envelopes))
}

fn envelope(flags: u8, value: &Value) -> Bytes {
    let text = value.to_string();
    let mut envelope = BytesMut::with_capacity(5 + text.len());
    envelope.put_u8(flags);
    envelope.put_u32(u32::try_from(text.len()).unwrap_or(u32::MAX));
    envelope.put_slice(text.as_bytes());
    envelope.freeze()
}
