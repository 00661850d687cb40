//! Tests that sinks which block, panic, fail or lag do not affect the session.

mod traced;

use std::{
    io,
    os::unix::fs::PermissionsExt,
    sync::{
        Arc,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::*;
use crate::{Result, SandboxError};

const SOON: Duration = Duration::from_secs(60);

type Events = Arc<Mutex<Vec<Event>>>;

/// A sink that collects its events.
fn memory() -> (Events, Box<dyn Sink>) {
    let seen = Events::default();
    let copy = seen.clone();
    (seen, Box::new(Callback::new(move |event: &Event| copy.lock().push(event.clone()))))
}

/// Controls a sink that takes an event only when the test allows it.
struct Gate {
    /// A message, or dropping the sender, lets the sink continue.
    _open: Sender<()>,
    /// Gets a message for every event that waits at the gate.
    waiting: Receiver<()>,
}

fn gated() -> (Events, Gate, Box<dyn Sink>) {
    let (seen, mut sink) = memory();
    let ((open, opened), (arrived, waiting)) = (channel(), channel());
    let gated = Callback::new(move |event: &Event| {
        let _test_ended = arrived.send(());
        let _open_or_gone = opened.recv();
        sink.deliver(event).unwrap();
    });
    (seen, Gate { _open: open, waiting }, Box::new(gated))
}

fn audit(sinks: Vec<Box<dyn Sink>>) -> Audit {
    Audit::new("session-1", sinks, AuditOptions::default())
}

async fn closed(audit: &Audit) {
    assert_eq!(audit.close(SOON).await, Flushed::Complete);
}

fn exec(audit: &Audit) {
    audit.begin(Op::Exec, json!({"command": ["true"]})).finish(End::Ok, json!({"exit_code": 0}));
}

#[tokio::test]
async fn an_operation_is_two_events_in_the_documented_shape() {
    let (seen, sink) = memory();
    let options = AuditOptions { trace_id: Some("trace".to_owned()), ..AuditOptions::default() };
    let audit = Audit::new("session-1", vec![sink], options);
    let start = audit.begin(Op::Start, Value::Null);
    let failed: Result<()> = Err(SandboxError::workspace_read_not_found("a"));
    start.child(Op::Read, json!({"path": "a"})).finish(&failed, json!({"bytes": 0}));
    start.finish(&Ok(()), Value::Null);
    closed(&audit).await;
    let seen = seen.lock();
    let mut lines: Vec<Value> = seen.iter().map(|event| serde_json::to_value(event).unwrap()).collect();
    let parent = lines[0]["span_id"].clone();
    assert!(parent.as_str().unwrap().starts_with("sandbox_op_"));
    for (event, line) in seen.iter().zip(&mut lines) {
        assert_eq!(&serde_json::from_value::<Event>(line.clone()).unwrap(), event);
        let fields = line.as_object_mut().unwrap();
        assert_eq!(fields.remove("event_id").unwrap().as_str().unwrap().len(), 36);
        assert!(fields.remove("ts").unwrap().as_str().unwrap().ends_with('Z'));
        assert_eq!(fields.remove("duration_ms").is_some(), event.phase == Phase::Finish);
        fields.remove("span_id");
    }
    let common = |seq, op, phase| json!({"version": 1, "session_id": "session-1", "trace_id": "trace", "seq": seq, "op": op, "phase": phase});
    let with = |mut value: Value, more: Value| {
        value.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
        value
    };
    let error = json!({
        "parent_span_id": parent, "data": {"path": "a", "bytes": 0}, "ok": false, "error_code": "workspace_read_not_found",
        "error_type": "WorkspaceReadNotFound", "error_message": "a does not exist", "error_retryable": false,
    });
    let expected = [
        with(common(1, "start", "start"), json!({"data": {}})),
        with(common(2, "read", "start"), json!({"parent_span_id": parent, "data": {"path": "a"}})),
        with(common(3, "read", "finish"), error),
        with(common(4, "start", "finish"), json!({"data": {}, "ok": true})),
    ];
    assert_eq!(lines, expected);
}

#[tokio::test]
async fn a_span_that_is_dropped_was_cancelled() {
    let (seen, sink) = memory();
    let audit = audit(vec![sink]);
    drop(audit.begin(Op::Exec, json!({"command": ["sleep"]})));
    closed(&audit).await;
    let seen = seen.lock();
    assert_eq!((seen.len(), seen[1].ok, seen[1].error_code.as_deref()), (2, Some(false), Some("cancelled")));
    assert_eq!((seen[1].phase, seen[1].data["command"][0].as_str()), (Phase::Finish, Some("sleep")));
    assert_eq!(seen[0].span_id, seen[1].span_id);
}

#[tokio::test]
async fn output_is_included_only_on_request() {
    for (include, expected) in [(false, None), (true, Some("[secret] is l…"))] {
        let (seen, sink) = memory();
        let policy = PayloadPolicy { include_exec_output: include, max_stdout_chars: 14, ..Default::default() };
        let secrets = SecretStore::new().with("TOKEN", "hunter22");
        let audit = Audit::new("s", vec![sink], AuditOptions { policy, secrets, ..AuditOptions::default() });
        let mut span = audit.begin(Op::Exec, json!({"command": ["print", "hunter22"]}));
        span.output(b"hunter22 is long", b"");
        span.finish(End::Failed, json!({"exit_code": 1}));
        closed(&audit).await;
        let seen = seen.lock();
        assert_eq!((seen[1].stdout.as_deref(), seen[1].ok), (expected, Some(false)));
        assert_eq!(seen[1].data["command"][1], "[secret]");
        assert!(!serde_json::to_string(&*seen).unwrap().contains("hunter22"));
    }
}

#[tokio::test]
async fn all_sinks_see_the_same_events_in_the_same_order_from_many_threads() {
    let ((one, first), (two, second)) = (memory(), memory());
    let audit = audit(vec![first, second]);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..100).for_each(|_| exec(&audit)));
        }
    });
    closed(&audit).await;
    let (one, two) = (one.lock(), two.lock());
    assert_eq!(*one, *two);
    assert!(one.iter().map(|event| event.seq).eq(1..=800));
    assert_eq!((audit.dropped(), audit.failed()), (0, 0));
}

