//! A bounded queue to a writer, which has its own thread; lost records are counted and reported.

use std::{
    collections::VecDeque,
    fmt, io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    thread,
    time::Duration,
};

use parking_lot::{Condvar, Mutex, MutexGuard};
use tokio::sync::watch;

/// Takes records, on its own thread. A writer may block, fail or panic without an effect on the caller of the queue.
pub trait Writer<T>: Send {
    /// Writes records, in order.
    ///
    /// # Errors
    /// Why they could not be written. All of them are lost and counted.
    fn write(&mut self, batch: &[T]) -> io::Result<()>;

    /// Says that records are missing before the next one.
    ///
    /// # Errors
    /// Why the gap could not be written. The next records are lost too, so that the order stays right.
    fn report(&mut self, _gap: Gap) -> io::Result<()> {
        Ok(())
    }

    /// Called when the queue is empty, or when a caller waits for a flush.
    ///
    /// # Errors
    /// Why the writer could not flush.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Limits of a queue, and how often its writer is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most records in the queue. More are dropped and counted.
    pub queue: usize,
    /// Approximate limit of the queue in bytes.
    pub bytes: usize,
    /// The most records per write.
    pub batch: usize,
    /// Longest time before a write, unless the queue fills up earlier.
    pub every: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { queue: 8192, bytes: 64 << 20, batch: 128, every: Duration::from_secs(5) }
    }
}

/// Counts of written and lost records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Records that were written.
    pub written: u64,
    /// Records that were dropped because the queue was full.
    pub dropped: u64,
    /// Records that the writer failed to write.
    pub failed: u64,
}

/// A range of records that the writer did not get. Records are numbered from 1 in the order in which they are offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Number of missing records.
    pub count: u64,
    /// Number of the first missing record.
    pub first: u64,
    /// Number of the last missing record.
    pub last: u64,
}

impl Gap {
    /// Joins two gaps, in this order.
    fn join(earlier: Option<Self>, later: Option<Self>) -> Option<Self> {
        match (earlier, later) {
            (Some(a), Some(b)) => Some(Self { count: a.count + b.count, first: a.first, last: b.last }),
            (one, other) => one.or(other),
        }
    }
}

/// A bounded queue to a [`Writer`]. When it is dropped, the writer still gets what is queued, in the background.
pub struct Queue<T> {
    shared: Arc<Shared<T>>,
}

struct Shared<T> {
    name: &'static str,
    limits: Limits,
    state: Mutex<State<T>>,
    /// Notifies the thread that there is work.
    wake: Condvar,
    /// Notifies waiting callers that records were flushed.
    done: Condvar,
    /// The same for callers that wait without a thread.
    flushed: watch::Sender<u64>,
}

struct State<T> {
    waiting: VecDeque<Entry<T>>,
    bytes: usize,
    /// Records that were dropped after the last one in the queue.
    missing: Option<Gap>,
    /// Total records offered, accepted, processed and flushed, and the count that a caller waits to be flushed.
    offered: u64,
    accepted: u64,
    processed: u64,
    flushed: u64,
    wanted: u64,
    counts: Counts,
    life: Life,
}

/// A record in the queue.
struct Entry<T> {
    record: T,
    number: u64,
    weight: usize,
    /// Records that are missing before it.
    before: Option<Gap>,
}

#[derive(Clone, Copy, PartialEq)]
enum Life {
    Open,
    Closing,
    Ended,
}

impl<T: Send + 'static> Queue<T> {
    /// Starts the thread of a writer, with this name.
    pub fn start(name: &'static str, writer: impl Writer<T> + 'static, limits: Limits) -> Self {
        let state = State {
            waiting: VecDeque::new(),
            bytes: 0,
            missing: None,
            offered: 0,
            accepted: 0,
            processed: 0,
            flushed: 0,
            wanted: 0,
            counts: Counts::default(),
            life: Life::Open,
        };
        let (wake, done) = (Condvar::new(), Condvar::new());
        let flushed = watch::Sender::new(0);
        let shared = Arc::new(Shared { name, limits, state: Mutex::new(state), wake, done, flushed });
        let worker = Worker { shared: shared.clone(), writer, missing: None, fails: false };
        if let Err(error) = thread::Builder::new().name(name.to_owned()).spawn(move || worker.run()) {
            tracing::warn!(queue = name, %error, "cannot start the thread of a queue; its records are dropped");
            shared.end();
        }
        Self { shared }
    }
}

