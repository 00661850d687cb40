//! An operation in progress: two events, and a `tracing` span around both.

use std::time::Instant;

use serde_json::{Map, Value};
use tracing::field::Empty;

use super::{Audit, Event, Phase, Record, Subject};
use crate::{Op, Result, SandboxError};

/// How an operation ended.
#[derive(Clone, Copy, Debug)]
pub enum End<'a> {
    /// The operation succeeded.
    Ok,
    /// The operation was carried out, but its command exited with another code than zero.
    Failed,
    /// The operation failed.
    Error(&'a SandboxError),
}

impl<'a, T> From<&'a Result<T>> for End<'a> {
    fn from(result: &'a Result<T>) -> Self {
        match result {
            Ok(_) => Self::Ok,
            Err(error) => Self::Error(error),
        }
    }
}

/// An operation that has begun. If the span is dropped without [`finish`](Self::finish), its last event reports
/// `cancelled`.
#[derive(Debug)]
pub struct Span {
    audit: Audit,
    op: Op,
    id: String,
    parent: Option<String>,
    begun: Instant,
    data: Map<String, Value>,
    stdout: Option<String>,
    stderr: Option<String>,
    traced: tracing::Span,
    finished: bool,
}

impl Span {
    pub(super) fn begin(audit: Audit, op: Op, data: Value, parent: Option<&Self>) -> Self {
        let session = audit.record.as_ref().map_or("", |record| &record.session_id);
        let traced = traced(op.as_str(), session, parent);
        let mut span = Self {
            op,
            id: format!("sandbox_op_{}", uuid::Uuid::new_v4().simple()),
            parent: parent.map(|parent| parent.id.clone()),
            begun: Instant::now(),
            data: Map::new(),
            stdout: None,
            stderr: None,
            traced,
            finished: false,
            audit,
        };
        if let Some(record) = &span.audit.record {
            span.data = record.payload.facts(data);
            record.emit(op, span.event(record, Phase::Start));
        }
        span
    }

    /// Records the start of an operation that is a part of this one.
    #[must_use = "dropping a span says that the operation was cancelled"]
    pub fn child(&self, op: Op, data: Value) -> Self {
        Self::begin(self.audit.clone(), op, data, Some(self))
    }

    /// The id that both events of the operation have.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The `tracing` span, for instrumenting a future.
    #[must_use]
    pub fn traced(&self) -> &tracing::Span {
        &self.traced
    }

    /// Sets the output of the command. The `finish` event contains it as far as the policy allows.
    pub fn output(&mut self, stdout: &[u8], stderr: &[u8]) {
        let Some(record) = &self.audit.record else { return };
        self.stdout = record.payload.output(self.op, stdout, |policy| policy.max_stdout_chars);
        self.stderr = record.payload.output(self.op, stderr, |policy| policy.max_stderr_chars);
    }

    /// Records the end of the operation. `data` is added to the facts of its start.
    pub fn finish<'a>(mut self, end: impl Into<End<'a>>, data: Value) {
        let end = end.into();
        self.finished = true;
        match end {
            End::Ok => {}
            End::Failed => {
                self.traced.record("otel.status_code", "ERROR");
            }
            End::Error(error) => {
                self.traced.record("otel.status_code", "ERROR");
                self.traced.record("error_code", error.code());
                self.traced.record("error.type", error.type_name().as_str());
                if let Some(retryable) = error.retryable() {
                    self.traced.record("error_retryable", retryable);
                }
            }
        }
        let Some(record) = &self.audit.record else { return };
        let mut event = self.event(record, Phase::Finish);
        event.data.extend(record.payload.facts(data));
        event.ok = Some(matches!(end, End::Ok));
        if let End::Error(error) = end {
            event.error_code = Some(error.code().to_owned());
            event.error_type = Some(error.type_name());
            event.error_message = Some(record.payload.message(&error.full_message()));
            event.error_retryable = error.retryable();
        }
        record.emit(self.op, event);
    }

    fn event(&self, record: &Record, phase: Phase) -> Event {
        let mut event = Event::new(&record.session_id, Subject::Operation(self.op), phase, self.id.clone());
        event.parent_span_id.clone_from(&self.parent);
        event.trace_id.clone_from(&record.trace_id);
        event.data.clone_from(&self.data);
        if phase == Phase::Finish {
            // Rounded to microseconds.
            event.duration_ms = Some((self.begun.elapsed().as_secs_f64() * 1e6).round() / 1e3);
            event.stdout.clone_from(&self.stdout);
            event.stderr.clone_from(&self.stderr);
        }
        event
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        self.traced.record("otel.status_code", "ERROR");
        self.traced.record("error_code", "cancelled");
        let Some(record) = &self.audit.record else { return };
        let mut event = self.event(record, Phase::Finish);
        event.ok = Some(false);
        event.error_code = Some("cancelled".to_owned());
        event.error_type = Some("Cancelled".to_owned());
        record.emit(self.op, event);
    }
}

/// A `tracing` span that exporters show as `sandbox.NAME`, for code around a session.
#[must_use]
pub fn sandbox_span(name: &str) -> tracing::Span {
    traced(name, "", None)
}

/// Every `tracing` span has a fixed name; exporters take the name from `otel.name`.
fn traced(operation: &str, session: &str, parent: Option<&Span>) -> tracing::Span {
    let parent = parent.map_or_else(tracing::Span::current, |parent| parent.traced.clone());
    let span = tracing::info_span!(
        parent: &parent,
        "sandbox",
        otel.name = %format_args!("sandbox.{operation}"),
        otel.status_code = Empty,
        sandbox.operation = operation,
        sandbox.session.id = Empty,
        error_code = Empty,
        error.type = Empty,
        error_retryable = Empty,
    );
    if !session.is_empty() {
        span.record("sandbox.session.id", session);
    }
    span
}
