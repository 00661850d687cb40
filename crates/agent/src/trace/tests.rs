//! Tests of tracers: the calls of processors, the exported records, and the effect of a faulty exporter on a run.

use std::{
    fs, io,
    os::unix::fs::PermissionsExt as _,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    time::Duration,
};

use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};

use super::*;

const LONG: Duration = Duration::from_secs(120);

/// A tracer whose ids count up, and whose clock advances one second per reading.
fn counted(processor: impl TraceProcessor + 'static) -> Tracer {
    let (ids, seconds) = (AtomicU64::new(1), AtomicU64::new(0));
    Tracer::new(processor).ids(move || u128::from(ids.fetch_add(1, Ordering::Relaxed))).clock(move || {
        let seconds = seconds.fetch_add(1, Ordering::Relaxed);
        Timestamp::from_second(i64::try_from(seconds).unwrap()).unwrap()
    })
}

fn exported(span: &SpanRecord) -> Value {
    serde_json::to_value(Export::Span(Arc::new(span.clone()))).unwrap()
}

#[test]
fn a_trace_and_its_spans_are_told_in_order_and_nested() {
    let seen = MemoryTraces::default();
    let trace = counted(seen.clone()).trace(|| NewTrace::new("Flow").group("chat-1").metadata("user", 7));
    let info = trace.info().cloned().unwrap();
    let outer = trace.span(|| SpanData::agent("a"));
    let scope = outer.scope();
    let mut inner = std::thread::spawn(move || scope.span(|| SpanData::function("f", Some("{}")))).join().unwrap();
    inner.fail(|| SpanError { message: "broke".to_owned(), data: Some(json!({ "why": 1 })) });
    inner.fail(|| "later".into());
    inner.output(|| json!("out"));
    drop(inner);
    assert_eq!(seen.tree(), "Flow\n  agent a …\n    function f (broke)\n");
    drop(outer);
    trace.span(SpanData::response).end();
    drop(trace);

    let order: Vec<&str> = seen
        .events()
        .iter()
        .map(|event| match event {
            TraceEvent::TraceStart(_) => "trace",
            TraceEvent::TraceEnd(_) => "trace end",
            TraceEvent::SpanStart(span) => span.span_data.label().0,
            TraceEvent::SpanEnd(_) => "end",
        })
        .collect();
    assert_eq!(order, ["trace", "agent", "function", "end", "end", "response", "end", "trace end"]);
    assert_eq!(
        serde_json::to_value(Export::Trace(info)).unwrap(),
        json!({ "object": "trace", "id": "trace_00000000000000000000000000000001", "workflow_name": "Flow",
            "group_id": "chat-1", "metadata": { "user": 7 } })
    );
    assert_eq!(
        exported(&seen.spans()[0]),
        json!({
            "object": "trace.span",
            "id": "span_000000000000000000000003",
            "trace_id": "trace_00000000000000000000000000000001",
            "parent_id": "span_000000000000000000000002",
            "started_at": "1970-01-01T00:00:01Z",
            "ended_at": "1970-01-01T00:00:02Z",
            "span_data": { "type": "function", "name": "f", "input": "{}", "output": "out", "mcp_data": null },
            "error": { "message": "broke", "data": { "why": 1 } },
        })
    );
    assert_eq!(exported(&seen.spans()[1])["parent_id"], Value::Null);
}

#[test]
fn each_kind_of_span_has_its_form() {
    for (data, expected) in [
        (
            SpanData::agent("a"),
            json!({ "type": "agent", "name": "a", "handoffs": [], "tools": [], "output_type": null }),
        ),
        (
            SpanData::function("f", None),
            json!({ "type": "function", "name": "f", "input": null, "output": null, "mcp_data": null }),
        ),
        (
            SpanData::generation("m"),
            json!({ "type": "generation", "input": null, "output": null, "model": "m", "model_config": null,
                "usage": null }),
        ),
        (SpanData::response(), json!({ "type": "response", "response_id": null, "usage": null })),
        (SpanData::handoff("a"), json!({ "type": "handoff", "from_agent": "a", "to_agent": null })),
        (SpanData::guardrail("g"), json!({ "type": "guardrail", "name": "g", "triggered": false })),
        (SpanData::custom("c", Map::new()), json!({ "type": "custom", "name": "c", "data": {} })),
        (SpanData::mcp_tools("s"), json!({ "type": "mcp_tools", "server": "s", "result": [] })),
        (
            SpanData::task("t"),
            json!({ "type": "custom", "name": "task", "data": { "sdk_span_type": "task", "name": "t" } }),
        ),
        (
            SpanData::turn(2, "a"),
            json!({ "type": "custom", "name": "turn",
                "data": { "sdk_span_type": "turn", "turn": 2, "agent_name": "a" } }),
        ),
    ] {
        let value = serde_json::to_value(&data).unwrap();
        assert_eq!(value, expected);
        assert_eq!(serde_json::from_value::<SpanData>(value).unwrap(), data);
    }
}

