//! The audit record of a session: two events for each operation, given to sinks that can neither slow down nor break
//! the session.
//!
//! Every sink has its own thread and bounded queue. An event that does not fit is dropped and counted; the sink gets an
//! `audit_dropped` event in its place. A record ends when its last clone is dropped; until then it accepts events.

mod event;
mod lane;
mod payload;
mod sinks;
mod span;

#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use parking_lot::{Mutex, MutexGuard};
use sandbar_jsonl::Counts;
use serde_json::Value;

pub(crate) use self::sinks::SharedSink;
pub use self::{
    event::{Event, Gap, Phase, Subject},
    payload::{PayloadOverride, PayloadPolicy},
    sinks::{Callback, Jsonl, Sink},
    span::{End, Span, sandbox_span},
};
use self::{lane::Lane, payload::Payload};
use crate::{Op, SecretStore};

/// Settings of an audit record.
#[derive(Clone, Debug)]
pub struct AuditOptions {
    /// Maximum number of events that wait for one sink.
    pub queue: usize,
    /// Whether events contain the output of commands and the size of files.
    pub policy: PayloadPolicy,
    /// Overrides of the policy per operation; a [sink](Sink::policy) may override them again.
    pub per_op: BTreeMap<Op, PayloadOverride>,
    /// Secrets that are hidden in every event.
    pub secrets: SecretStore,
    /// Id of the trace that all events belong to, if there is one.
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

/// Whether all events reached their sinks in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flushed {
    /// Every sink has taken all events that were not dropped.
    Complete,
    /// A sink is still busy. It continues without a waiting caller.
    TimedOut,
}

/// The audit record of one session. Clones share one record.
#[derive(Clone, Default)]
pub struct Audit {
    record: Option<Arc<Record>>,
}

struct Record {
    session_id: String,
    trace_id: Option<String>,
    payload: Payload,
    state: Mutex<State>,
}

/// The sequence number and the queues, behind one lock, so that every sink sees the same order.
struct State {
    seq: u64,
    lanes: Vec<Lane>,
}

impl Audit {
    /// No record; spans are still traced.
    #[must_use]
    pub fn off() -> Self {
        Self::default()
    }

    /// A record that sends its events to these sinks.
    #[must_use]
    pub fn new(session_id: impl Into<String>, sinks: Vec<Box<dyn Sink>>, options: AuditOptions) -> Self {
        let session_id = session_id.into();
        let lanes: Vec<Lane> = sinks.into_iter().map(|sink| Lane::start(sink, options.queue, &session_id)).collect();
        let sinks = lanes.iter().map(Lane::policy).collect();
        let record = Record {
            session_id,
            trace_id: options.trace_id,
            payload: Payload { policy: options.policy, per_op: options.per_op, sinks, secrets: options.secrets },
            state: Mutex::new(State { seq: 0, lanes }),
        };
        Self { record: Some(Arc::new(record)) }
    }

    /// Records the start of an operation. `data` is an object of facts; any other value is stored under `value`.
    #[must_use = "dropping a span says that the operation was cancelled"]
    pub fn begin(&self, op: Op, data: Value) -> Span {
        Span::begin(self.clone(), op, data, None)
    }

    /// Number of events that were dropped because a queue was full, summed over all sinks.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.sum(|counts| counts.dropped)
    }

    /// Number of events at which a sink failed or panicked.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.sum(|counts| counts.failed)
    }

    /// A count of lost events, summed over all sinks.
    fn sum(&self, count: impl Fn(Counts) -> u64) -> u64 {
        self.record.iter().map(|record| record.lock().lanes.iter().map(|lane| count(lane.counts())).sum::<u64>()).sum()
    }

    /// Waits at most this long until the sinks have taken all queued events. Later events are still delivered; close
    /// again to wait for them. The sinks end with the last clone of the record: events that are queued then are still
    /// delivered in the background.
    pub async fn close(&self, deadline: Duration) -> Flushed {
        let Some(record) = &self.record else { return Flushed::Complete };
        let flushed: Vec<_> = record.lock().lanes.iter().map(Lane::flushed).collect();
        match tokio::time::timeout(deadline, futures::future::join_all(flushed)).await {
            Ok(_all) => Flushed::Complete,
            Err(_late) => Flushed::TimedOut,
        }
    }
}

/// An event, and its approximate size in memory.
#[derive(Clone, Debug)]
struct SizedEvent {
    event: Arc<Event>,
    weight: usize,
}

impl SizedEvent {
    fn new(event: Event) -> Self {
        let weight = event.weight();
        Self { event: Arc::new(event), weight }
    }
}

impl Record {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic cannot leave the number and the queues inconsistent.
        self.state.lock()
    }

    /// Numbers an event and puts it into every queue. Never waits for a sink.
    fn emit(&self, op: Op, mut event: Event) {
        let mut state = self.lock();
        state.seq += 1;
        event.seq = state.seq;
        let whole = SizedEvent::new(event);
        let mut narrowed: Option<(PayloadPolicy, SizedEvent)> = None;
        for lane in &state.lanes {
            let policy = self.payload.policy(op, lane.policy());
            // Sinks with the same policy share one event.
            if narrowed.as_ref().is_none_or(|(known, _)| *known != policy) {
                let sized = policy.narrowed(&whole.event).map_or_else(|| whole.clone(), SizedEvent::new);
                narrowed = Some((policy, sized));
            }
            if let Some((_, sized)) = &narrowed {
                lane.offer(sized);
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
