//! The queue in front of a trace exporter.

use std::{fmt, io, path::Path, sync::Arc, time::Duration};

use sandbar_jsonl::{Gap, Queue, Writer};

use super::{Export, JsonlFile, SpanRecord, TraceExporter, TraceInfo, TraceProcessor};

/// How long a drop waits for the last records. Short, because the dropping thread may serve other tasks.
const DROP_TIMEOUT: Duration = Duration::from_millis(100);

/// Limits of the queue, and how often the exporter is called.
pub use sandbar_jsonl::Limits as BatchLimits;

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
    queue: Queue<Export>,
}

/// An exporter at the end of the queue.
struct ExportWriter<E>(E);

impl<E: TraceExporter> Writer<Export> for ExportWriter<E> {
    fn write(&mut self, batch: &[Export]) -> io::Result<()> {
        self.0.export(batch)
    }

    fn report(&mut self, gap: Gap) -> io::Result<()> {
        tracing::warn!(lost = gap.count, "traces were lost: the queue of an exporter was full, or the exporter failed");
        Ok(())
    }
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
        Self { queue: Queue::start("sandbar-traces", ExportWriter(exporter), limits) }
    }

    /// Counts so far.
    #[must_use]
    pub fn counts(&self) -> ExportCounts {
        let counts = self.queue.counts();
        ExportCounts { exported: counts.written, dropped: counts.dropped, failed: counts.failed }
    }

    fn offer(&self, record: Export) {
        let weight = record.weight();
        self.queue.offer(record, weight);
    }
}

impl TraceProcessor for Batched {
    fn on_trace_start(&self, trace: &TraceInfo) {
        self.offer(Export::Trace(trace.clone()));
    }

    fn on_span_end(&self, span: &Arc<SpanRecord>) {
        self.offer(Export::Span(span.clone()));
    }

    fn force_flush(&self, within: Duration) -> bool {
        self.queue.flush(within)
    }

    fn shutdown(&self, within: Duration) -> bool {
        self.queue.close(within)
    }
}

impl Drop for Batched {
    fn drop(&mut self) {
        self.shutdown(DROP_TIMEOUT);
    }
}

impl fmt::Debug for Batched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batched").field("limits", &self.queue.limits()).field("counts", &self.counts()).finish()
    }
}