#[test]
fn usage_and_output_go_where_the_kind_has_them() {
    let seen = MemoryTraces::default();
    let trace = counted(seen.clone()).trace(|| NewTrace::new("Flow"));
    for data in [SpanData::generation("m"), SpanData::turn(1, "a"), SpanData::agent("a")] {
        let mut span = trace.span(|| data);
        span.output(|| json!([1]));
        span.usage(|| json!({ "input_tokens": 3 }));
    }
    let spans: Vec<Value> = seen.spans().iter().map(|span| exported(span)["span_data"].clone()).collect();
    assert_eq!((&spans[0]["output"], &spans[0]["usage"]["input_tokens"]), (&json!([1]), &json!(3)));
    assert_eq!(spans[1]["data"]["usage"]["input_tokens"], 3);
    assert_eq!(spans[2].as_object().unwrap().len(), 5);
}

#[test]
fn what_was_said_can_be_left_out() {
    let seen = MemoryTraces::default();
    let trace = counted(seen.clone()).sensitive(Sensitive::LeaveOut).trace(|| NewTrace::new("Flow"));
    let mut function = trace.span(|| SpanData::function("f", Some("secret in")));
    function.output(|| "secret out".into());
    function.fail(|| SpanError { message: "failed".to_owned(), data: Some("secret why".into()) });
    drop(function);
    let mut generation = trace.span(|| SpanData::generation("m"));
    generation.update(|data| {
        if let SpanData::Generation { input, .. } = data {
            *input = Some("secret prompt".into());
        }
    });
    generation.output(|| json!(["secret text"]));
    generation.usage(|| json!({ "input_tokens": 3 }));
    drop(generation);
    assert!(!format!("{:?}", seen.events()).contains("secret"));
    assert_eq!(exported(&seen.spans()[1])["span_data"]["usage"]["input_tokens"], 3);
}

#[test]
fn a_trace_that_is_taken_up_again_does_not_start_twice() {
    let saved = {
        let trace = counted(MemoryTraces::default()).trace(|| NewTrace::new("Flow").group("g"));
        serde_json::to_string(trace.info().unwrap()).unwrap()
    };
    let seen = MemoryTraces::default();
    let trace = counted(seen.clone()).attach(serde_json::from_str(&saved).unwrap());
    drop(trace.span(|| SpanData::agent("a")));
    let first_span = seen.spans()[0].trace_id;
    assert_eq!(Some(first_span), trace.scope().trace_id());
    drop(trace);
    assert!(!seen.events().iter().any(|event| matches!(event, TraceEvent::TraceStart(_))));
    assert_eq!(seen.tree(), "Flow\n  agent a\n");
}

#[test]
fn a_tracer_that_is_off_asks_nothing() {
    let tracer = Tracer::off();
    let trace = tracer.trace(|| unreachable!("the tracer is off"));
    let mut span = trace.span(|| unreachable!("the tracer is off"));
    span.update(|_| unreachable!("the tracer is off"));
    span.output(|| unreachable!("the tracer is off"));
    span.fail(|| unreachable!("the tracer is off"));
    let inner = span.scope().span(|| unreachable!("the tracer is off"));
    assert_eq!((span.id(), inner.id(), trace.info(), tracer.group_id()), (None, None, None, None));
    assert!(!tracer.is_on() && tracer.flush(Duration::ZERO) && tracer.shutdown(Duration::ZERO));
}

#[test]
fn ids_of_traces_are_random_unless_they_are_given() {
    let tracer = Tracer::new(MemoryTraces::default());
    let id = |trace: &Trace| trace.info().unwrap().id;
    let (one, other) = (tracer.trace(|| NewTrace::new("a")), tracer.trace(|| NewTrace::new("a")));
    assert_ne!(id(&one), id(&other));
    assert_ne!(tracer.group_id(), tracer.group_id());
    let given = "trace_00000000000000000000000000000abc".parse().unwrap();
    assert_eq!(id(&tracer.trace(|| NewTrace::new("a").id(given))), given);
}

