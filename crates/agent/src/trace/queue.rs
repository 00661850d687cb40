//! The way to an exporter: a bounded queue, a thread behind it, and a count of what did not get through.

use std::{
    collections::VecDeque,
    fmt, io,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use super::{Export, JsonlFile, SpanRecord, TraceExporter, TraceInfo, TraceProcessor};

/// How long a dropped queue waits for its last records: it may be dropped where others wait for the same thread.
const FAREWELL: Duration = Duration::from_millis(100);

/// How much may wait for an exporter, and how often it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchLimits {
    /// How many records may wait. More are dropped, and counted.
    pub queue: usize,
    /// About how many bytes may wait.
    pub bytes: usize,
    /// How many records are exported at once.
    pub batch: usize,
    /// How long a record waits, unless the queue fills up before.
    pub every: Duration,
}

impl Default for BatchLimits {
    fn default() -> Self {
        Self { queue: 8192, bytes: 64 << 20, batch: 128, every: Duration::from_secs(5) }
    }
}

/// What became of the records that were offered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExportCounts {
    /// Taken by the exporter.
    pub exported: u64,
    /// Not even queued, because too much was waiting.
    pub dropped: u64,
    /// Refused by the exporter.
    pub failed: u64,
}

/// A processor that hands records to an exporter on a thread of its own. It never waits for the exporter: what does not
/// fit is dropped, counted, and said in the log.
///
/// Dropping it waits for the exporter, but no longer than a tenth of a second: a file gets its last records in that time,
/// and a slow exporter goes on for as long as the program does. Call [`Tracer::flush`](super::Tracer::flush) before the
/// end of a program to give it more.
///
/// ```
/// use std::time::Duration;
///
/// use sandbar_agent::trace::{Batched, NewTrace, Tracer};
///
/// let file = std::env::temp_dir().join(format!("traces-{}.jsonl", std::process::id()));
/// let tracer = Tracer::new(Batched::jsonl(&file)?);
/// drop(tracer.trace(|| NewTrace::new("Greeting")));
/// assert!(tracer.flush(Duration::from_secs(10)));
/// assert!(std::fs::read_to_string(&file)?.starts_with(r#"{"object":"trace","id":"trace_"#));
/// # std::fs::remove_file(&file)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Batched {
    shared: Arc<Shared>,
}

struct Shared {
    limits: BatchLimits,
    state: Mutex<State>,
    /// For the thread: there is something to do.
    wake: Condvar,
    /// For whoever waits: something was done.
    done: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<(Export, usize)>,
    bytes: usize,
    /// How many records ever came in, how many of those are dealt with, and up to which somebody waits for that.
    accepted: u64,
    settled: u64,
    wanted: u64,
    counts: ExportCounts,
    life: Life,
}

#[derive(Default, PartialEq)]
enum Life {
    #[default]
    Open,
    Closing,
    Ended,
}

impl Batched {
    /// Records go to this exporter.
    pub fn new(exporter: impl TraceExporter + 'static) -> Self {
        Self::limited(exporter, BatchLimits::default())
    }

    /// Records go to the end of this file, one JSON object per line. The file is made if need be, for its owner only. Each
    /// is written as soon as it comes, so that a program that is killed leaves what it has done.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub fn jsonl(path: impl AsRef<Path>) -> io::Result<Self> {
        let limits = BatchLimits { every: Duration::ZERO, ..BatchLimits::default() };
        Ok(Self::limited(JsonlFile::open(path)?, limits))
    }

    /// Records go to this exporter, within other limits.
    pub fn limited(exporter: impl TraceExporter + 'static, limits: BatchLimits) -> Self {
        let shared = Arc::new(Shared { limits, state: Mutex::default(), wake: Condvar::new(), done: Condvar::new() });
        let far = shared.clone();
        let started = thread::Builder::new().name("sandbar-traces".to_owned()).spawn(move || far.run(exporter));
        if let Err(error) = started {
            tracing::warn!(%error, "cannot start the thread of a trace exporter; traces are dropped");
            shared.state().life = Life::Ended;
        }
        Self { shared }
    }

    /// What became of the records so far.
    #[must_use]
    pub fn counts(&self) -> ExportCounts {
        self.shared.state().counts
    }
}

impl TraceProcessor for Batched {
    fn on_trace_start(&self, trace: &TraceInfo) {
        self.shared.offer(Export::Trace(trace.clone()));
    }

    fn on_span_end(&self, span: &Arc<SpanRecord>) {
        self.shared.offer(Export::Span(span.clone()));
    }

    fn force_flush(&self, within: Duration) -> bool {
        let mut state = self.shared.state();
        let target = state.accepted;
        state.wanted = state.wanted.max(target);
        self.shared.wait(state, within, |state| state.settled >= target).settled >= target
    }

