//! A processor that keeps traces in memory, for tests and inspection.

use std::{
    collections::{HashMap, HashSet},
    fmt::Write as _,
    sync::Arc,
};

use parking_lot::{Mutex, MutexGuard};
use serde_json::Value;

use super::{SpanData, SpanId, SpanRecord, TraceId, TraceInfo, TraceProcessor};

/// The most events that are kept.
const EVENTS: usize = 100_000;

/// One event that a processor received.
#[derive(Clone, Debug, PartialEq)]
pub enum TraceEvent {
    /// A trace began.
    TraceStart(TraceInfo),
    /// A trace ended.
    TraceEnd(TraceInfo),
    /// A span began.
    SpanStart(Arc<SpanRecord>),
    /// A span ended.
    SpanEnd(Arc<SpanRecord>),
}

/// Keeps events in memory, up to 100,000. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct MemoryTraces(Arc<Mutex<Vec<TraceEvent>>>);

impl MemoryTraces {
    /// All events, in order.
    #[must_use]
    pub fn events(&self) -> Vec<TraceEvent> {
        self.lock().clone()
    }

    /// Ended spans, in the order in which they ended.
    #[must_use]
    pub fn spans(&self) -> Vec<Arc<SpanRecord>> {
        let events = self.lock();
        let ended = events.iter().filter_map(|event| match event {
            TraceEvent::SpanEnd(span) => Some(span.clone()),
            _ => None,
        });
        ended.collect()
    }

    /// Traces and their spans as an indented tree, one line each, in the order in which they started. A run is a `task`, and
    /// each turn has its number. A span that has not ended is marked with `…`.
    #[must_use]
    pub fn tree(&self) -> String {
        Tree::of(&self.lock()).drawn()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<TraceEvent>> {
        self.0.lock()
    }

    fn record(&self, event: impl FnOnce() -> TraceEvent) {
        let mut events = self.lock();
        if events.len() < EVENTS {
            events.push(event());
        }
    }
}

impl TraceProcessor for MemoryTraces {
    fn on_trace_start(&self, trace: &TraceInfo) {
        self.record(|| TraceEvent::TraceStart(trace.clone()));
    }

    fn on_trace_end(&self, trace: &TraceInfo) {
        self.record(|| TraceEvent::TraceEnd(trace.clone()));
    }

    fn on_span_start(&self, span: &SpanRecord) {
        self.record(|| TraceEvent::SpanStart(Arc::new(span.clone())));
    }

    fn on_span_end(&self, span: &Arc<SpanRecord>) {
        self.record(|| TraceEvent::SpanEnd(span.clone()));
    }
}

/// Events as a tree.
#[derive(Default)]
struct Tree<'a> {
    traces: Vec<TraceId>,
    known: HashSet<TraceId>,
    names: HashMap<TraceId, &'a str>,
    /// Direct children of a trace or a span.
    inside: HashMap<(TraceId, Option<SpanId>), Vec<&'a SpanRecord>>,
    ended: HashMap<SpanId, &'a SpanRecord>,
}

impl<'a> Tree<'a> {
    fn of(events: &'a [TraceEvent]) -> Self {
        let mut tree = Self::default();
        for event in events {
            match event {
                TraceEvent::TraceStart(trace) | TraceEvent::TraceEnd(trace) => {
                    tree.add_trace(trace.id);
                    tree.names.insert(trace.id, &trace.workflow_name);
                }
                TraceEvent::SpanStart(span) => {
                    tree.add_trace(span.trace_id);
                    tree.inside.entry((span.trace_id, span.parent_id)).or_default().push(span);
                }
                TraceEvent::SpanEnd(span) => drop(tree.ended.insert(span.id, span)),
            }
        }
        tree
    }

    fn add_trace(&mut self, trace: TraceId) {
        if self.known.insert(trace) {
            self.traces.push(trace);
        }
    }

    fn drawn(&self) -> String {
        let mut text = String::new();
        for trace in &self.traces {
            let name = self.names.get(trace).map_or_else(|| trace.to_string(), |name| (*name).to_owned());
            let _strings_take_all = writeln!(text, "{name}");
            let mut waiting = self.below(*trace, None, 1);
            while let Some((depth, span)) = waiting.pop() {
                self.line(span, depth, &mut text);
                waiting.extend(self.below(*trace, Some(span.id), depth + 1));
            }
        }
        text
    }

    /// Direct children of a trace or a span, in reverse order.
    fn below(&self, trace: TraceId, parent: Option<SpanId>, depth: usize) -> Vec<(usize, &'a SpanRecord)> {
        let spans = self.inside.get(&(trace, parent)).into_iter().flatten();
        spans.rev().map(|span| (depth, *span)).collect()
    }

    fn line(&self, span: &SpanRecord, depth: usize, text: &mut String) {
        let ended = self.ended.get(&span.id);
        text.push_str(&"  ".repeat(depth));
        let data = &ended.unwrap_or(&span).span_data;
        let _strings_take_all = match (part_of_a_run(data), data.label()) {
            (Some(("turn", Some(number))), _) => write!(text, "turn {number}"),
            (Some((kind, _)), _) | (None, (kind, "")) => write!(text, "{kind}"),
            (None, (kind, name)) => write!(text, "{kind} {name}"),
        };
        match ended {
            Some(SpanRecord { error: Some(error), .. }) => {
                let _strings_take_all = write!(text, " ({})", error.message);
            }
            Some(_) => {}
            None => text.push_str(" …"),
        }
        text.push('\n');
    }
}

/// Whether a custom span is that of a run or of a turn, and the number of the turn.
fn part_of_a_run(data: &SpanData) -> Option<(&str, Option<u64>)> {
    let SpanData::Custom { data, .. } = data else { return None };
    let kind = data.get("sdk_span_type")?.as_str().filter(|kind| ["task", "turn"].contains(kind))?;
    Some((kind, data.get("turn").and_then(Value::as_u64)))
}
