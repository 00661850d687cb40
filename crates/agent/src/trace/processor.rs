//! Who is told about traces and spans, and the records that are told and exported.

use std::{io, sync::Arc, time::Duration};

use jiff::Timestamp;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};

use super::{SpanData, SpanId, TraceId, data::weight};

/// Somebody who is told as it happens, on the thread where it happens: it must be quick. A panic in here is caught.
pub trait TraceProcessor: Send + Sync {
    /// A trace begins. Not called for one that is taken up again.
    fn on_trace_start(&self, _trace: &TraceInfo) {}

    /// A trace ends, or is left to be taken up again.
    fn on_trace_end(&self, _trace: &TraceInfo) {}

    /// A span begins.
    fn on_span_start(&self, _span: &SpanRecord) {}

    /// A span ends.
    fn on_span_end(&self, _span: &Arc<SpanRecord>) {}

    /// Sends out what is held back, and says whether all of it is out. Waits no longer than it is told.
    fn force_flush(&self, _within: Duration) -> bool {
        true
    }

    /// Does the same for the last time: nothing comes after this.
    fn shutdown(&self, within: Duration) -> bool {
        self.force_flush(within)
    }
}

/// What is known of a trace. A saved run holds it, and takes the trace up again by it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TraceInfo {
    /// Its name.
    pub id: TraceId,
    /// What the run is for.
    pub workflow_name: String,
    /// Which traces it belongs to, such as those of one conversation.
    #[serde(default)]
    pub group_id: Option<String>,
    /// Whatever the caller wants to find again.
    #[serde(default)]
    pub metadata: Option<Map<String, Value>>,
}

/// What is known of a span.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SpanRecord {
    /// Its name.
    pub id: SpanId,
    /// The trace it is in.
    pub trace_id: TraceId,
    /// The span it is in, if it is not at the top.
    pub parent_id: Option<SpanId>,
    /// When it began.
    pub started_at: Timestamp,
    /// When it ended, if it has.
    pub ended_at: Option<Timestamp>,
    /// What it is about.
    pub span_data: SpanData,
    /// What went wrong in it.
    pub error: Option<SpanError>,
}

impl SpanRecord {
    /// About how many bytes it holds.
    pub(super) fn weight(&self) -> usize {
        let error = self.error.as_ref().map_or(0, |error| error.message.len() + error.data.as_ref().map_or(0, weight));
        size_of::<Self>() + self.span_data.weight() + error
    }
}

/// What went wrong in a span.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SpanError {
    /// In words that hold nothing secret.
    pub message: String,
    /// More about it.
    pub data: Option<Value>,
}

impl From<&str> for SpanError {
    fn from(message: &str) -> Self {
        Self { message: message.to_owned(), data: None }
    }
}

/// Where records go in the end: a file, a server. It has a thread to itself, and may take its time.
pub trait TraceExporter: Send {
    /// Takes some records.
    ///
    /// # Errors
    /// When they could not be taken. They are counted, and not offered again.
    fn export(&mut self, batch: &[Export]) -> io::Result<()>;
}

/// A record on its way out. Its JSON is the form that trace servers take.
#[derive(Clone, Debug, PartialEq)]
pub enum Export {
    /// A trace, when it begins.
    Trace(TraceInfo),
    /// A span, when it has ended.
    Span(Arc<SpanRecord>),
}

impl Export {
    /// About how many bytes it holds.
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
