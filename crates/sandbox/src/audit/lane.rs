//! The queue of one sink: bounded, with a thread that delivers events and a count of dropped ones.

use std::{
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
        mpsc::{Receiver, SyncSender, TryRecvError, sync_channel},
    },
    thread,
};

use serde_json::json;
use tokio::sync::watch;

use super::{Event, Gap, PayloadOverride, Phase, Sink, SizedEvent, Subject};

/// Maximum size of the events that wait for one sink, in bytes.
const WAITING: usize = 16 << 20;

/// Counts of lost events, over all sinks of a record.
#[derive(Debug, Default)]
pub(super) struct Counts {
    dropped: AtomicU64,
    failed: AtomicU64,
}

impl Counts {
    pub(super) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    pub(super) fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    fn drop_one(&self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }
}

/// A range of consecutive events that a sink did not get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MissingRange {
    count: u64,
    first: u64,
    last: u64,
}

impl MissingRange {
    fn one(seq: u64) -> Self {
        Self { count: 1, first: seq, last: seq }
    }

    /// Joins two ranges, in this order.
    fn join(earlier: Option<Self>, later: Option<Self>) -> Option<Self> {
        match (earlier, later) {
            (Some(a), Some(b)) => Some(Self { count: a.count + b.count, first: a.first, last: b.last }),
            (one, other) => one.or(other),
        }
    }

    /// The event that reports the range to a sink. It has the number of the last missing event, so that numbers
    /// increase.
    fn event(self, session_id: &str) -> Event {
        let span_id = format!("sandbox_op_{}", uuid::Uuid::new_v4().simple());
        let mut event = Event::new(session_id, Subject::Record(Gap::AuditDropped), Phase::Finish, span_id);
        event.seq = self.last;
        event.ok = Some(false);
        let data = json!({"dropped": self.count, "first_seq": self.first, "last_seq": self.last});
        event.data = data.as_object().cloned().unwrap_or_default();
        event
    }
}

/// An event in a queue, and the range that is missing before it.
struct Item {
    before: Option<MissingRange>,
    sized: SizedEvent,
}

/// State that the sender and the worker of a queue share.
#[derive(Debug)]
struct Shared {
    session_id: String,
    waiting: AtomicUsize,
    missing: Mutex<Option<MissingRange>>,
    /// The count of events that a caller waits for the sink to flush.
    wanted: AtomicU64,
    counts: Arc<Counts>,
}

impl Shared {
    fn missing(&self) -> MutexGuard<'_, Option<MissingRange>> {
        self.missing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The sending end of a queue.
#[derive(Debug)]
pub(super) struct Lane {
    items: SyncSender<Item>,
    shared: Arc<Shared>,
    policy: PayloadOverride,
    /// Number of events that were ever queued, and of those that the sink has flushed.
    queued: u64,
    flushed: watch::Receiver<u64>,
}

impl Lane {
    /// Starts the thread of a sink.
    pub(super) fn start(sink: Box<dyn Sink>, queue: usize, session_id: &str, counts: &Arc<Counts>) -> Self {
        let (items, received) = sync_channel(queue.max(1));
        let (flush, flushed) = watch::channel(0);
        // A sink must not panic through the caller's thread.
        let policy = catch_unwind(AssertUnwindSafe(|| sink.policy())).unwrap_or_default();
        let shared = Arc::new(Shared {
            session_id: session_id.to_owned(),
            waiting: AtomicUsize::new(0),
            missing: Mutex::new(None),
            wanted: AtomicU64::new(0),
            counts: counts.clone(),
        });
        let worker = SinkWorker {
            sink,
            shared: shared.clone(),
            missing: None,
            warned: AtomicBool::new(false),
            handled: 0,
            flush,
        };
        let started = thread::Builder::new().name("sandbar-audit".to_owned()).spawn(move || worker.run(&received));
        if let Err(error) = started {
            tracing::warn!(%error, "cannot start the thread of an audit sink; its events are dropped");
        }
        Self { items, shared, policy, queued: 0, flushed }
    }

    /// The overrides of the sink.
    pub(super) fn policy(&self) -> PayloadOverride {
        self.policy
    }

