//! Faults that the server injects: one per attempt at a turn.

use std::time::Duration;

use serde_json::Value;

/// A fault of one attempt. The faults of a turn are used in order; later attempts succeed.
///
/// A client that sends the same transcript again gets the next fault. A fault that does not damage the answer (a delay, slow
/// bytes, unusual but legal framing) also uses its attempt.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Fault {
    /// No fault in this attempt.
    None,
    /// An error status instead of an answer.
    Status {
        /// Status code from 100 to 599, except success codes.
        status: u16,
        /// Additional headers, such as `retry-after`.
        headers: Vec<(String, String)>,
        /// Body: an object is sent as JSON, a string unchanged. `None` is the error object of the API.
        body: Option<Value>,
    },
    /// The whole answer is sent after this delay.
    Delay(Duration),
    /// The body is sent in small pieces.
    Slow {
        /// Bytes of each piece.
        bytes: usize,
        /// Pause before each piece.
        every: Duration,
    },
    /// The connection is reset after this many events, but never after the last one.
    CutAfterEvents(usize),
    /// The connection is reset after this many bytes of the body, but always before its end.
    CutAfterBytes(usize),
    /// The response ends with the status `failed`.
    Failed {
        /// Code, such as `server_error` or `rate_limit_exceeded`.
        code: String,
        /// Message for users.
        message: String,
    },
    /// The response ends with the status `incomplete`.
    Incomplete {
        /// Reason: `max_output_tokens` or `content_filter`.
        reason: String,
    },
    /// An `error` event in the middle of the stream.
    ErrorEvent {
        /// Code, such as `server_error`.
        code: String,
        /// Message for users.
        message: String,
    },
    /// The stream has a defect.
    Malformed(Malformed),
    /// Status 200 with an empty body.
    Empty,
    /// The whole answer with another content type.
    ContentType(String),
    /// No answer until the client disconnects.
    Hang,
}

/// Defects of a stream of events. Some are legal, and a client must accept them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Malformed {
    /// A line that is not a field, after the first event. Legal: a client skips the line.
    GarbageLine,
    /// An event whose data is not JSON.
    InvalidJson,
    /// An event whose data is not UTF-8.
    InvalidUtf8,
    /// Every event arrives in two packets, split inside a multi-byte character if there is one. Legal.
    Split,
    /// Lines end with carriage return and line feed. Legal.
    Crlf,
    /// Comments between events and inside them. Legal.
    Comments,
    /// The last event lacks the blank line that ends it.
    NoFinalBlank,
    /// An event with a line of at least this many bytes, after the first event. Legal if the limits of the client allow it.
    OversizedLine(usize),
}

/// Limit of an oversized line, in bytes.
pub(crate) const LONGEST_LINE: usize = 64 << 20;
/// Limit of a pause.
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_secs(600);

impl Fault {
    /// A status without headers and body.
    pub fn status(status: u16) -> Self {
        Self::Status { status, headers: Vec::new(), body: None }
    }

    /// Adds a header to a status; other faults are unchanged.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        if let Self::Status { headers, .. } = &mut self {
            headers.push((name.into(), value.into()));
        }
        self
    }

    /// Sets the body of a status; other faults are unchanged.
    #[must_use]
    pub fn body(mut self, value: impl Into<Value>) -> Self {
        if let Self::Status { body, .. } = &mut self {
            *body = Some(value.into());
        }
        self
    }

    /// Whether the client receives the whole answer.
    pub(crate) fn is_harmless(&self) -> bool {
        match self {
            Self::None | Self::Delay(_) | Self::Slow { .. } | Self::Incomplete { .. } => true,
            Self::Malformed(how) => !matches!(how, Malformed::InvalidJson | Malformed::InvalidUtf8),
            _ => false,
        }
    }

    /// Field of the fault that is invalid, with the reason, if there is one.
    pub(crate) fn flaw(&self) -> Option<(&'static str, String)> {
        match self {
            Self::Status { status, .. } if !(300..600).contains(status) => {
                Some(("status", format!("{status} is not the status of an error (300 to 599)")))
            }
            Self::Status { headers, .. } => headers.iter().find_map(|(name, value)| {
                let wrong = hyper::header::HeaderName::try_from(name.as_str()).is_err()
                    || hyper::header::HeaderValue::try_from(value.as_str()).is_err();
                wrong.then(|| ("headers", format!("{name:?}: {value:?} is not a header")))
            }),
            Self::Delay(pause) | Self::Slow { every: pause, .. } if *pause > LONGEST_PAUSE => {
                Some(("ms", format!("a pause is at most {} seconds", LONGEST_PAUSE.as_secs())))
            }
            Self::Slow { bytes: 0, .. } => Some(("bytes", "at least one byte at once".to_owned())),
            Self::ContentType(kind) if hyper::header::HeaderValue::try_from(kind.as_str()).is_err() => {
                Some(("value", format!("{kind:?} is not a content type")))
            }
            Self::Malformed(Malformed::OversizedLine(bytes)) if *bytes > LONGEST_LINE => {
                Some(("bytes", format!("a line is at most {LONGEST_LINE} bytes")))
            }
            _ => None,
        }
    }
}
