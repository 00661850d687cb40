//! Tests of the parser of Responses events.

use serde_json::json;

use super::*;

/// Kinds of the events that each input event produces, and the end of the stream.
fn read(events: &[Value]) -> (Vec<String>, Option<ModelReply>, Option<ModelError>) {
    let (mut parser, mut output) = (Events::default(), VecDeque::new());
    let mut failure = None;
    for event in events {
        let data = event.to_string();
        if let Err(error) = parser.parse(SseEvent { name: None, data: data.as_bytes() }, &mut output) {
            failure = Some(error);
            break;
        }
    }
    let (mut kinds, mut reply) = (Vec::new(), None);
    for event in output {
        match event {
            ModelEvent::Raw(raw) => kinds.push(raw.kind().to_owned()),
            ModelEvent::Done(done) => reply = Some(done),
        }
    }
    (kinds, reply, failure)
}

fn done(place: u64, call: &str) -> Value {
    json!({ "type": "response.output_item.done", "output_index": place, "item": { "type": "x", "id": call } })
}

#[test]
fn the_last_event_holds_the_reply() {
    let usage = json!({ "input_tokens": 3, "output_tokens": 2, "total_tokens": 5, "output_tokens_details": null });
    let response = json!({ "id": "resp_1", "output": [{ "type": "a" }, { "type": "b" }], "usage": usage });
    let (kinds, reply, failure) = read(&[
        json!({ "type": "response.created", "response": {} }),
        done(0, "ignored"),
        json!({ "type": "response.completed", "response": response }),
    ]);
    assert_eq!(kinds, ["response.created", "response.output_item.done", "response.completed"]);
    assert!(failure.is_none());
    let reply = reply.expect("a reply");
    assert_eq!(reply.output.iter().map(Item::kind).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!((reply.response_id.as_deref(), reply.usage.total_tokens), (Some("resp_1"), 5));
}

#[test]
fn items_that_the_last_event_leaves_out_are_taken_from_their_own_in_order() {
    for response in [json!({ "output": [] }), json!({}), json!({ "output": null, "usage": null })] {
        let last = json!({ "type": "response.completed", "response": response });
        let (_, reply, _) = read(&[done(2, "c"), done(0, "a"), done(1, "b"), last]);
        let ids: Vec<_> = reply.expect("a reply").output.iter().map(|item| item.id().map(str::to_owned)).collect();
        assert_eq!(ids, [Some("a".to_owned()), Some("b".to_owned()), Some("c".to_owned())]);
    }
}

#[test]
fn odd_usage_spoils_no_reply() {
    for usage in [json!(null), json!("many"), json!({ "input_tokens": -1 }), json!([])] {
        let (_, reply, failure) = read(&[json!({ "type": "response.completed", "response": { "usage": usage } })]);
        assert!(failure.is_none());
        assert_eq!(reply.expect("a reply").usage.input_tokens, 0);
    }
}

#[test]
fn every_way_to_fail_is_told_as_one() {
    for (event, kind, code, message) in [
        (
            json!({ "type": "response.failed", "response": { "error": { "code": "server_error", "message": "m" } } }),
            "response.failed",
            Some("server_error"),
            "m",
        ),
        (json!({ "type": "response.failed", "response": {} }), "response.failed", None, "no explanation"),
        (
            json!({ "type": "response.incomplete", "response": { "incomplete_details": { "reason": "content_filter" } } }),
            "response.incomplete",
            Some("content_filter"),
            "its answer is incomplete: content_filter",
        ),
        (
            json!({ "type": "error", "code": "rate_limit_exceeded", "message": "m" }),
            "error",
            Some("rate_limit_exceeded"),
            "m",
        ),
        (json!({ "type": "error", "error": { "type": "invalid", "message": "m" } }), "error", Some("invalid"), "m"),
        (json!({ "error": { "message": "m" } }), "error", None, "m"),
        (json!({ "type": "response.x", "error": "m" }), "response.x", None, "m"),
    ] {
        let (kinds, reply, failure) = read(std::slice::from_ref(&event));
        assert_eq!(kinds, [kind], "{event}");
        assert!(reply.is_none());
        let Some(ModelError::Failed { code: found, message: text }) = failure else { panic!("{event}: {failure:?}") };
        assert_eq!((found.as_deref(), text.as_str()), (code, message), "{event}");
    }
}

#[test]
fn what_is_no_object_is_malformed() {
    for data in [&b"[1]"[..], b"hello", b"{\"a\":\"\xFF\"}", b"", b"{"] {
        let outcome = Events::default().parse(SseEvent { name: None, data }, &mut VecDeque::new());
        assert!(matches!(outcome, Err(ModelError::Malformed(_))), "{data:?}");
    }
    let (_, _, failure) = read(&[json!({ "type": "response.completed" })]);
    assert!(matches!(failure, Some(ModelError::Malformed(_))));
}

#[test]
fn an_event_without_a_type_has_the_name_of_its_line() {
    let mut output = VecDeque::new();
    let event = SseEvent { name: Some("response.created"), data: b"{}" };
    Events::default().parse(event, &mut output).expect("an event");
    let Some(ModelEvent::Raw(raw)) = output.pop_front() else { panic!("an event") };
    assert_eq!(raw.kind(), "response.created");
}
