//! Why a request failed, in words without secrets.

use std::{error::Error, io, time::Duration};

use crate::ProxyError;

/// Why a request failed. No text in it holds a secret of the request, even if the server repeated it.
///
/// `server` is the scheme, host and port that were asked, and the proxy on the way, if there was one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HttpError {
    /// The request cannot be made.
    #[error("the request to {server} cannot be made: {reason}")]
    Unusable {
        /// The server.
        server: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The settings of the proxy cannot be used.
    #[error(transparent)]
    Proxy(#[from] ProxyError),
    /// The address is not one that this client may ask.
    #[error("{server} has an address that must not be asked")]
    Refused {
        /// The server.
        server: String,
    },
    /// There is no connection.
    #[error("cannot reach {server}: {reason}")]
    Connect {
        /// The server.
        server: String,
        /// What happened.
        reason: String,
    },
    /// The connection broke, before the answer or in its middle.
    #[error("the connection to {server} broke: {reason}")]
    Broken {
        /// The server.
        server: String,
        /// What happened.
        reason: String,
    },
    /// It took too long.
    #[error("{server} {phase} within {} s", .limit.as_secs_f64())]
    Timeout {
        /// The server.
        server: String,
        /// What was waited for.
        phase: Phase,
        /// For how long.
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
        /// What the server says.
        message: String,
        /// When to come back.
        retry_after: Option<Duration>,
    },
    /// The body is larger than the caller reads.
    #[error("the answer of {server} is larger than {limit} bytes")]
    TooLarge {
        /// The server.
        server: String,
        /// The limit.
        limit: u64,
    },
    /// The body is not what the server says it is.
    #[error("the answer of {server} cannot be read: {reason}")]
    Malformed {
        /// The server.
        server: String,
        /// What is wrong with it.
        reason: String,
    },
}

/// A step of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Until there is a connection.
    Connect,
    /// Until the answer begins.
    Head,
    /// Until the next part of the body.
    Body,
    /// Until everything is done.
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
    /// Whether the same request may succeed when it is made later.
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

    /// The status that the server answered with.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Status { status, .. } => Some(*status),
            _ => None,
        }
    }
}

/// An error and everything that caused it.
fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |cause: &&(dyn Error + 'static)| (*cause).source()).take(16)
}

/// Whether an error, or what caused it, is of this type.
pub(crate) fn caused_by<E: Error + 'static>(error: &reqwest::Error) -> bool {
    causes(error).any(|cause| cause.is::<E>())
}

/// Whether a connection began and was cut.
pub(crate) fn was_cut(error: &reqwest::Error) -> bool {
    causes(error).filter_map(|cause| cause.downcast_ref::<io::Error>()).any(|cause| {
        use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
        matches!(cause.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof)
    })
}

/// What went wrong, from the first cause that says more than that something went wrong.
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
