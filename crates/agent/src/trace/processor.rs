//! Processors and exporters of traces, and the records that they receive.

use std::{io, sync::Arc, time::Duration};

use jiff::Timestamp;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};

use super::{SpanData, SpanId, TraceId, data::weight};

/// Receiver of traces and spans. Its methods are called on the thread of the run, so they must be quick. Panics are caught.
pub trait TraceProcessor: Send + Sync {
    /// Called when a trace begins, but not when it is continued.
    fn on_trace_start(&self, _trace: &TraceInfo) {}

    /// Called when a trace ends, or pauses and may be continued later.
    fn on_trace_end(&self, _trace: &TraceInfo) {}

    /// Called when a span begins.
    fn on_span_start(&self, _span: &SpanRecord) {}

    /// Called when a span ends.
    fn on_span_end(&self, _span: &Arc<SpanRecord>) {}

    /// Exports all buffered records, and returns whether all were exported. Waits no longer than the timeout.
    fn force_flush(&self, _within: Duration) -> bool {
        true
    }

    /// Exports all buffered records for the last time: no method is called after it.
    fn shutdown(&self, within: Duration) -> bool {
        self.force_flush(within)
    }
}

/// Record of a trace. A saved run contains it, so that a resumed run continues the trace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TraceInfo {
    /// Id of the trace.
    pub id: TraceId,
    /// Name of the workflow.
    pub workflow_name: String,
    /// Group that the trace belongs to, such as the runs of one conversation.
    #[serde(default)]
    pub group_id: Option<String>,
    /// Metadata of the caller.
    #[serde(default)]
    pub metadata: Option<Map<String, Value>>,
}

/// Record of a span.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SpanRecord {
    /// Id of the span.
    pub id: SpanId,
    /// Id of the trace that contains the span.
    pub trace_id: TraceId,
    /// Id of the parent span; `None` at the top level.
    pub parent_id: Option<SpanId>,
    /// Time when the span began.
    pub started_at: Timestamp,
    /// Time when the span ended; `None` while it is open.
    pub ended_at: Option<Timestamp>,
    /// Data of the span.
    pub span_data: SpanData,
    /// Error of the span, if it failed.
    pub error: Option<SpanError>,
}

impl SpanRecord {
    /// Approximate size of the record, in bytes.
    pub(super) fn weight(&self) -> usize {
        let error = self.error.as_ref().map_or(0, |error| error.message.len() + error.data.as_ref().map_or(0, weight));
        size_of::<Self>() + self.span_data.weight() + error
    }
}

/// Error of a span.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SpanError {
    /// Message without confidential data.
    pub message: String,
    /// Details.
    pub data: Option<Value>,
}

impl From<&str> for SpanError {
    fn from(message: &str) -> Self {
        Self { message: message.to_owned(), data: None }
    }
}

/// Destination of records, such as a file or a server. It has its own thread, so it may be slow.
pub trait TraceExporter: Send {
    /// Exports records.
    ///
    /// # Errors
    /// If the export fails. The records are counted as lost and not exported again.
    fn export(&mut self, batch: &[Export]) -> io::Result<()>;
}

/// A record to export. Its JSON is the format that trace servers accept.
#[derive(Clone, Debug, PartialEq)]
pub enum Export {
    /// A trace that began.
    Trace(TraceInfo),
    /// A span that ended.
    Span(Arc<SpanRecord>),
}

impl Export {
    /// Approximate size of the record, in bytes.
    pub(super) fn weight(&self) -> usize {
        match self {
            Self::Trace(trace) => {
                let metadata = trace.metadata.iter().flatten().map(|(key, value)| key.len() + weight(value));
                size_of::<TraceInfo>() + trace.workflow_name.len() + metadata.sum::<usize>()
            }
            Self::Span(span) => span.weight(),
        }
    }
}

impl Serialize for Export {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        #[serde(tag = "object")]
        enum Wire<'a> {
            #[serde(rename = "trace")]
            Trace(&'a TraceInfo),
            #[serde(rename = "trace.span")]
            Span(&'a SpanRecord),
        }
        match self {
            Self::Trace(trace) => Wire::Trace(trace).serialize(serializer),
            Self::Span(span) => Wire::Span(span).serialize(serializer),
        }
    }
}
