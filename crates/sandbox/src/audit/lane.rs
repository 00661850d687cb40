//! The queue of one sink, in which events that the sink did not get are reported.

use std::{
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use sandbar_jsonl::{Counts, Limits, Queue, Writer};
use serde_json::json;

use super::{Event, Gap, PayloadOverride, Phase, Sink, SizedEvent, Subject};

/// Maximum size of the events that wait for one sink, in bytes.
const WAITING: usize = 16 << 20;

/// The queue of a sink. Every event is offered to every sink, so the queue numbers events as the record does.
#[derive(Debug)]
pub(super) struct Lane {
    queue: Queue<Arc<Event>>,
    policy: PayloadOverride,
}

impl Lane {
    /// Starts the thread of a sink.
    pub(super) fn start(sink: Box<dyn Sink>, queue: usize, session_id: &str) -> Self {
        // A sink must not panic through the caller's thread.
        let policy = catch_unwind(AssertUnwindSafe(|| sink.policy())).unwrap_or_default();
        let limits = Limits { queue: queue.max(1), bytes: WAITING, batch: 1, every: Duration::ZERO };
        let writer = SinkWriter { sink, session_id: session_id.to_owned() };
        Self { queue: Queue::start("sandbar-audit", writer, limits), policy }
    }

    /// The overrides of the sink.
    pub(super) fn policy(&self) -> PayloadOverride {
        self.policy
    }

    /// Queues an event, or counts it as missing. Never waits.
    pub(super) fn offer(&self, sized: &SizedEvent) {
        self.queue.offer(sized.event.clone(), sized.weight);
    }

    /// Counts of delivered and lost events.
    pub(super) fn counts(&self) -> Counts {
        self.queue.counts()
    }

    /// Completes when the sink has taken and flushed every event that is queued now, or has ended.
    pub(super) fn flushed(&self) -> impl Future<Output = ()> + use<> {
        self.queue.flushed()
    }
}

/// A sink at the end of its queue.
struct SinkWriter {
    sink: Box<dyn Sink>,
    session_id: String,
}

impl Writer<Arc<Event>> for SinkWriter {
    fn write(&mut self, batch: &[Arc<Event>]) -> io::Result<()> {
        let written = batch.iter().try_for_each(|event| self.sink.deliver(event));
        written.map_err(|error| io::Error::new(error.kind(), format!("session {}: {error}", self.session_id)))
    }

    /// The event has the number of the last missing event, so that numbers increase.
    fn report(&mut self, gap: sandbar_jsonl::Gap) -> io::Result<()> {
        let span_id = format!("sandbox_op_{}", uuid::Uuid::new_v4().simple());
        let mut event = Event::new(&self.session_id, Subject::Record(Gap::AuditDropped), Phase::Finish, span_id);
        event.seq = gap.last;
        event.ok = Some(false);
        let data = json!({"dropped": gap.count, "first_seq": gap.first, "last_seq": gap.last});
        event.data = data.as_object().cloned().unwrap_or_default();
        self.sink.deliver(&event)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.sink.flush()
    }
}
