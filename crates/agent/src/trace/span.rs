//! Open traces and spans.

use std::{fmt, sync::Arc};

use serde_json::Value;

use super::{
    SpanData, SpanError, SpanId, SpanRecord, TraceId, TraceInfo,
    tracer::{Sensitive, Setup},
};

/// Parent for new spans in a trace. Cheap to clone; can be sent to other tasks.
#[derive(Clone, Default)]
pub struct Scope(Option<Position>);

#[derive(Clone)]
struct Position {
    trace: Arc<ActiveTrace>,
    parent: Option<SpanId>,
}

struct ActiveTrace {
    setup: Arc<Setup>,
    info: TraceInfo,
}

impl Scope {
    /// A scope without a trace: spans below it do nothing.
    #[must_use]
    pub fn off() -> Self {
        Self::default()
    }

    /// Starts a span. It ends when it is dropped. `data` is called only if the tracer is on.
    #[must_use]
    pub fn span(&self, data: impl FnOnce() -> SpanData) -> Span {
        let Some(Position { trace, parent }) = &self.0 else { return Span(None) };
        let record = SpanRecord {
            id: SpanId::of(trace.setup.random()),
            trace_id: trace.info.id,
            parent_id: *parent,
            started_at: trace.setup.now(),
            ended_at: None,
            span_data: data(),
            error: None,
        };
        let mut open = Box::new(OpenSpan { trace: trace.clone(), record });
        open.leave_out_sensitive();
        trace.setup.tell(|processor| processor.on_span_start(&open.record));
        Span(Some(open))
    }

    /// Trace of this scope.
    #[must_use]
    pub fn trace_id(&self) -> Option<TraceId> {
        self.0.as_ref().map(|position| position.trace.info.id)
    }

    /// Whether the tracer is on.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(position) => write!(f, "Scope({}, {:?})", position.trace.info.id, position.parent),
            None => f.write_str("Scope(off)"),
        }
    }
}

/// An open trace. It ends when it is dropped.
#[derive(Debug, Default)]
pub struct Trace(Scope);

impl Trace {
    pub(super) fn live(setup: Arc<Setup>, info: TraceInfo) -> Self {
        Self(Scope(Some(Position { trace: Arc::new(ActiveTrace { setup, info }), parent: None })))
    }

    /// Starts a top-level span.
    #[must_use]
    pub fn span(&self, data: impl FnOnce() -> SpanData) -> Span {
        self.0.span(data)
    }

    /// Scope for top-level spans.
    #[must_use]
    pub fn scope(&self) -> Scope {
        self.0.clone()
    }

    /// Data that a saved run needs to continue the trace.
    #[must_use]
    pub fn info(&self) -> Option<&TraceInfo> {
        self.0.0.as_ref().map(|position| &position.trace.info)
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        if let Some(Position { trace, .. }) = &self.0.0 {
            trace.setup.tell(|processor| processor.on_trace_end(&trace.info));
        }
    }
}

/// An open span. It ends when it is dropped.
#[derive(Default)]
pub struct Span(Option<Box<OpenSpan>>);

struct OpenSpan {
    trace: Arc<ActiveTrace>,
    record: SpanRecord,
}

impl OpenSpan {
    fn leave_out_sensitive(&mut self) {
        if self.trace.setup.sensitive == Sensitive::LeaveOut {
            self.record.span_data.leave_out_sensitive();
            if let Some(error) = &mut self.record.error {
                error.data = None;
            }
        }
    }
}

impl Span {
    /// A span that does nothing.
    #[must_use]
    pub fn off() -> Self {
        Self::default()
    }

    /// Id of the span, if the tracer is on.
    #[must_use]
    pub fn id(&self) -> Option<SpanId> {
        self.0.as_ref().map(|open| open.record.id)
    }

    /// Starts a child span.
    #[must_use]
    pub fn span(&self, data: impl FnOnce() -> SpanData) -> Self {
        self.scope().span(data)
    }

    /// Scope for child spans.
    #[must_use]
    pub fn scope(&self) -> Scope {
        let position = self.0.as_ref().map(|open| Position { trace: open.trace.clone(), parent: Some(open.record.id) });
        Scope(position)
    }

    /// Changes the data of the span.
    pub fn update(&mut self, change: impl FnOnce(&mut SpanData)) {
        if let Some(open) = &mut self.0 {
            change(&mut open.record.span_data);
        }
    }

    /// Sets the output of a function or a generation, or the field `output` of a custom span.
    pub fn output(&mut self, output: impl FnOnce() -> Value) {
        self.update(|data| data.set_output(output()));
    }

    /// Sets the usage of a generation or a response, or the field `usage` of a custom span.
    pub fn usage(&mut self, usage: impl FnOnce() -> Value) {
        self.update(|data| data.set_usage(usage()));
    }

    /// Marks the span as failed. Only the first error is kept.
    pub fn fail(&mut self, error: impl FnOnce() -> SpanError) {
        if let Some(open) = &mut self.0 {
            open.record.error.get_or_insert_with(error);
        }
    }

    /// Ends the span, as a drop does.
    pub fn end(self) {}
}

impl Drop for Span {
    fn drop(&mut self) {
        let Some(mut open) = self.0.take() else { return };
        open.leave_out_sensitive();
        let OpenSpan { trace, mut record } = *open;
        record.ended_at = Some(trace.setup.now().max(record.started_at));
        let record = Arc::new(record);
        trace.setup.tell(|processor| processor.on_span_end(&record));
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(open) => write!(f, "Span({}, {:?})", open.record.id, open.record.span_data.label()),
            None => f.write_str("Span(off)"),
        }
    }
}
