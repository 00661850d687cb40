//! Traces: the events of a run as a tree of spans, and the processors that receive them.
//!
//! A [`Tracer`] is a value with [processors](TraceProcessor). It starts a [`Trace`]; below that are [`Span`]s, each of
//! which ends when it is dropped. A tracer that is off has no cost: it does not create the data of spans.
//!
//! ```
//! use sandbar_agent::trace::{MemoryTraces, NewTrace, SpanData, Tracer};
//!
//! let seen = MemoryTraces::default();
//! let tracer = Tracer::new(seen.clone());
//! let trace = tracer.trace(|| NewTrace::new("Support"));
//! {
//!     let agent = trace.span(|| SpanData::agent("triage"));
//!     let mut lookup = agent.span(|| SpanData::function("lookup", Some("{}")));
//!     lookup.output(|| "42".into());
//!     let mut refund = agent.span(|| SpanData::function("refund", None));
//!     refund.fail(|| "no such order".into());
//! }
//! drop(trace);
//! assert_eq!(seen.tree(), "Support\n  agent triage\n    function lookup\n    function refund (no such order)\n");
//! ```

mod data;
mod id;
mod jsonl;
mod memory;
mod processor;
mod queue;
mod span;
#[cfg(test)]
mod tests;
mod tracer;

pub use self::{
    data::SpanData,
    id::{BadId, GroupId, SpanId, TraceId},
    jsonl::JsonlFile,
    memory::{MemoryTraces, TraceEvent},
    processor::{Export, SpanError, SpanRecord, TraceExporter, TraceInfo, TraceProcessor},
    queue::{BatchLimits, Batched, ExportCounts},
    span::{Scope, Span, Trace},
    tracer::{NewTrace, Sensitive, Tracer},
};
