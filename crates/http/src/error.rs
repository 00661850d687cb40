//! Errors of requests, without secrets.

use std::{error::Error, io, time::Duration};

use crate::ProxyError;

/// Why a request failed. No text in it contains a secret of the request, even if the server repeated it.
///
/// `server` is the scheme, host and port of the request, and the proxy, if there is one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HttpError {
    /// The request is invalid.
    #[error("the request to {server} cannot be made: {reason}")]
    Unusable {
        /// The server.
        server: String,
        /// Why the request is invalid.
        reason: String,
    },
    /// The settings of the proxy cannot be used.
    #[error(transparent)]
    Proxy(#[from] ProxyError),
    /// The client is not allowed to connect to this address.
    #[error("{server} has an address that is not allowed")]
    Refused {
        /// The server.
        server: String,
    },
    /// The connection could not be opened.
    #[error("cannot reach {server}: {reason}")]
    Connect {
        /// The server.
        server: String,
        /// The cause.
        reason: String,
    },
    /// The connection broke, before or during the answer.
    #[error("the connection to {server} broke: {reason}")]
    Broken {
        /// The server.
        server: String,
        /// The cause.
        reason: String,
    },
    /// A timeout expired.
    #[error("{server} {phase} within {} s", .limit.as_secs_f64())]
    Timeout {
        /// The server.
        server: String,
        /// The step that took too long.
        phase: Phase,
        /// The timeout.
        limit: Duration,
    },
    /// The server answered with a status that is not a success.
    #[error("{server} answered {status}: {message}")]
    Status {
        /// The server.
        server: String,
        /// The status.
        status: u16,
        /// The server's code for the error.
        code: Option<String>,
        /// The server's message.
        message: String,
        /// How long the server asks to wait before the next attempt.
        retry_after: Option<Duration>,
    },
    /// The body is larger than the caller's limit.
    #[error("the answer of {server} is larger than {limit} bytes")]
    TooLarge {
        /// The server.
        server: String,
        /// The limit.
        limit: u64,
    },
    /// The body is not in the form that the server announced.
    #[error("the answer of {server} cannot be read: {reason}")]
    Malformed {
        /// The server.
        server: String,
        /// Why the body cannot be read.
        reason: String,
    },
}

/// A step of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Opening the connection.
    Connect,
    /// Waiting for the head of the answer.
    Head,
    /// Waiting for the next part of the body.
    Body,
    /// The whole request.
    Total,
}

impl std::fmt::Display for Phase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Connect => "cannot be reached",
            Self::Head => "did not answer",
            Self::Body => "sent nothing more",
            Self::Total => "did not finish its answer",
        })
    }
}

impl HttpError {
    /// Whether the same request may succeed later.
    #[must_use]
    pub fn retryable(&self) -> bool {
        match self {
            Self::Connect { .. } | Self::Broken { .. } | Self::Timeout { .. } => true,
            Self::Status { status, .. } => matches!(status, 408 | 425 | 429 | 500 | 502 | 503 | 504),
            Self::Unusable { .. }
            | Self::Proxy(_)
            | Self::Refused { .. }
            | Self::TooLarge { .. }
            | Self::Malformed { .. } => false,
        }
    }

    /// The status of the answer.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Status { status, .. } => Some(*status),
            _ => None,
        }
    }
}

/// An error and its causes.
fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |cause: &&(dyn Error + 'static)| (*cause).source()).take(16)
}

/// Whether an error, or one of its causes, has this type.
pub(crate) fn caused_by<E: Error + 'static>(error: &reqwest::Error) -> bool {
    causes(error).any(|cause| cause.is::<E>())
}

/// Whether a connection was opened and then cut.
pub(crate) fn was_cut(error: &reqwest::Error) -> bool {
    causes(error).filter_map(|cause| cause.downcast_ref::<io::Error>()).any(|cause| {
        use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
        matches!(cause.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof)
    })
}

/// The texts of an error's causes, without those that contain no information.
pub(crate) fn reason(error: &reqwest::Error) -> String {
    const SAYS_NOTHING: [&str; 5] =
        ["error sending request", "client error", "request or response body error", "error decoding", "builder error"];
    let all: Vec<String> = causes(error).map(ToString::to_string).collect();
    let mut said: Vec<&str> = Vec::new();
    for text in all.iter().filter(|text| !SAYS_NOTHING.iter().any(|start| text.starts_with(start))) {
        if !said.iter().any(|before| before.contains(text.as_str())) {
            said.push(text);
        }
    }
    match said.is_empty() {
        true => all.last().cloned().unwrap_or_default(),
        false => said.join(": "),
    }
}