#[tokio::test]
async fn a_slow_sink_does_not_delay_the_caller_and_gets_a_notice_of_dropped_events() {
    let (seen, gate, slow) = gated();
    let (other, quick) = memory();
    let audit = audit(vec![slow, quick]);
    // This loop would not end if the caller waited for the gate.
    for _ in 0..50_000 {
        exec(&audit);
    }
    let missed = audit.dropped();
    assert!(missed >= 100_000 - 4098, "{missed} were dropped");
    drop(gate);
    exec(&audit);
    closed(&audit).await;
    for seen in [seen.lock(), other.lock()] {
        let real = seen.iter().filter(|event| matches!(event.op, Subject::Operation(_))).count() as u64;
        let said: u64 = seen.iter().filter_map(|event| event.data.get("dropped")).filter_map(Value::as_u64).sum();
        assert_eq!(real + said, 100_002);
        assert!(seen.windows(2).all(|pair| pair[0].seq < pair[1].seq));
        let holes = seen.windows(2).filter(|pair| pair[1].seq != pair[0].seq + 1);
        assert!(holes.into_iter().all(|pair| pair[1].data["first_seq"] == pair[0].seq + 1), "every hole is explained");
        assert_eq!(seen.last().map(|event| event.seq), Some(100_002));
    }
}

#[tokio::test]
async fn events_missing_at_the_end_are_reported_at_the_end() {
    let (seen, gate, sink) = gated();
    let audit = Audit::new("s", vec![sink], AuditOptions { queue: 1, ..AuditOptions::default() });
    let span = audit.begin(Op::Exec, Value::Null);
    // Wait until the sink has taken the first event: the queue holds only one.
    gate.waiting.recv_timeout(SOON).unwrap();
    span.finish(End::Ok, Value::Null);
    for _ in 0..4 {
        exec(&audit);
    }
    drop(gate);
    closed(&audit).await;
    let seen = seen.lock();
    let last = seen.last().unwrap();
    assert_eq!((last.op, last.seq), (Subject::Record(Gap::AuditDropped), 10));
    let line = serde_json::to_value(last).unwrap();
    assert_eq!((&line["op"], &line["data"]["last_seq"]), (&json!("audit_dropped"), &json!(10)));
    assert_eq!(serde_json::from_value::<Event>(line).unwrap().op, last.op);
    assert_eq!(audit.dropped(), last.data["dropped"].as_u64().unwrap());
}

