//! What can go wrong on the way: one fault is played per attempt at a turn.

use std::time::Duration;

use serde_json::Value;

/// One thing that goes wrong at one attempt. A turn's faults are used up in order; then it succeeds.
///
/// Whoever sends the same transcript again meets the next fault. A fault that leaves the answer whole (a delay, slow
/// bytes, odd but legal framing) still uses up its attempt.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Fault {
    /// Nothing goes wrong at this attempt.
    None,
    /// An error instead of an answer.
    Status {
        /// The status code, 100 to 599 but not a success.
        status: u16,
        /// Extra headers, such as `retry-after`.
        headers: Vec<(String, String)>,
        /// The body: an object is sent as JSON, a string as it is. Without one it is the usual error envelope.
        body: Option<Value>,
    },
    /// Nothing is sent for this long, then everything.
    Delay(Duration),
    /// The body comes in small pieces.
    Slow {
        /// How many bytes at once.
        bytes: usize,
        /// The pause before each piece.
        every: Duration,
    },
    /// The connection is reset after so many events, and never after the last.
    CutAfterEvents(usize),
    /// The connection is reset after so many bytes of the body, and always before its end.
    CutAfterBytes(usize),
    /// The answer ends as failed.
    Failed {
        /// As in `server_error` or `rate_limit_exceeded`.
        code: String,
        /// For people.
        message: String,
    },
    /// The answer ends before it is complete.
    Incomplete {
        /// `max_output_tokens` or `content_filter`.
        reason: String,
    },
    /// An `error` event in the middle of the stream.
    ErrorEvent {
        /// As in `server_error`.
        code: String,
        /// For people.
        message: String,
    },
    /// The stream is not quite what it should be.
    Malformed(Malformed),
    /// Status 200 and no body at all.
    Empty,
    /// The whole answer, under another content type.
    ContentType(String),
    /// No answer until the client leaves.
    Hang,
}

/// The ways in which a stream of events can be odd. Some are legal and must be read all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Malformed {
    /// A line that is no field, after the first event. Legal: a reader skips it.
    GarbageLine,
    /// An event whose data is not JSON.
    InvalidJson,
    /// An event whose data is not UTF-8.
    InvalidUtf8,
    /// Every event arrives in two packets, split inside a character where it has a long one. Legal.
    Split,
    /// Lines end with carriage return and line feed. Legal.
    Crlf,
    /// Comments between events and inside them. Legal.
    Comments,
    /// The last event lacks the blank line that ends it.
    NoFinalBlank,
    /// An event with a line of at least this many bytes, after the first one. Legal, if the reader's bounds allow it.
    OversizedLine(usize),
}

/// No line longer than this is made.
pub(crate) const LONGEST_LINE: usize = 64 << 20;
/// No pause is longer than this.
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_secs(600);

impl Fault {
    /// A status with nothing else to it.
    pub fn status(status: u16) -> Self {
        Self::Status { status, headers: Vec::new(), body: None }
    }

    /// Adds a header to a status. Other faults have none, and stay as they are.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        if let Self::Status { headers, .. } = &mut self {
            headers.push((name.into(), value.into()));
        }
        self
    }

    /// Sets the body of a status. Other faults have none, and stay as they are.
    #[must_use]
    pub fn body(mut self, value: impl Into<Value>) -> Self {
        if let Self::Status { body, .. } = &mut self {
            *body = Some(value.into());
        }
        self
    }

    /// Whether the client gets the whole answer in spite of it.
    pub(crate) fn is_harmless(&self) -> bool {
        match self {
            Self::None | Self::Delay(_) | Self::Slow { .. } | Self::Incomplete { .. } => true,
            Self::Malformed(how) => !matches!(how, Malformed::InvalidJson | Malformed::InvalidUtf8),
            _ => false,
        }
    }

    /// What is wrong with the fault itself, if anything: the field, and why.
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
