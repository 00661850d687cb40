//! The value that traces come from: who is told, by which clock, and what is left out.

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

/// Whether traces hold what was said: inputs and outputs of models and tools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sensitive {
    /// Yes.
    #[default]
    Include,
    /// No: only that something was said, by whom, when, and what it cost.
    LeaveOut,
}

/// Where traces come from. Cheap to clone; off unless it has a processor.
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
    /// A tracer that does nothing, and costs nothing.
    #[must_use]
    pub fn off() -> Self {
        Self::default()
    }

    /// A tracer that tells this processor.
    pub fn new(processor: impl TraceProcessor + 'static) -> Self {
        Self(Some(Arc::new(Setup {
            processors: vec![Arc::new(processor)],
            sensitive: Sensitive::default(),
            clock: Arc::new(Timestamp::now),
            ids: Arc::new(|| Uuid::new_v4().as_u128()),
        })))
    }

    /// Tells this processor too.
    #[must_use]
    pub fn and(self, processor: impl TraceProcessor + 'static) -> Self {
        if self.0.is_none() {
            return Self::new(processor);
        }
        self.with(|setup| setup.processors.push(Arc::new(processor)))
    }

    /// Whether traces hold what was said.
    #[must_use]
    pub fn sensitive(self, sensitive: Sensitive) -> Self {
        self.with(|setup| setup.sensitive = sensitive)
    }

    /// Takes the time from here.
    #[must_use]
    pub fn clock(self, clock: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        self.with(|setup| setup.clock = Arc::new(clock))
    }

    /// Takes random numbers for ids from here.
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

    /// Whether anybody is told.
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

    /// Takes a trace up again that was started before, perhaps by another process: nobody is told that it starts.
    pub fn attach(&self, info: TraceInfo) -> Trace {
        self.0.as_ref().map_or_else(Trace::default, |setup| Trace::live(setup.clone(), info))
    }

    /// A new name for a group of traces, if the tracer is on.
    #[must_use]
    pub fn group_id(&self) -> Option<GroupId> {
        self.0.as_ref().map(|setup| GroupId::of(setup.random()))
    }

    /// Has every processor send out what it holds back, and says whether all of it is out. Blocks, each no longer than
    /// this.
    pub fn flush(&self, within: Duration) -> bool {
        self.all(|processor| processor.force_flush(within))
    }

    /// The same for the last time.
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

    /// Now, to the microsecond.
    pub(super) fn now(&self) -> Timestamp {
        let now = (self.clock)();
        Timestamp::from_microsecond(now.as_microsecond()).unwrap_or(now)
    }
}

/// Keeps the run out of a processor's trouble.
fn guarded<T>(ask: impl FnOnce() -> T) -> Option<T> {
    let answer = catch_unwind(AssertUnwindSafe(ask));
    if answer.is_err() {
        tracing::warn!("a trace processor panicked; the run goes on");
    }
    answer.ok()
}

/// What a new trace is about.
#[derive(Clone, Debug, PartialEq)]
pub struct NewTrace {
    id: Option<TraceId>,
    workflow_name: String,
    group_id: Option<String>,
    metadata: Option<Map<String, Value>>,
}

impl NewTrace {
    /// A trace of something by this name.
    pub fn new(workflow_name: impl Into<String>) -> Self {
        Self { id: None, workflow_name: workflow_name.into(), group_id: None, metadata: None }
    }

    /// Gives it a name.
    #[must_use]
    pub fn id(mut self, id: TraceId) -> Self {
        self.id = Some(id);
        self
    }

    /// Says which traces it belongs to.
    #[must_use]
    pub fn group(mut self, group: impl Into<String>) -> Self {
        self.group_id = Some(group.into());
        self
    }

    /// Adds something to find it by.
    #[must_use]
    pub fn metadata(mut self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        self.metadata.get_or_insert_default().insert(key.into(), value.into());
        self
    }
}