#[tokio::test]
async fn events_after_a_close_still_arrive() {
    let (seen, sink) = memory();
    let audit = audit(vec![sink]);
    for count in 1..=3 {
        exec(&audit);
        closed(&audit).await;
        assert_eq!(seen.lock().len(), 2 * count);
    }
    assert_eq!((audit.dropped(), audit.failed()), (0, 0));
}

/// Reports, when it is dropped, how often it was flushed.
struct Mortal(Box<dyn Sink>, Sender<usize>, usize);

impl Sink for Mortal {
    fn deliver(&mut self, event: &Event) -> io::Result<()> {
        self.0.deliver(event)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.2 += 1;
        Ok(())
    }
}

impl Drop for Mortal {
    fn drop(&mut self) {
        let _test_ended = self.1.send(self.2);
    }
}

#[tokio::test]
async fn a_sink_ends_with_the_last_clone_of_its_record_and_not_with_a_close() {
    let ((seen, inner), (gone, ended)) = (memory(), channel());
    let audit = audit(vec![Box::new(Mortal(inner, gone, 0))]);
    let (clone, span) = (audit.clone(), audit.begin(Op::Delete, Value::Null));
    closed(&audit).await;
    drop(audit);
    closed(&clone).await;
    drop(clone);
    assert!(ended.try_recv().is_err(), "an operation still lasts");
    span.finish(End::Ok, Value::Null);
    assert!(ended.recv_timeout(SOON).unwrap() > 0);
    assert_eq!(seen.lock().len(), 2);
}

struct Picky(Box<dyn Sink>, PayloadOverride);

impl Sink for Picky {
    fn deliver(&mut self, event: &Event) -> io::Result<()> {
        self.0.deliver(event)
    }

    fn policy(&self) -> PayloadOverride {
        assert!(self.1.max_stderr_chars.is_none(), "asked for the wrong thing");
        self.1
    }
}

#[tokio::test]
async fn every_sink_gets_what_its_own_policy_includes() {
    let loud = PayloadOverride { include_exec_output: Some(true), max_stdout_chars: Some(8), ..Default::default() };
    let brief = PayloadOverride { max_stdout_chars: Some(4), include_write_len: Some(false), ..Default::default() };
    let mute = PayloadOverride { include_exec_output: Some(false), ..Default::default() };
    let broken = PayloadOverride { max_stderr_chars: Some(1), ..Default::default() };
    let table = [
        (PayloadOverride::default(), Some("0123456…"), true),
        (brief, Some("012…"), false),
        (mute, None, true),
        (broken, Some("0123456…"), true),
    ];
    let (seen, sinks): (Vec<Events>, Vec<Box<dyn Sink>>) = table
        .iter()
        .map(|(policy, ..)| {
            let (seen, sink) = memory();
            (seen, Box::new(Picky(sink, *policy)) as Box<dyn Sink>)
        })
        .unzip();
    let options = AuditOptions { per_op: BTreeMap::from([(Op::Exec, loud)]), ..AuditOptions::default() };
    let audit = Audit::new("s", sinks, options);
    for op in [Op::Exec, Op::PtyStart] {
        let mut span = audit.begin(op, Value::Null);
        span.output(b"0123456789", b"");
        span.finish(End::Ok, Value::Null);
    }
    audit.begin(Op::Write, json!({"bytes": 5})).finish(End::Ok, json!({"path": "a"}));
    closed(&audit).await;
    for ((policy, stdout, sized), seen) in table.iter().zip(&seen) {
        let seen = seen.lock();
        assert_eq!(seen.len(), 6);
        assert_eq!((seen[1].stdout.as_deref(), &seen[3].stdout), (*stdout, &None), "{policy:?}");
        assert!(seen[4..].iter().all(|event| event.data.contains_key("bytes") == *sized), "{policy:?}");
        assert_eq!(seen[5].data["path"], "a");
    }
}

#[tokio::test]
async fn large_events_do_not_fill_the_memory() {
    let (_seen, gate, sink) = gated();
    let audit = audit(vec![sink]);
    let large = "x".repeat(60_000);
    for _ in 0..500 {
        audit.begin(Op::Exec, json!({"command": [&large]})).finish(End::Ok, Value::Null);
    }
    let kept = 1000 - audit.dropped();
    assert!((200..300).contains(&kept), "{kept} of 60 kB each are kept");
    drop(gate);
    closed(&audit).await;
}