impl<T> Queue<T> {
    /// Queues a record of about this many bytes, or drops and counts it. Never waits for the writer.
    pub fn offer(&self, record: T, weight: usize) {
        let mut state = self.shared.state();
        state.offered += 1;
        let number = state.offered;
        // One record always fits, however large it is.
        let fits = state.waiting.is_empty()
            || (state.waiting.len() < self.shared.limits.queue
                && state.bytes.saturating_add(weight) <= self.shared.limits.bytes);
        if !fits || state.life != Life::Open {
            state.counts.dropped += 1;
            state.missing = Gap::join(state.missing, Some(Gap { count: 1, first: number, last: number }));
            return;
        }
        let before = state.missing.take();
        state.waiting.push_back(Entry { record, number, weight, before });
        state.bytes = state.bytes.saturating_add(weight);
        state.accepted += 1;
        if state.waiting.len() == 1 || self.shared.is_filling(&state) {
            self.shared.wake.notify_one();
        }
    }

    /// Counts so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.shared.state().counts
    }

    /// Limits of the queue.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.shared.limits
    }

    /// Waits at most this long until the writer has taken and flushed every record that is queued now. Returns whether
    /// it has.
    #[must_use]
    pub fn flush(&self, within: Duration) -> bool {
        let (state, target) = self.want();
        self.shared.wait(state, within, |state| state.flushed >= target).flushed >= target
    }

    /// Completes when the writer has taken and flushed every record that is queued now, or has ended.
    pub fn flushed(&self) -> impl Future<Output = ()> + use<T> {
        let (state, target) = self.want();
        drop(state);
        self.shared.wake.notify_one();
        let mut flushed = self.shared.flushed.subscribe();
        async move {
            let _flushed_or_gone = flushed.wait_for(|count| *count >= target).await;
        }
    }

    /// Waits at most this long until the writer has taken every record and has ended. Later records are dropped.
    /// Returns whether it has.
    pub fn close(&self, within: Duration) -> bool {
        self.begin_to_close();
        let state = self.shared.wait(self.shared.state(), within, |_| false);
        state.life == Life::Ended && state.processed == state.accepted
    }

    #[cfg(test)]
    pub(crate) fn flushed_count(&self) -> u64 {
        self.shared.state().flushed
    }

    fn begin_to_close(&self) {
        let mut state = self.shared.state();
        if state.life == Life::Open {
            state.life = Life::Closing;
        }
        self.shared.wake.notify_one();
    }

    /// Asks for a flush of all records that are queued now, and returns their count.
    fn want(&self) -> (MutexGuard<'_, State<T>>, u64) {
        let mut state = self.shared.state();
        let target = state.accepted;
        state.wanted = state.wanted.max(target);
        (state, target)
    }
}

impl<T> Drop for Queue<T> {
    fn drop(&mut self) {
        self.begin_to_close();
    }
}

impl<T> fmt::Debug for Queue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, limits) = (self.shared.name, self.shared.limits);
        f.debug_struct("Queue").field("name", &name).field("limits", &limits).field("counts", &self.counts()).finish()
    }
}

impl<T> Shared<T> {
    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock()
    }

    fn is_filling(&self, state: &State<T>) -> bool {
        state.waiting.len() >= seven_tenths_of(self.limits.queue) || state.bytes >= seven_tenths_of(self.limits.bytes)
    }

    /// Wakes the thread, and waits until the condition holds, the thread has ended, or the time is over.
    fn wait<'a>(
        &self,
        mut state: MutexGuard<'a, State<T>>,
        within: Duration,
        holds: impl Fn(&State<T>) -> bool,
    ) -> MutexGuard<'a, State<T>> {
        self.wake.notify_one();
        self.done.wait_while_for(&mut state, |state| !holds(state) && state.life != Life::Ended, within);
        state
    }

    /// Waits for enough records, the interval, or a caller that waits for a flush. Returns the count of records to write: no
    /// more than such a caller waits for.
    fn wait_for_work(&self) -> u64 {
        // An empty queue is waited for without a timeout: a short interval would keep a CPU busy.
        let nothing = |state: &mut State<T>| state.life == Life::Open && state.waiting.is_empty();
        let mut state = self.state();
        self.wake.wait_while(&mut state, nothing);
        let idle =
            |state: &mut State<T>| state.life == Life::Open && state.wanted <= state.flushed && !self.is_filling(state);
        self.wake.wait_while_for(&mut state, idle, self.limits.every);
        if state.wanted > state.flushed { state.wanted } else { state.accepted }
    }

    /// Takes a batch of the records accepted up to `target`. There is no gap inside a batch.
    fn take(&self, target: u64) -> Vec<Entry<T>> {
        let mut state = self.state();
        let left = usize::try_from(target.saturating_sub(state.processed)).unwrap_or(usize::MAX);
        let most = self.limits.batch.max(1).min(left).min(state.waiting.len());
        let count = (1..most).find(|at| state.waiting[*at].before.is_some()).unwrap_or(most);
        let batch: Vec<Entry<T>> = state.waiting.drain(..count).collect();
        state.bytes = state.bytes.saturating_sub(batch.iter().map(|entry| entry.weight).sum());
        batch
    }

    fn end(&self) {
        self.state().life = Life::Ended;
        self.done.notify_all();
        self.flushed.send_replace(u64::MAX);
    }
}