struct Panics;

impl TraceProcessor for Panics {
    fn on_span_end(&self, _span: &Arc<SpanRecord>) {
        panic!("a processor's own trouble");
    }

    fn force_flush(&self, _within: Duration) -> bool {
        panic!("a processor's own trouble");
    }
}

#[test]
fn a_processor_that_panics_does_not_affect_the_run() {
    let seen = MemoryTraces::default();
    let tracer = counted(Panics).and(seen.clone());
    drop(tracer.trace(|| NewTrace::new("a")).span(|| SpanData::agent("a")));
    assert_eq!(seen.spans().len(), 1);
    assert!(!tracer.flush(LONG));
}

#[test]
fn runs_and_turns_are_drawn_by_what_they_are() {
    let seen = MemoryTraces::default();
    let trace = counted(seen.clone()).trace(|| NewTrace::new("Flow"));
    let task = trace.span(|| SpanData::task("Flow"));
    task.span(|| SpanData::turn(2, "a")).fail(|| "broke".into());
    task.span(|| SpanData::custom("turn", Map::new())).end();
    task.span(|| SpanData::custom("", Map::from_iter([("sdk_span_type".to_owned(), json!("turn"))]))).end();
    assert_eq!(seen.tree(), "Flow\n  task …\n    turn 2 (broke)\n    custom turn\n    turn\n");
}

/// An exporter that waits for a permit before each batch, and records the sizes of batches.
struct Slow {
    go: mpsc::Receiver<io::Result<()>>,
    batches: Arc<Mutex<Vec<usize>>>,
}

impl TraceExporter for Slow {
    fn export(&mut self, batch: &[Export]) -> io::Result<()> {
        let result = self.go.recv().unwrap_or(Ok(()));
        self.batches.lock().push(batch.len());
        result
    }
}

/// Permits for the exporter, the sizes of its batches, and the queue in front of it.
type Controls = (mpsc::Sender<io::Result<()>>, Arc<Mutex<Vec<usize>>>, Batched);

fn slow(limits: BatchLimits) -> Controls {
    let (said, go) = mpsc::channel();
    let batches = Arc::new(Mutex::new(Vec::new()));
    let batched = Batched::limited(Slow { go, batches: batches.clone() }, limits);
    (said, batches, batched)
}

fn offer(batched: &Batched, count: usize) {
    let trace = TraceInfo { id: TraceId::of(1), workflow_name: "w".to_owned(), group_id: None, metadata: None };
    (0..count).for_each(|_| batched.on_trace_start(&trace));
}

#[test]
fn a_slow_exporter_does_not_block_the_run_and_lost_records_are_counted() {
    let limits = BatchLimits { queue: 10, batch: 4, every: LONG, ..BatchLimits::default() };
    let (go, batches, batched) = slow(limits);
    offer(&batched, 30);
    assert!(!batched.force_flush(Duration::from_millis(20)), "nothing is out while the exporter hangs");
    let lost = batched.counts().dropped;
    // The thread may have taken one batch out of the queue in the meantime.
    assert!((16..=20).contains(&lost), "{lost}");
    drop(go);
    assert!(batched.force_flush(LONG));
    let counts = batched.counts();
    assert_eq!((counts.exported, counts.dropped, counts.failed), (30 - lost, lost, 0));
    assert!(batches.lock().iter().all(|size| *size <= 4));
    assert!(batched.shutdown(LONG));
    offer(&batched, 1);
    assert_eq!(batched.counts().dropped, lost + 1, "nothing comes after the end");
}

#[test]
fn bytes_are_bounded_too() {
    let (go, _, batched) = slow(BatchLimits { bytes: 1000, every: LONG, ..BatchLimits::default() });
    let trace = TraceInfo { id: TraceId::of(1), workflow_name: "w".repeat(5000), group_id: None, metadata: None };
    (0..5).for_each(|_| batched.on_trace_start(&trace));
    let lost = batched.counts().dropped;
    assert!(lost >= 3, "{lost}");
    drop(go);
    assert!(batched.shutdown(LONG));
    assert_eq!(batched.counts().exported, 5 - lost);
}

