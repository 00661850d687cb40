//! What a `tracing` subscriber sees of an operation.

use std::{
    collections::BTreeMap,
    fmt::Debug,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::Mutex;
use serde_json::Value;
use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
};

use crate::{
    Op, Result, SandboxError,
    audit::{Audit, sandbox_span},
};

type Spans = Arc<Mutex<BTreeMap<u64, BTreeMap<&'static str, String>>>>;

#[derive(Default)]
struct Recorder {
    next: AtomicU64,
    spans: Spans,
}

struct Fields<'a>(&'a mut BTreeMap<&'static str, String>);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}").trim_matches('"').to_owned());
    }
}

impl Subscriber for Recorder {
    fn enabled(&self, _metadata: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let id = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        let mut fields = BTreeMap::from([("name", span.metadata().name().to_owned())]);
        fields.insert("parent", span.parent().map_or(0, Id::into_u64).to_string());
        span.record(&mut Fields(&mut fields));
        self.spans.lock().insert(id, fields);
        Id::from_u64(id)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        values.record(&mut Fields(self.spans.lock().entry(span.into_u64()).or_default()));
    }

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn event(&self, _event: &Event<'_>) {}

    fn enter(&self, _span: &Id) {}

    fn exit(&self, _span: &Id) {}
}

#[test]
fn operations_are_spans_with_their_outcome() {
    let recorder = Recorder::default();
    let spans = recorder.spans.clone();
    // With a single dispatcher, a thread without a subscriber that reaches a callsite first disables it for all
    // threads.
    let _second = tracing::Dispatch::new(Recorder::default());
    tracing::subscriber::with_default(recorder, || {
        let audit = Audit::new("session-1", Vec::new(), Default::default());
        let start = audit.begin(Op::Start, Value::Null);
        let failed: Result<()> = Err(SandboxError::workspace_read_not_found("a"));
        start.child(Op::Read, Value::Null).finish(&failed, Value::Null);
        start.finish(&Ok(()), Value::Null);
        drop(Audit::off().begin(Op::Exec, Value::Null));
        drop(sandbox_span("prepare_agent"));
    });
    let spans = spans.lock();
    let table: &[(u64, &[(&str, &str)])] = &[
        (
            1,
            &[
                ("name", "sandbox"),
                ("otel.name", "sandbox.start"),
                ("sandbox.session.id", "session-1"),
                ("parent", "0"),
            ],
        ),
        (2, &[("otel.name", "sandbox.read"), ("parent", "1"), ("error_code", "workspace_read_not_found")]),
        (2, &[("error.type", "WorkspaceReadNotFound"), ("error_retryable", "false"), ("otel.status_code", "ERROR")]),
        (3, &[("sandbox.operation", "exec"), ("error_code", "cancelled")]),
        (4, &[("otel.name", "sandbox.prepare_agent"), ("sandbox.operation", "prepare_agent")]),
    ];
    for (id, fields) in table {
        for (field, value) in *fields {
            assert_eq!(spans[id].get(field).map(String::as_str), Some(*value), "{field} of {:?}", spans[id]);
        }
    }
    assert!(!spans[&1].contains_key("error_code"));
}