    /// Queues an event, or counts it as missing. Never waits.
    pub(super) fn offer(&mut self, sized: &SizedEvent) {
        let weight = sized.weight;
        let mut missing = self.shared.missing();
        let waiting = self.shared.waiting.fetch_add(weight, Ordering::Relaxed);
        let item = Item { before: *missing, sized: sized.clone() };
        // One event always fits, however large it is.
        let fits = waiting == 0 || waiting.saturating_add(weight) <= WAITING;
        if fits && self.items.try_send(item).is_ok() {
            *missing = None;
            self.queued += 1;
            return;
        }
        self.shared.waiting.fetch_sub(weight, Ordering::Relaxed);
        self.shared.counts.drop_one();
        *missing = MissingRange::join(*missing, Some(MissingRange::one(sized.event.seq)));
    }

    /// Completes when the sink has taken and flushed every event that is queued now, or has ended.
    pub(super) fn flushed(&self) -> impl Future<Output = ()> + use<> {
        let (queued, mut flushed) = (self.queued, self.flushed.clone());
        self.shared.wanted.fetch_max(queued, Ordering::Relaxed);
        async move {
            let _flushed_or_gone = flushed.wait_for(|count| *count >= queued).await;
        }
    }
}

/// The receiving end of a queue, with the sink.
struct SinkWorker {
    sink: Box<dyn Sink>,
    shared: Arc<Shared>,
    /// The missing range that was not reported to the sink yet.
    missing: Option<MissingRange>,
    warned: AtomicBool,
    /// Number of events taken from the queue and delivered or lost, and the channel that publishes the number of
    /// flushed ones.
    handled: u64,
    flush: watch::Sender<u64>,
}

impl SinkWorker {
    fn run(mut self, items: &Receiver<Item>) {
        while let Some(item) = self.next(items) {
            self.missing = MissingRange::join(self.missing, item.before);
            self.report_missing();
            // If the missing range could not be reported, this event is lost too, so that the order stays right.
            if self.missing.is_some() || !self.deliver(&item.sized.event) {
                self.shared.counts.failed.fetch_add(1, Ordering::Relaxed);
                self.missing = MissingRange::join(self.missing, Some(MissingRange::one(item.sized.event.seq)));
            }
            self.shared.waiting.fetch_sub(item.sized.weight, Ordering::Relaxed);
            self.handled += 1;
        }
        let last = self.shared.missing().take();
        self.settle(last);
        let sink = self.sink;
        let _sink_panicked = catch_unwind(AssertUnwindSafe(move || drop(sink)));
    }

    /// Waits for the next event. If the queue is empty, first reports what is missing at its end, and flushes.
    fn next(&mut self, items: &Receiver<Item>) -> Option<Item> {
        let (item, last) = {
            // The lock keeps the queue unchanged, so the missing range comes after every event in it.
            let mut missing = self.shared.missing();
            let item = items.try_recv();
            let last = if matches!(item, Err(TryRecvError::Empty)) { missing.take() } else { None };
            (item, last)
        };
        match item {
            Ok(item) => {
                // A caller waits for a flush, and the queue may never become empty.
                let wanted = self.shared.wanted.load(Ordering::Relaxed);
                if *self.flush.borrow() < wanted && wanted <= self.handled {
                    self.flush();
                }
                Some(item)
            }
            Err(TryRecvError::Disconnected) => None,
            Err(TryRecvError::Empty) => {
                self.settle(last);
                items.recv().ok()
            }
        }
    }

    /// Reports what is missing and flushes; called when the queue is empty.
    fn settle(&mut self, last: Option<MissingRange>) {
        self.missing = MissingRange::join(self.missing, last);
        self.report_missing();
        self.flush();
    }

    fn report_missing(&mut self) {
        let Some(missing) = self.missing else { return };
        if self.deliver(&missing.event(&self.shared.session_id)) {
            self.missing = None;
        }
    }

    fn deliver(&mut self, event: &Event) -> bool {
        let sink = &mut self.sink;
        let result = catch_unwind(AssertUnwindSafe(|| sink.deliver(event)));
        self.is_success(result)
    }

    fn flush(&mut self) {
        let sink = &mut self.sink;
        let result = catch_unwind(AssertUnwindSafe(|| sink.flush()));
        self.is_success(result);
        self.flush.send_replace(self.handled);
    }

    /// Whether the sink succeeded. Logs a warning for its first failure.
    fn is_success(&self, result: thread::Result<io::Result<()>>) -> bool {
        let reason = match result {
            Ok(Ok(())) => return true,
            Ok(Err(error)) => error.to_string(),
            Err(_panic) => "the sink panicked".to_owned(),
        };
        if !self.warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(session = %self.shared.session_id, %reason, "an audit sink fails; its events are lost");
        }
        false
    }
}