    fn shutdown(&self, within: Duration) -> bool {
        let mut state = self.shared.state();
        if state.life == Life::Open {
            state.life = Life::Closing;
        }
        let state = self.shared.wait(state, within, |state| state.life == Life::Ended);
        state.life == Life::Ended && state.settled == state.accepted
    }
}

impl Drop for Batched {
    fn drop(&mut self) {
        self.shutdown(FAREWELL);
    }
}

impl fmt::Debug for Batched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batched").field("limits", &self.shared.limits).field("counts", &self.counts()).finish()
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a record into the queue, or counts it as dropped. Never waits for the exporter.
    fn offer(&self, record: Export) {
        let weight = record.weight();
        let mut state = self.state();
        // One record always fits, however large it is.
        let fits = state.waiting.is_empty()
            || (state.waiting.len() < self.limits.queue && state.bytes.saturating_add(weight) <= self.limits.bytes);
        if !fits || state.life != Life::Open {
            state.counts.dropped += 1;
            return;
        }
        state.waiting.push_back((record, weight));
        state.bytes = state.bytes.saturating_add(weight);
        state.accepted += 1;
        if state.waiting.len() == 1 || self.is_filling(&state) {
            self.wake.notify_one();
        }
    }

    fn is_filling(&self, state: &State) -> bool {
        state.waiting.len() >= most_of(self.limits.queue) || state.bytes >= most_of(self.limits.bytes)
    }

    /// Wakes the thread, and waits until something holds, the thread is gone, or time is up.
    fn wait<'a>(
        &self,
        state: MutexGuard<'a, State>,
        within: Duration,
        holds: impl Fn(&State) -> bool,
    ) -> MutexGuard<'a, State> {
        self.wake.notify_one();
        let waited = self.done.wait_timeout_while(state, within, |state| !holds(state) && state.life != Life::Ended);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// The thread: sleeps until there is enough to do, or until its time, then does all of it.
    fn run(&self, mut exporter: impl TraceExporter) {
        let mut said = ExportCounts::default();
        loop {
            // Nothing to do takes no time limit: a short one would keep a processor busy.
            let nothing = |state: &mut State| state.life == Life::Open && state.waiting.is_empty();
            let state = self.wake.wait_while(self.state(), nothing).unwrap_or_else(PoisonError::into_inner);
            let idle = |state: &mut State| {
                state.life == Life::Open && state.wanted <= state.settled && !self.is_filling(state)
            };
            let waited = self.wake.wait_timeout_while(state, self.limits.every, idle);
            let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
            let target = state.accepted;
            drop(state);
            while self.export_some(&mut exporter, target) {}
            said = self.say_losses(said);
            let mut state = self.state();
            if state.life == Life::Closing && state.waiting.is_empty() {
                drop(state);
                // The exporter may have something to close, and is gone before anybody is told so.
                let _its_own_trouble = catch_unwind(AssertUnwindSafe(move || drop(exporter)));
                state = self.state();
                state.life = Life::Ended;
                self.done.notify_all();
                return;
            }
        }
    }

    /// Exports one batch of what came in up to a point; no more to do is `false`.
    fn export_some(&self, exporter: &mut impl TraceExporter, target: u64) -> bool {
        let batch: Vec<Export> = {
            let mut state = self.state();
            let left = usize::try_from(target.saturating_sub(state.settled)).unwrap_or(usize::MAX);
            let count = self.limits.batch.max(1).min(left).min(state.waiting.len());
            let taken: Vec<(Export, usize)> = state.waiting.drain(..count).collect();
            state.bytes = state.bytes.saturating_sub(taken.iter().map(|(_, weight)| weight).sum());
            taken.into_iter().map(|(record, _)| record).collect()
        };
        if batch.is_empty() {
            return false;
        }
        let result = catch_unwind(AssertUnwindSafe(|| exporter.export(&batch)));
        let count = batch.len() as u64;
        let mut state = self.state();
        state.settled += count;
        match result {
            Ok(Ok(())) => state.counts.exported += count,
            Ok(Err(error)) => {
                state.counts.failed += count;
                drop(state);
                tracing::warn!(%error, count, "traces could not be exported");
            }
            Err(_) => {
                state.counts.failed += count;
                drop(state);
                tracing::warn!(count, "a trace exporter panicked; its traces are lost");
            }
        }
        self.done.notify_all();
        true
    }

    fn say_losses(&self, said: ExportCounts) -> ExportCounts {
        let counts = self.state().counts;
        let new = counts.dropped - said.dropped;
        if new > 0 {
            tracing::warn!(dropped = new, "more traces came than the exporter could take; some are lost");
        }
        counts
    }
}

/// Seven tenths of a limit, and at least one: an empty queue is never nearly full.
fn most_of(limit: usize) -> usize {
    (limit / 10 * 7 + limit % 10 * 7 / 10).max(1)
}
