//! One event, as sinks receive it and as it is written to a file: a flat JSON object.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::payload;
use crate::Op;

/// Version of the event format.
const VERSION: u32 = 1;

/// The subject of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Subject {
    /// An operation of the session.
    Operation(Op),
    /// The record itself: events are missing at this point.
    Record(Gap),
}

/// The only event that a record emits about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Gap {
    /// Events are missing at this point; `data` contains how many, and their first and last number.
    AuditDropped,
}

/// Which of an operation's two events this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// The operation begins.
    Start,
    /// The operation has ended.
    Finish,
}

/// One event of an audit record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Version of the event format.
    pub version: u32,
    /// Unique id, sortable by time.
    pub event_id: String,
    /// Time of the event, in UTC.
    pub ts: Timestamp,
    /// Id of the session.
    pub session_id: String,
    /// Number of the event in the session's record, from one. All sinks see the same numbers.
    pub seq: u64,
    /// The operation.
    pub op: Subject,
    /// Whether the operation begins or has ended.
    pub phase: Phase,
    /// Id of the operation; both of its events have it.
    pub span_id: String,
    /// Id of the operation that this one is a part of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_span_id: Option<String>,
    /// Id of the trace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<String>,
    /// Facts about the operation.
    pub data: Map<String, Value>,
    /// Whether the operation succeeded. Only the `finish` event has this field and those below.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ok: Option<bool>,
    /// Duration of the operation, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<f64>,
    /// Code of the error, or `cancelled`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_code: Option<String>,
    /// Name of the error's variant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_type: Option<String>,
    /// Message of the error, with its causes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_message: Option<String>,
    /// Whether a retry may succeed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_retryable: Option<bool>,
    /// Standard output of a command, if the policy includes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdout: Option<String>,
    /// Standard error of a command, if the policy includes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr: Option<String>,
}

impl Event {
    /// A new event with the current time and without a number.
    pub(super) fn new(session_id: &str, op: Subject, phase: Phase, span_id: String) -> Self {
        Self {
            version: VERSION,
            event_id: uuid::Uuid::now_v7().to_string(),
            ts: now(),
            session_id: session_id.to_owned(),
            seq: 0,
            op,
            phase,
            span_id,
            parent_span_id: None,
            trace_id: None,
            data: Map::new(),
            ok: None,
            duration_ms: None,
            error_code: None,
            error_type: None,
            error_message: None,
            error_retryable: None,
            stdout: None,
            stderr: None,
        }
    }

    /// Approximate size in memory, in bytes.
    pub(super) fn weight(&self) -> usize {
        let texts = [&self.error_message, &self.stdout, &self.stderr].into_iter().flatten().map(String::len);
        let data: usize = self.data.iter().map(|(key, value)| key.len() + payload::weight(value)).sum();
        size_of::<Self>() + texts.sum::<usize>() + data
    }
}

/// The current time in microseconds: precise enough, and a shorter text.
fn now() -> Timestamp {
    let now = Timestamp::now();
    Timestamp::from_microsecond(now.as_microsecond()).unwrap_or(now)
}