/// The thread of a queue, with the writer.
struct Worker<T, W> {
    shared: Arc<Shared<T>>,
    writer: W,
    /// The gap that was not reported yet.
    missing: Option<Gap>,
    /// Whether a call of the writer has failed since it last wrote records.
    fails: bool,
}

impl<T, W: Writer<T>> Worker<T, W> {
    fn run(mut self) {
        loop {
            let target = self.shared.wait_for_work();
            loop {
                let batch = self.shared.take(target);
                if batch.is_empty() {
                    break;
                }
                self.write(batch);
            }
            if self.settle() {
                // The writer is dropped before waiting callers are notified, because its drop may close files.
                let (shared, writer) = (self.shared, self.writer);
                let _writer_panicked = catch_unwind(AssertUnwindSafe(move || drop(writer)));
                return shared.end();
            }
        }
    }

    fn write(&mut self, batch: Vec<Entry<T>>) {
        let count = batch.len() as u64;
        let before = batch.first().and_then(|entry| entry.before);
        let range = batch.first().zip(batch.last()).map(|(first, last)| (first.number, last.number));
        let records: Vec<T> = batch.into_iter().map(|entry| entry.record).collect();
        self.missing = Gap::join(self.missing, before);
        self.report();
        // If the gap could not be reported, these records are lost too, so that the order stays right.
        let is_written = self.missing.is_none() && self.call(|writer| writer.write(&records));
        if is_written {
            self.fails = false;
        } else {
            self.missing = Gap::join(self.missing, range.map(|(first, last)| Gap { count, first, last }));
        }
        let mut state = self.shared.state();
        state.processed += count;
        let counter = if is_written { &mut state.counts.written } else { &mut state.counts.failed };
        *counter += count;
    }

    /// Reports the gap at the end of the queue, and flushes. Returns whether the queue is closed and empty.
    fn settle(&mut self) -> bool {
        let last = {
            let mut state = self.shared.state();
            if state.waiting.is_empty() { state.missing.take() } else { None }
        };
        self.missing = Gap::join(self.missing, last);
        self.report();
        let (processed, is_due) = {
            let state = self.shared.state();
            (state.processed, state.waiting.is_empty() || state.wanted > state.flushed)
        };
        if is_due {
            self.call(Writer::flush);
            self.shared.state().flushed = processed;
            self.shared.done.notify_all();
            self.shared.flushed.send_replace(processed);
        }
        let state = self.shared.state();
        state.life == Life::Closing && state.waiting.is_empty()
    }

    fn report(&mut self) {
        if let Some(gap) = self.missing
            && self.call(|writer| writer.report(gap))
        {
            self.missing = None;
        }
    }

    /// Whether the writer succeeded. Logs a warning when it begins to fail; a flush that succeeds is no end of that.
    fn call(&mut self, call: impl FnOnce(&mut W) -> io::Result<()>) -> bool {
        let writer = &mut self.writer;
        let reason = match catch_unwind(AssertUnwindSafe(|| call(writer))) {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_panic) => Some("it panicked".to_owned()),
        };
        if let Some(reason) = &reason
            && !self.fails
        {
            tracing::warn!(queue = self.shared.name, %reason, "a writer fails; its records are lost");
        }
        self.fails |= reason.is_some();
        reason.is_none()
    }
}

/// Seven tenths of a limit, and at least one.
fn seven_tenths_of(limit: usize) -> usize {
    (limit / 10 * 7 + limit % 10 * 7 / 10).max(1)
}
