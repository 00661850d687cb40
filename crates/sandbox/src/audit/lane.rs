//! The way to one sink: a bounded queue, the thread behind it, and the count of what did not fit.

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

use super::{Event, Gap, PayloadOverride, Phase, Sink, Subject, Told};

/// What may wait for one sink, in bytes.
const WAITING: usize = 16 << 20;

/// What went wrong, over all sinks of a record.
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

/// Events in a row that a sink has not seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Missing {
    count: u64,
    first: u64,
    last: u64,
}

impl Missing {
    fn one(seq: u64) -> Self {
        Self { count: 1, first: seq, last: seq }
    }

    /// Both, in this order.
    fn and(earlier: Option<Self>, later: Option<Self>) -> Option<Self> {
        match (earlier, later) {
            (Some(a), Some(b)) => Some(Self { count: a.count + b.count, first: a.first, last: b.last }),
            (one, other) => one.or(other),
        }
    }

    /// How a sink is told. The number is that of the last event that is missing, so numbers still only grow.
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

/// An event in a queue, and what is missing before it.
struct Item {
    before: Option<Missing>,
    told: Told,
}

/// What both ends of a queue know.
#[derive(Debug)]
struct Shared {
    session_id: String,
    waiting: AtomicUsize,
    missing: Mutex<Option<Missing>>,
    /// How many events of the queue somebody waits for the sink to have flushed.
    wanted: AtomicU64,
    counts: Arc<Counts>,
}

impl Shared {
    fn missing(&self) -> MutexGuard<'_, Option<Missing>> {
        self.missing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The near end of a queue.
#[derive(Debug)]
pub(super) struct Lane {
    items: SyncSender<Item>,
    shared: Arc<Shared>,
    policy: PayloadOverride,
    /// How many events were ever put into the queue, and how many of them the sink has flushed.
    queued: u64,
    flushed: watch::Receiver<u64>,
}

impl Lane {
    /// Starts the thread of a sink.
    pub(super) fn start(sink: Box<dyn Sink>, queue: usize, session_id: &str, counts: &Arc<Counts>) -> Self {
        let (items, received) = sync_channel(queue.max(1));
        let (flush, flushed) = watch::channel(0);
        // This is the caller's thread, which a sink must not break.
        let policy = catch_unwind(AssertUnwindSafe(|| sink.policy())).unwrap_or_default();
        let shared = Arc::new(Shared {
            session_id: session_id.to_owned(),
            waiting: AtomicUsize::new(0),
            missing: Mutex::new(None),
            wanted: AtomicU64::new(0),
            counts: counts.clone(),
        });
        let far =
            Far { sink, shared: shared.clone(), missing: None, warned: AtomicBool::new(false), handled: 0, flush };
        let started = thread::Builder::new().name("sandbar-audit".to_owned()).spawn(move || far.run(&received));
        if let Err(error) = started {
            tracing::warn!(%error, "cannot start the thread of an audit sink; its events are dropped");
        }
        Self { items, shared, policy, queued: 0, flushed }
    }

    /// What the sink is told differently.
    pub(super) fn policy(&self) -> PayloadOverride {
        self.policy
    }

    /// Puts an event into the queue, or counts it as missing. Never waits.
    pub(super) fn offer(&mut self, told: &Told) {
        let weight = told.weight;
        let mut missing = self.shared.missing();
        let waiting = self.shared.waiting.fetch_add(weight, Ordering::Relaxed);
        let item = Item { before: *missing, told: told.clone() };
        // One event always fits, however large it is.
        let fits = waiting == 0 || waiting.saturating_add(weight) <= WAITING;
        if fits && self.items.try_send(item).is_ok() {
            *missing = None;
            self.queued += 1;
            return;
        }
        self.shared.waiting.fetch_sub(weight, Ordering::Relaxed);
        self.shared.counts.drop_one();
        *missing = Missing::and(*missing, Some(Missing::one(told.event.seq)));
    }

    /// Ends when the sink has taken and flushed everything that is in the queue now, or is gone.
    pub(super) fn flushed(&self) -> impl Future<Output = ()> + use<> {
        let (queued, mut flushed) = (self.queued, self.flushed.clone());
        self.shared.wanted.fetch_max(queued, Ordering::Relaxed);
        async move {
            let _flushed_or_gone = flushed.wait_for(|count| *count >= queued).await;
        }
    }
}

/// The far end of a queue, with the sink.
struct Far {
    sink: Box<dyn Sink>,
    shared: Arc<Shared>,
    /// What the sink has not been told about yet.
    missing: Option<Missing>,
    warned: AtomicBool,
    /// How many events came out of the queue and are dealt with, and who is told once they are flushed, too.
    handled: u64,
    flush: watch::Sender<u64>,
}

impl Far {
    fn run(mut self, items: &Receiver<Item>) {
        while let Some(item) = self.next(items) {
            self.missing = Missing::and(self.missing, item.before);
            self.say_what_is_missing();
            // What was not even told is missing before this event, which is then missing too.
            if self.missing.is_some() || !self.deliver(&item.told.event) {
                self.shared.counts.failed.fetch_add(1, Ordering::Relaxed);
                self.missing = Missing::and(self.missing, Some(Missing::one(item.told.event.seq)));
            }
            self.shared.waiting.fetch_sub(item.told.weight, Ordering::Relaxed);
            self.handled += 1;
        }
        let last = self.shared.missing().take();
        self.settle(last);
        let sink = self.sink;
        let _its_own_trouble = catch_unwind(AssertUnwindSafe(move || drop(sink)));
    }

    /// The next event. While there is none, the sink hears what is missing at the end, and flushes.
    fn next(&mut self, items: &Receiver<Item>) -> Option<Item> {
        let (item, last) = {
            // Nothing enters the queue meanwhile, so what is missing now comes after everything that was in it.
            let mut missing = self.shared.missing();
            let item = items.try_recv();
            let last = if matches!(item, Err(TryRecvError::Empty)) { missing.take() } else { None };
            (item, last)
        };
        match item {
            Ok(item) => {
                // Somebody waits, and events never cease.
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

    /// Nothing is waiting.
    fn settle(&mut self, last: Option<Missing>) {
        self.missing = Missing::and(self.missing, last);
        self.say_what_is_missing();
        self.flush();
    }

    fn say_what_is_missing(&mut self) {
        let Some(missing) = self.missing else { return };
        if self.deliver(&missing.event(&self.shared.session_id)) {
            self.missing = None;
        }
    }

    fn deliver(&mut self, event: &Event) -> bool {
        let sink = &mut self.sink;
        let result = catch_unwind(AssertUnwindSafe(|| sink.deliver(event)));
        self.judge(result)
    }

    fn flush(&mut self) {
        let sink = &mut self.sink;
        let result = catch_unwind(AssertUnwindSafe(|| sink.flush()));
        self.judge(result);
        self.flush.send_replace(self.handled);
    }

    /// Whether it went well; the first time it does not, somebody is told.
    fn judge(&self, result: thread::Result<io::Result<()>>) -> bool {
        let trouble = match result {
            Ok(Ok(())) => return true,
            Ok(Err(error)) => error.to_string(),
            Err(_panic) => "it panicked".to_owned(),
        };
        if !self.warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(session = %self.shared.session_id, %trouble, "an audit sink fails; its events are lost");
        }
        false
    }
}
