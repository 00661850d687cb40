//! The record of everything a session was asked to do: two events for each operation, given to sinks that can neither
//! slow a session down nor break it.
//!
//! Every sink has a thread and a bounded queue of its own. What does not fit is dropped, counted, and said in the sink
//! itself by an `audit_dropped` event in the place of what is missing. A record ends when its last clone is dropped; until
//! then every event goes its way.

mod event;
mod lane;
mod payload;
mod sinks;
mod span;

#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde_json::Value;

pub use self::{
    event::{Event, Gap, Phase, Subject},
    payload::{PayloadOverride, PayloadPolicy},
    sinks::{Callback, Jsonl, Sink},
    span::{End, Span, sandbox_span},
};
use self::{
    lane::{Counts, Lane},
    payload::Payload,
};
use crate::{Op, SecretStore};

/// How events are made and kept.
#[derive(Clone, Debug)]
pub struct AuditOptions {
    /// How many events may wait for one sink.
    pub queue: usize,
    /// What of a command's output and a file's size is told.
    pub policy: PayloadPolicy,
    /// What is told differently of some operations; a [sink](Sink::policy) may differ again.
    pub per_op: BTreeMap<Op, PayloadOverride>,
    /// Secrets that are hidden in everything that is told.
    pub secrets: SecretStore,
    /// The trace all events belong to, if there is one.
    pub trace_id: Option<String>,
}

impl Default for AuditOptions {
    fn default() -> Self {
        Self {
            queue: 4096,
            policy: PayloadPolicy::default(),
            per_op: BTreeMap::new(),
            secrets: SecretStore::new(),
            trace_id: None,
        }
    }
}

/// Whether everything reached its sinks in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flushed {
    /// Every sink has seen everything that was not dropped.
    Complete,
    /// Some sink is still busy. It may go on; nobody waits for it.
    TimedOut,
}

/// The record of one session. Clones are the same record.
#[derive(Clone, Default)]
pub struct Audit {
    record: Option<Arc<Record>>,
}

struct Record {
    session_id: String,
    trace_id: Option<String>,
    payload: Payload,
    counts: Arc<Counts>,
    state: Mutex<State>,
}

/// One lock for the number and the queues, so that every sink sees the same order.
struct State {
    seq: u64,
    lanes: Vec<Lane>,
}

impl Audit {
    /// No record at all; spans are still traced.
    #[must_use]
    pub fn off() -> Self {
        Self::default()
    }

    /// A record that goes to these sinks.
    #[must_use]
    pub fn new(session_id: impl Into<String>, sinks: Vec<Box<dyn Sink>>, options: AuditOptions) -> Self {
        let session_id = session_id.into();
        let counts = Arc::new(Counts::default());
        let lanes: Vec<Lane> =
            sinks.into_iter().map(|sink| Lane::start(sink, options.queue, &session_id, &counts)).collect();
        let sinks = lanes.iter().map(Lane::policy).collect();
        let record = Record {
            session_id,
            trace_id: options.trace_id,
            payload: Payload { policy: options.policy, per_op: options.per_op, sinks, secrets: options.secrets },
            counts,
            state: Mutex::new(State { seq: 0, lanes }),
        };
        Self { record: Some(Arc::new(record)) }
    }

    /// An operation begins. `data` is an object of facts; another value is kept under `value`.
    #[must_use = "dropping a span says that the operation was cancelled"]
    pub fn begin(&self, op: Op, data: Value) -> Span {
        Span::begin(self.clone(), op, data, None)
    }

    /// How many events did not reach a sink because its queue was full; each sink counts for itself.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.record.as_ref().map_or(0, |record| record.counts.dropped())
    }

    /// How many events a sink refused or panicked over.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.record.as_ref().map_or(0, |record| record.counts.failed())
    }

    /// Gives the sinks this long to take what is waiting. Events that come later still go to them; close again to wait for
    /// those. The sinks end with the last clone of the record: what waits then is still delivered, but nobody waits for it.
    pub async fn close(&self, deadline: Duration) -> Flushed {
        let Some(record) = &self.record else { return Flushed::Complete };
        let flushed: Vec<_> = record.lock().lanes.iter().map(Lane::flushed).collect();
        match tokio::time::timeout(deadline, futures::future::join_all(flushed)).await {
            Ok(_all) => Flushed::Complete,
            Err(_late) => Flushed::TimedOut,
        }
    }
}

/// An event as some sinks are told it, and what it takes up.
#[derive(Clone, Debug)]
struct Told {
    event: Arc<Event>,
    weight: usize,
}

impl Told {
    fn new(event: Event) -> Self {
        let weight = event.weight();
        Self { event: Arc::new(event), weight }
    }
}

impl Record {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Numbers and queues are never left half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives an event its number and puts it into every queue. Never waits for a sink.
    fn emit(&self, op: Op, mut event: Event) {
        let mut state = self.lock();
        state.seq += 1;
        event.seq = state.seq;
        let whole = Told::new(event);
        let mut narrowed: Option<(PayloadPolicy, Told)> = None;
        for lane in &mut state.lanes {
            let policy = self.payload.policy(op, lane.policy());
            // Sinks that are told the same share one event.
            if narrowed.as_ref().is_none_or(|(known, _)| *known != policy) {
                let told = policy.narrowed(&whole.event).map_or_else(|| whole.clone(), Told::new);
                narrowed = Some((policy, told));
            }
            if let Some((_, told)) = &narrowed {
                lane.offer(told);
            }
        }
    }
}

impl fmt::Debug for Audit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.record {
            Some(record) => f.debug_struct("Audit").field("session_id", &record.session_id).finish_non_exhaustive(),
            None => f.write_str("Audit(off)"),
        }
    }
}
