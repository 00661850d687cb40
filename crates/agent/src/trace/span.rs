//! A trace and its spans while they last.

use std::{fmt, sync::Arc};

use serde_json::Value;

use super::{
    SpanData, SpanError, SpanId, SpanRecord, TraceId, TraceInfo,
    tracer::{Sensitive, Setup},
};

/// A place in a trace below which spans can be put. Cheap to clone, and can be sent to other tasks.
#[derive(Clone, Default)]
pub struct Scope(Option<Place>);

#[derive(Clone)]
struct Place {
    trace: Arc<Live>,
    parent: Option<SpanId>,
}

struct Live {
    setup: Arc<Setup>,
    info: TraceInfo,
}

impl Scope {
    /// A place in no trace: spans below it do nothing.
    #[must_use]
    pub fn off() -> Self {
        Self::default()
    }

    /// Starts a span here. It ends when it is dropped. What it is about is only asked if somebody is told.
    #[must_use]
    pub fn span(&self, data: impl FnOnce() -> SpanData) -> Span {
        let Some(Place { trace, parent }) = &self.0 else { return Span(None) };
        let record = SpanRecord {
            id: SpanId::of(trace.setup.random()),
            trace_id: trace.info.id,
            parent_id: *parent,
            started_at: trace.setup.now(),
            ended_at: None,
            span_data: data(),
            error: None,
        };
        let mut open = Box::new(Open { trace: trace.clone(), record });
        open.leave_out_sensitive();
        trace.setup.tell(|processor| processor.on_span_start(&open.record));
        Span(Some(open))
    }

    /// The trace it is in.
    #[must_use]
    pub fn trace_id(&self) -> Option<TraceId> {
        self.0.as_ref().map(|place| place.trace.info.id)
    }

    /// Whether anybody is told.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(place) => write!(f, "Scope({}, {:?})", place.trace.info.id, place.parent),
            None => f.write_str("Scope(off)"),
        }
    }
}

/// A trace while it lasts: until it is dropped.
#[derive(Debug, Default)]
pub struct Trace(Scope);

impl Trace {
    pub(super) fn live(setup: Arc<Setup>, info: TraceInfo) -> Self {
        Self(Scope(Some(Place { trace: Arc::new(Live { setup, info }), parent: None })))
    }

    /// Starts a span at the top.
    #[must_use]
    pub fn span(&self, data: impl FnOnce() -> SpanData) -> Span {
        self.0.span(data)
    }

    /// Its top, as a place for spans.
    #[must_use]
    pub fn scope(&self) -> Scope {
        self.0.clone()
    }

    /// What a saved run keeps to take it up again.
    #[must_use]
    pub fn info(&self) -> Option<&TraceInfo> {
        self.0.0.as_ref().map(|place| &place.trace.info)
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        if let Some(Place { trace, .. }) = &self.0.0 {
            trace.setup.tell(|processor| processor.on_trace_end(&trace.info));
        }
    }
}

/// A span while it lasts: until it is dropped.
#[derive(Default)]
pub struct Span(Option<Box<Open>>);

struct Open {
    trace: Arc<Live>,
    record: SpanRecord,
}

impl Open {
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

    /// Its name, if anybody is told.
    #[must_use]
    pub fn id(&self) -> Option<SpanId> {
        self.0.as_ref().map(|open| open.record.id)
    }

    /// Starts a span inside this one.
    #[must_use]
    pub fn span(&self, data: impl FnOnce() -> SpanData) -> Self {
        self.scope().span(data)
    }

    /// Its inside, as a place for spans.
    #[must_use]
    pub fn scope(&self) -> Scope {
        let place = self.0.as_ref().map(|open| Place { trace: open.trace.clone(), parent: Some(open.record.id) });
        Scope(place)
    }

    /// Changes what it is about.
    pub fn update(&mut self, change: impl FnOnce(&mut SpanData)) {
        if let Some(open) = &mut self.0 {
            change(&mut open.record.span_data);
        }
    }

    /// Adds what came out of it: of a function, a generation, or under `output` of a custom span.
    pub fn output(&mut self, output: impl FnOnce() -> Value) {
        self.update(|data| data.set_output(output()));
    }

    /// Adds what it cost: of a generation, a response, or under `usage` of a custom span.
    pub fn usage(&mut self, usage: impl FnOnce() -> Value) {
        self.update(|data| data.set_usage(usage()));
    }

    /// Says that something went wrong in it. The first word on this counts.
    pub fn fail(&mut self, error: impl FnOnce() -> SpanError) {
        if let Some(open) = &mut self.0 {
            open.record.error.get_or_insert_with(error);
        }
    }

    /// Ends it, as dropping it does.
    pub fn end(self) {}
}

impl Drop for Span {
    fn drop(&mut self) {
        let Some(mut open) = self.0.take() else { return };
        open.leave_out_sensitive();
        let Open { trace, mut record } = *open;
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