#[test]
fn a_queue_that_fills_up_is_exported_before_its_time() {
    let (go, _, batched) =
        slow(BatchLimits { queue: 10, batch: 100, every: Duration::from_secs(3600), ..BatchLimits::default() });
    drop(go);
    offer(&batched, 7);
    eventually(|| (batched.counts().exported == 7).then_some(()));
}

/// Polls until there is a value, for at most two minutes.
fn eventually<T>(look: impl Fn() -> Option<T>) -> T {
    let looks = (0..12_000).map(|_| {
        std::thread::sleep(Duration::from_millis(10));
        look()
    });
    looks.flatten().next().expect("it should have come by now")
}

#[test]
fn any_limits_let_records_through() {
    let never = Duration::MAX;
    for (queue, bytes, every) in [
        (0, usize::MAX, never),
        (1, usize::MAX, never),
        (2, usize::MAX, never),
        (9, 0, never),
        (usize::MAX, usize::MAX, Duration::ZERO),
    ] {
        let (go, _, batched) = slow(BatchLimits { queue, bytes, batch: 0, every });
        drop(go);
        offer(&batched, 1);
        eventually(|| (batched.counts().exported == 1).then_some(()));
    }
}

#[test]
fn dropping_a_queue_does_not_wait_for_an_exporter_that_hangs() {
    let (go, batches, batched) = slow(BatchLimits::default());
    offer(&batched, 1);
    drop(batched);
    assert!(batches.lock().is_empty(), "it still hangs");
    drop(go);
    assert_eq!(eventually(|| batches.lock().first().copied()), 1, "and still gets its records");
}

struct Broken(u32);

impl TraceExporter for Broken {
    fn export(&mut self, _batch: &[Export]) -> io::Result<()> {
        self.0 += 1;
        match self.0 {
            1 => Err(io::Error::other("disk full")),
            2 => panic!("an exporter's own trouble"),
            _ => Ok(()),
        }
    }
}

#[test]
fn an_exporter_that_fails_is_counted_and_asked_again() {
    let batched = Batched::new(Broken(0));
    for _ in 0..3 {
        offer(&batched, 2);
        assert!(batched.force_flush(LONG));
    }
    assert_eq!(batched.counts(), ExportCounts { exported: 2, dropped: 0, failed: 4 });
}

#[test]
fn lines_are_added_to_a_file_of_the_owners() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("traces.jsonl");
    for round in 1..=2 {
        let tracer = counted(Batched::jsonl(&path).unwrap());
        let trace = tracer.trace(|| NewTrace::new("Flow"));
        trace.span(|| SpanData::function("long", Some(&"ü".repeat(200_000)))).end();
        drop(trace);
        drop(tracer);
        let text = eventually(|| fs::read_to_string(&path).ok().filter(|text| text.matches('\n').count() == 2 * round));
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!((&lines[0]["object"], &lines[1]["object"]), (&json!("trace"), &json!("trace.span")));
        let input = lines[1]["span_data"]["input"].as_str().unwrap();
        assert!(input.len() < 100_100 && input.ends_with("… [shortened]"), "{}", input.len());
    }
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_line_that_was_cut_off_does_not_spoil_the_next() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("traces.jsonl");
    fs::write(&path, "{\"object\":\"tra").unwrap();
    let tracer = Tracer::new(Batched::jsonl(&path).unwrap());
    drop(tracer.trace(|| NewTrace::new("Flow")));
    assert!(tracer.flush(LONG));
    let text = fs::read_to_string(&path).unwrap();
    assert_eq!(text.lines().count(), 2);
    assert!(serde_json::from_str::<Value>(text.lines().last().unwrap()).is_ok());
}

#[test]
fn a_record_that_is_too_long_keeps_its_place_in_the_tree() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("traces.jsonl");
    let tracer = counted(Batched::jsonl(&path).unwrap());
    let trace = tracer.trace(|| NewTrace::new("w".repeat(2 << 20)).metadata("more", "m".repeat(2 << 20)));
    let long = Map::from_iter([("all".to_owned(), Value::from("x".repeat(2 << 20)))]);
    trace.span(|| SpanData::custom("huge", long)).end();
    assert!(tracer.flush(LONG));
    let text = fs::read_to_string(&path).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(text.len() < 10_000);
    assert_eq!(lines[0]["id"], lines[1]["trace_id"]);
    assert_eq!(
        lines[1]["span_data"],
        json!({ "type": "custom", "name": "custom", "data": { "left_out": "too long" } })
    );
}
