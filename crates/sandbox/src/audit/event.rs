//! One event, as sinks see it and as it stands in a file: a flat JSON object.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::payload;
use crate::Op;

/// The version of the shape below.
const VERSION: u32 = 1;

/// What an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Subject {
    /// An operation of the session.
    Operation(Op),
    /// The record itself: events are missing here.
    Record(Gap),
}

/// The only thing a record says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Gap {
    /// Events are missing here; `data` says how many, and their first and last number.
    AuditDropped,
}

/// Which of an operation's two events this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// It begins.
    Start,
    /// It has ended.
    Finish,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// The version of this shape.
    pub version: u32,
    /// Unique, and sortable by time.
    pub event_id: String,
    /// When, in UTC.
    pub ts: Timestamp,
    /// Whose.
    pub session_id: String,
    /// The number in the session's record, from one. All sinks see the same numbers.
    pub seq: u64,
    /// What was done.
    pub op: Subject,
    /// Whether it begins or has ended.
    pub phase: Phase,
    /// The same for both events of an operation.
    pub span_id: String,
    /// The operation this one is a part of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_span_id: Option<String>,
    /// The trace it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<String>,
    /// The facts.
    pub data: Map<String, Value>,
    /// Whether it succeeded; only at the end, like everything below.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ok: Option<bool>,
    /// How long it took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<f64>,
    /// The error's stable name, or `cancelled`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_code: Option<String>,
    /// The error's type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_type: Option<String>,
    /// The error's words, with its causes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_message: Option<String>,
    /// Whether another try may succeed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_retryable: Option<bool>,
    /// What a command printed, if that is told at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdout: Option<String>,
    /// What a command complained about, if that is told at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr: Option<String>,
}

impl Event {
    /// An event of now, without a number yet.
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

    /// About how much memory it takes.
    pub(super) fn weight(&self) -> usize {
        let texts = [&self.error_message, &self.stdout, &self.stderr].into_iter().flatten().map(String::len);
        let data: usize = self.data.iter().map(|(key, value)| key.len() + payload::weight(value)).sum();
        size_of::<Self>() + texts.sum::<usize>() + data
    }
}

/// Microseconds are enough, and shorter.
fn now() -> Timestamp {
    let now = Timestamp::now();
    Timestamp::from_microsecond(now.as_microsecond()).unwrap_or(now)
}
