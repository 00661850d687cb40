//! A processor that remembers, for tests and for a look at what just happened.

use std::{
    collections::{HashMap, HashSet},
    fmt::Write as _,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use serde_json::Value;

use super::{SpanData, SpanId, SpanRecord, TraceId, TraceInfo, TraceProcessor};

/// How much is remembered.
const EVENTS: usize = 100_000;

/// One thing that a processor was told.
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

/// Remembers what it is told, up to 100,000 things. Its clones remember the same.
#[derive(Clone, Debug, Default)]
pub struct MemoryTraces(Arc<Mutex<Vec<TraceEvent>>>);

impl MemoryTraces {
    /// All of it, in order.
    #[must_use]
    pub fn events(&self) -> Vec<TraceEvent> {
        self.told().clone()
    }

    /// The spans that have ended, in order of their ends.
    #[must_use]
    pub fn spans(&self) -> Vec<Arc<SpanRecord>> {
        let told = self.told();
        let ended = told.iter().filter_map(|event| match event {
            TraceEvent::SpanEnd(span) => Some(span.clone()),
            _ => None,
        });
        ended.collect()
    }

    /// Traces and their spans, one line each in order of their starts, spans below what they are in. A whole run is a
    /// `task`, and each turn has its number. A span that has not ended yet is marked with `…`.
    #[must_use]
    pub fn tree(&self) -> String {
        Tree::of(&self.told()).drawn()
    }

    fn told(&self) -> MutexGuard<'_, Vec<TraceEvent>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, event: impl FnOnce() -> TraceEvent) {
        let mut told = self.told();
        if told.len() < EVENTS {
            told.push(event());
        }
    }
}

impl TraceProcessor for MemoryTraces {
    fn on_trace_start(&self, trace: &TraceInfo) {
        self.tell(|| TraceEvent::TraceStart(trace.clone()));
    }

    fn on_trace_end(&self, trace: &TraceInfo) {
        self.tell(|| TraceEvent::TraceEnd(trace.clone()));
    }

    fn on_span_start(&self, span: &SpanRecord) {
        self.tell(|| TraceEvent::SpanStart(Arc::new(span.clone())));
    }

    fn on_span_end(&self, span: &Arc<SpanRecord>) {
        self.tell(|| TraceEvent::SpanEnd(span.clone()));
    }
}

/// Events, put in order to be drawn.
#[derive(Default)]
struct Tree<'a> {
    traces: Vec<TraceId>,
    known: HashSet<TraceId>,
    names: HashMap<TraceId, &'a str>,
    /// What is directly in a trace or a span.
    inside: HashMap<(TraceId, Option<SpanId>), Vec<&'a SpanRecord>>,
    ended: HashMap<SpanId, &'a SpanRecord>,
}

impl<'a> Tree<'a> {
    fn of(events: &'a [TraceEvent]) -> Self {
        let mut tree = Self::default();
        for event in events {
            match event {
                TraceEvent::TraceStart(trace) | TraceEvent::TraceEnd(trace) => {
                    tree.seen(trace.id);
                    tree.names.insert(trace.id, &trace.workflow_name);
                }
                TraceEvent::SpanStart(span) => {
                    tree.seen(span.trace_id);
                    tree.inside.entry((span.trace_id, span.parent_id)).or_default().push(span);
                }
                TraceEvent::SpanEnd(span) => drop(tree.ended.insert(span.id, span)),
            }
        }
        tree
    }

    fn seen(&mut self, trace: TraceId) {
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

    /// What is directly in a trace or a span, the first one last.
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

/// Whether a span is that of a whole run or of a turn, which are told as custom ones, and which turn it is.
fn part_of_a_run(data: &SpanData) -> Option<(&str, Option<u64>)> {
    let SpanData::Custom { data, .. } = data else { return None };
    let kind = data.get("sdk_span_type")?.as_str().filter(|kind| ["task", "turn"].contains(kind))?;
    Some((kind, data.get("turn").and_then(Value::as_u64)))
}
