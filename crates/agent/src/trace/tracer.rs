//! A tracer: the source of traces, with its processors, its clock and its privacy setting.

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use serde_json::{Map, Value};
use uuid::Uuid;

use super::{GroupId, Trace, TraceId, TraceInfo, TraceProcessor};

/// Whether traces contain the inputs and outputs of models and tools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sensitive {
    /// Traces contain inputs and outputs.
    #[default]
    Include,
    /// Traces contain only names, times and usage.
    LeaveOut,
}

/// Source of traces. Cheap to clone; off unless it has a processor.
#[derive(Clone, Default)]
pub struct Tracer(Option<Arc<Setup>>);

#[derive(Clone)]
pub(super) struct Setup {
    processors: Vec<Arc<dyn TraceProcessor>>,
    pub(super) sensitive: Sensitive,
    clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    ids: Arc<dyn Fn() -> u128 + Send + Sync>,
}

impl Tracer {
    /// A tracer that does nothing and has no cost.
    #[must_use]
    pub fn off() -> Self {
        Self::default()
    }

    /// A tracer with this processor.
    pub fn new(processor: impl TraceProcessor + 'static) -> Self {
        Self(Some(Arc::new(Setup {
            processors: vec![Arc::new(processor)],
            sensitive: Sensitive::default(),
            clock: Arc::new(Timestamp::now),
            ids: Arc::new(|| Uuid::new_v4().as_u128()),
        })))
    }

    /// Adds a processor.
    #[must_use]
    pub fn and(self, processor: impl TraceProcessor + 'static) -> Self {
        if self.0.is_none() {
            return Self::new(processor);
        }
        self.with(|setup| setup.processors.push(Arc::new(processor)))
    }

    /// Sets whether traces contain inputs and outputs.
    #[must_use]
    pub fn sensitive(self, sensitive: Sensitive) -> Self {
        self.with(|setup| setup.sensitive = sensitive)
    }

    /// Sets the clock.
    #[must_use]
    pub fn clock(self, clock: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        self.with(|setup| setup.clock = Arc::new(clock))
    }

    /// Sets the source of random numbers for ids.
    #[must_use]
    pub fn ids(self, ids: impl Fn() -> u128 + Send + Sync + 'static) -> Self {
        self.with(|setup| setup.ids = Arc::new(ids))
    }

    fn with(mut self, change: impl FnOnce(&mut Setup)) -> Self {
        if let Some(setup) = &mut self.0 {
            change(Arc::make_mut(setup));
        }
        self
    }

    /// Whether the tracer has a processor.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Starts a trace. It ends when it is dropped.
    pub fn trace(&self, about: impl FnOnce() -> NewTrace) -> Trace {
        let Some(setup) = &self.0 else { return Trace::default() };
        let NewTrace { id, workflow_name, group_id, metadata } = about();
        let id = id.unwrap_or_else(|| TraceId::of(setup.random()));
        let info = TraceInfo { id, workflow_name, group_id, metadata };
        setup.tell(|processor| processor.on_trace_start(&info));
        Trace::live(setup.clone(), info)
    }

    /// Continues a trace that was started before, perhaps by another process. Processors are not called for its start.
    pub fn attach(&self, info: TraceInfo) -> Trace {
        self.0.as_ref().map_or_else(Trace::default, |setup| Trace::live(setup.clone(), info))
    }

    /// A new id for a group of traces, if the tracer is on.
    #[must_use]
    pub fn group_id(&self) -> Option<GroupId> {
        self.0.as_ref().map(|setup| GroupId::of(setup.random()))
    }

    /// Makes every processor export its buffered records, and returns whether all were exported. Blocks for at most this
    /// time per processor.
    pub fn flush(&self, within: Duration) -> bool {
        self.all(|processor| processor.force_flush(within))
    }

    /// Flushes every processor for the last time; records that arrive later are lost. Blocks for at most this time per
    /// processor.
    pub fn shutdown(&self, within: Duration) -> bool {
        self.all(|processor| processor.shutdown(within))
    }

    fn all(&self, ask: impl Fn(&dyn TraceProcessor) -> bool) -> bool {
        let Some(setup) = &self.0 else { return true };
        let mut all = true;
        for processor in &setup.processors {
            all &= guarded(|| ask(&**processor)).unwrap_or(false);
        }
        all
    }
}

impl fmt::Debug for Tracer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_on() { "Tracer(on)" } else { "Tracer(off)" })
    }
}

impl Setup {
    pub(super) fn tell(&self, tell: impl Fn(&dyn TraceProcessor)) {
        for processor in &self.processors {
            guarded(|| tell(&**processor));
        }
    }

    pub(super) fn random(&self) -> u128 {
        (self.ids)()
    }

    /// Current time, rounded to microseconds.
    pub(super) fn now(&self) -> Timestamp {
        let now = (self.clock)();
        Timestamp::from_microsecond(now.as_microsecond()).unwrap_or(now)
    }
}

/// Calls a processor and catches its panics, so that they do not affect the run.
fn guarded<T>(ask: impl FnOnce() -> T) -> Option<T> {
    let answer = catch_unwind(AssertUnwindSafe(ask));
    if answer.is_err() {
        tracing::warn!("a trace processor panicked; the run goes on");
    }
    answer.ok()
}

/// Data of a new trace.
#[derive(Clone, Debug, PartialEq)]
pub struct NewTrace {
    id: Option<TraceId>,
    workflow_name: String,
    group_id: Option<String>,
    metadata: Option<Map<String, Value>>,
}

impl NewTrace {
    /// A trace with this workflow name.
    pub fn new(workflow_name: impl Into<String>) -> Self {
        Self { id: None, workflow_name: workflow_name.into(), group_id: None, metadata: None }
    }

    /// Sets the id of the trace.
    #[must_use]
    pub fn id(mut self, id: TraceId) -> Self {
        self.id = Some(id);
        self
    }

    /// Sets the group that the trace belongs to.
    #[must_use]
    pub fn group(mut self, group: impl Into<String>) -> Self {
        self.group_id = Some(group.into());
        self
    }

    /// Adds metadata.
    #[must_use]
    pub fn metadata(mut self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        self.metadata.get_or_insert_default().insert(key.into(), value.into());
        self
    }
}
