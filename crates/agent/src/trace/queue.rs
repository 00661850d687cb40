//! Bounded queue and thread in front of a trace exporter; losses are counted.

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

/// How long a drop waits for the last records. Short, because the dropping thread may serve other tasks.
const DROP_TIMEOUT: Duration = Duration::from_millis(100);

/// Limits of the queue, and how often the exporter is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchLimits {
    /// The most records in the queue. More are dropped and counted.
    pub queue: usize,
    /// Approximate limit of the queue in bytes.
    pub bytes: usize,
    /// The most records per export.
    pub batch: usize,
    /// Longest time before an export, unless the queue fills up earlier.
    pub every: Duration,
}

impl Default for BatchLimits {
    fn default() -> Self {
        Self { queue: 8192, bytes: 64 << 20, batch: 128, every: Duration::from_secs(5) }
    }
}

/// Counts of exported and lost records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExportCounts {
    /// Records that were exported.
    pub exported: u64,
    /// Records that were dropped because the queue was full.
    pub dropped: u64,
    /// Records that the exporter failed to export.
    pub failed: u64,
}

/// A processor that sends records to an exporter on its own thread. It never waits for the exporter: records that do not fit
/// are dropped, counted and logged.
///
/// A drop waits for the exporter for at most 100 ms, which is enough for a file. A slow exporter continues while the program
/// runs. Call [`Tracer::flush`](super::Tracer::flush) before the program ends to wait longer.
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
    /// Notifies the thread that there is work.
    wake: Condvar,
    /// Notifies waiting callers that records were processed.
    done: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<(Export, usize)>,
    bytes: usize,
    /// Total records accepted, total processed, and the count that a caller of `force_flush` waits for.
    accepted: u64,
    processed: u64,
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
    /// Sends records to this exporter.
    pub fn new(exporter: impl TraceExporter + 'static) -> Self {
        Self::limited(exporter, BatchLimits::default())
    }

    /// Appends records to this file, one JSON object per line. A new file is readable by its owner only. Each record is
    /// written at once, so that a killed program leaves its trace.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub fn jsonl(path: impl AsRef<Path>) -> io::Result<Self> {
        let limits = BatchLimits { every: Duration::ZERO, ..BatchLimits::default() };
        Ok(Self::limited(JsonlFile::open(path)?, limits))
    }

    /// Sends records to this exporter, with other limits.
    pub fn limited(exporter: impl TraceExporter + 'static, limits: BatchLimits) -> Self {
        let shared = Arc::new(Shared { limits, state: Mutex::default(), wake: Condvar::new(), done: Condvar::new() });
        let worker = shared.clone();
        let started = thread::Builder::new().name("sandbar-traces".to_owned()).spawn(move || worker.run(exporter));
        if let Err(error) = started {
            tracing::warn!(%error, "cannot start the thread of a trace exporter; traces are dropped");
            shared.state().life = Life::Ended;
        }
        Self { shared }
    }

    /// Counts so far.
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
        self.shared.wait(state, within, |state| state.processed >= target).processed >= target
    }

    fn shutdown(&self, within: Duration) -> bool {
        let mut state = self.shared.state();
        if state.life == Life::Open {
            state.life = Life::Closing;
        }
        let state = self.shared.wait(state, within, |state| state.life == Life::Ended);
        state.life == Life::Ended && state.processed == state.accepted
    }
}

impl Drop for Batched {
    fn drop(&mut self) {
        self.shutdown(DROP_TIMEOUT);
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

    /// Queues a record, or counts it as dropped. Never waits for the exporter.
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
        state.waiting.len() >= seven_tenths_of(self.limits.queue) || state.bytes >= seven_tenths_of(self.limits.bytes)
    }

    /// Wakes the thread, and waits until the condition holds, the thread has ended, or the time is over.
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

    /// Body of the thread: waits for enough records or the interval, then exports all of them.
    fn run(&self, mut exporter: impl TraceExporter) {
        let mut reported = ExportCounts::default();
        loop {
            // An empty queue is waited for without a timeout: a short interval would keep a CPU busy.
            let nothing = |state: &mut State| state.life == Life::Open && state.waiting.is_empty();
            let state = self.wake.wait_while(self.state(), nothing).unwrap_or_else(PoisonError::into_inner);
            let idle = |state: &mut State| {
                state.life == Life::Open && state.wanted <= state.processed && !self.is_filling(state)
            };
            let waited = self.wake.wait_timeout_while(state, self.limits.every, idle);
            let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
            let target = state.accepted;
            drop(state);
            while self.export_some(&mut exporter, target) {}
            reported = self.report_losses(reported);
            let mut state = self.state();
            if state.life == Life::Closing && state.waiting.is_empty() {
                drop(state);
                // The exporter is dropped before waiting callers are notified, because its drop may close files.
                let _exporter_panicked = catch_unwind(AssertUnwindSafe(move || drop(exporter)));
                state = self.state();
                state.life = Life::Ended;
                self.done.notify_all();
                return;
            }
        }
    }

    /// Exports one batch of the records accepted up to `target`. Returns `false` if there are none.
    fn export_some(&self, exporter: &mut impl TraceExporter, target: u64) -> bool {
        let batch: Vec<Export> = {
            let mut state = self.state();
            let left = usize::try_from(target.saturating_sub(state.processed)).unwrap_or(usize::MAX);
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
        state.processed += count;
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

    fn report_losses(&self, reported: ExportCounts) -> ExportCounts {
        let counts = self.state().counts;
        let new = counts.dropped - reported.dropped;
        if new > 0 {
            tracing::warn!(dropped = new, "the queue of a trace exporter is full; traces were dropped");
        }
        counts
    }
}

/// Seven tenths of a limit, and at least one.
fn seven_tenths_of(limit: usize) -> usize {
    (limit / 10 * 7 + limit % 10 * 7 / 10).max(1)
}