#[tokio::test]
async fn a_sink_that_never_returns_delays_nothing_else() {
    let (_seen, gate, stuck) = gated();
    let (seen, quick) = memory();
    let audit = audit(vec![stuck, quick]);
    exec(&audit);
    assert_eq!(audit.close(Duration::from_millis(50)).await, Flushed::TimedOut);
    let deadline = Instant::now() + SOON;
    while seen.lock().len() < 2 {
        assert!(Instant::now() < deadline, "the other sink is delayed");
        thread::sleep(Duration::from_millis(5));
    }
    drop(gate);
    assert_eq!(audit.close(SOON).await, Flushed::Complete, "it has caught up");
}

struct Moody(Box<dyn FnMut(u64) -> io::Result<()> + Send>, Box<dyn Sink>);

impl Sink for Moody {
    fn deliver(&mut self, event: &Event) -> io::Result<()> {
        (self.0)(event.seq)?;
        self.1.deliver(event)
    }
}

impl Drop for Moody {
    fn drop(&mut self) {
        panic!("a sink may also panic when it is dropped");
    }
}

#[tokio::test]
async fn a_sink_that_fails_or_panics_gets_the_next_event_and_a_notice_of_lost_events() {
    let moods: [fn(u64) -> io::Result<()>; 2] = [
        |seq| if (3..6).contains(&seq) { Err(io::Error::other("full")) } else { Ok(()) },
        |seq| if (3..6).contains(&seq) { panic!("I do not like {seq}") } else { Ok(()) },
    ];
    for mood in moods {
        let (seen, inner) = memory();
        let (other, quick) = memory();
        let audit = audit(vec![Box::new(Moody(Box::new(mood), inner)), quick]);
        (0..4).for_each(|_| exec(&audit));
        closed(&audit).await;
        let seen = seen.lock();
        // The notice about event 5 also has the number 5 and is refused, so event 6 is lost too and reported later.
        let summary: Vec<(u64, Option<u64>)> =
            seen.iter().map(|event| (event.seq, event.data.get("dropped").and_then(Value::as_u64))).collect();
        assert_eq!(summary, [(1, None), (2, None), (6, Some(4)), (7, None), (8, None)]);
        assert_eq!((audit.failed(), audit.dropped(), other.lock().len()), (4, 0, 8));
    }
}

#[tokio::test]
async fn without_a_record_nothing_is_dropped() {
    let audit = Audit::off();
    exec(&audit);
    drop(audit.begin(Op::Read, Value::Null));
    closed(&audit).await;
    assert_eq!((audit.dropped(), audit.failed()), (0, 0));
    let nowhere = super::Audit::new("s", Vec::new(), AuditOptions::default());
    exec(&nowhere);
    assert_eq!(nowhere.dropped(), 0, "without a sink nothing is dropped");
}

#[tokio::test]
async fn a_file_is_appended_line_by_line_and_private_to_its_owner() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("logs/deep/events.jsonl");
    for _ in 0..2 {
        let audit = audit(vec![Box::new(Jsonl::open(&path).unwrap())]);
        exec(&audit);
        closed(&audit).await;
    }
    let text = std::fs::read_to_string(&path).unwrap();
    let events: Vec<Event> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(events.iter().map(|event| event.seq).collect::<Vec<_>>(), [1, 2, 1, 2]);
    assert!(text.ends_with('\n') && !text.contains(": "));
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
    assert!(Jsonl::open(home.path()).is_err(), "a directory is no file");
}

#[tokio::test]
async fn several_records_may_append_to_one_file() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("events.jsonl");
    let audits: Vec<Audit> = (0..4).map(|_| audit(vec![Box::new(Jsonl::open(&path).unwrap())])).collect();
    let long = "x".repeat(9000);
    thread::scope(|scope| {
        for audit in &audits {
            scope.spawn(|| {
                (0..100).for_each(|_| audit.begin(Op::Exec, json!({"command": [&long]})).finish(End::Ok, Value::Null));
            });
        }
    });
    for audit in &audits {
        closed(audit).await;
        assert_eq!((audit.dropped(), audit.failed()), (0, 0));
    }
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(text.lines().filter(|line| serde_json::from_str::<Event>(line).is_ok()).count(), 800);
}

#[test]
fn a_full_disk_is_an_error_of_the_sink() {
    let mut sink = Jsonl::open("/dev/full").unwrap();
    let event = Event::new("s", Subject::Operation(Op::Exec), Phase::Start, "span".to_owned());
    assert_eq!(sink.deliver(&event).unwrap_err().kind(), io::ErrorKind::StorageFull);
}
