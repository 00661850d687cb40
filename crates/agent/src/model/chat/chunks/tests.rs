//! Tests of the parser of Chat Completions chunks, with the dialects of many servers.

use std::collections::HashSet;

use proptest::prelude::*;

use super::*;

struct Read {
    kinds: Vec<String>,
    output: Vec<Value>,
    usage: Usage,
    failure: Option<ModelError>,
    done: bool,
}

/// Parses chunks and then the end of the stream; a null chunk is `[DONE]`.
fn read(chunks: &[Value]) -> Read {
    let known =
        RequestFacts { custom: HashSet::from(["patch".to_owned()]), calls: HashSet::from(["call_old".to_owned()]) };
    let (mut parser, mut events) = (Chunks::new(Arc::new(known)), VecDeque::new());
    let mut outcome = Ok(());
    let is_done = |event: &ModelEvent| matches!(event, ModelEvent::Done(_));
    for chunk in chunks {
        let data = if chunk.is_null() { "[DONE]".to_owned() } else { chunk.to_string() };
        outcome = parser.parse(SseEvent { name: None, data: data.as_bytes() }, &mut events);
        if outcome.is_err() || events.iter().any(is_done) {
            break;
        }
    }
    if outcome.is_ok() && !events.iter().any(is_done) {
        outcome = parser.end(&mut events).map(drop);
    }
    let mut read = Read { kinds: vec![], output: vec![], usage: Usage::default(), failure: outcome.err(), done: false };
    for (at, event) in events.into_iter().enumerate() {
        match event {
            ModelEvent::Raw(raw) => {
                assert_eq!(raw.0["sequence_number"], json!(at));
                read.kinds.push(raw.kind().trim_start_matches("response.").to_owned());
            }
            ModelEvent::Done(reply) => {
                assert_eq!(reply.response_id, None);
                read.output = reply.output.iter().map(|item| json!(item)).collect();
                read.usage = reply.usage;
                read.done = true;
            }
        }
    }
    read
}

fn delta(delta: Value) -> Value {
    json!({ "id": "chatcmpl-1", "model": "m", "created": 1, "choices": [{ "index": 0, "delta": delta, "finish_reason": null }] })
}

fn finish(reason: &str) -> Value {
    json!({ "id": "chatcmpl-1", "choices": [{ "index": 0, "delta": {}, "finish_reason": reason }] })
}

fn calls(read: &Read) -> Vec<(String, String)> {
    let text = |item: &Value, name: &str| item[name].as_str().unwrap_or_default().to_owned();
    read.output.iter().map(|item| (text(item, "name"), text(item, "arguments"))).collect()
}

#[test]
fn a_text_is_told_as_responses_tell_it() {
    let usage = json!({ "choices": [], "usage": {
        "prompt_tokens": 5, "completion_tokens": 2, "prompt_tokens_details": { "cached_tokens": 3 },
        "completion_tokens_details": { "reasoning_tokens": 1 },
    }});
    let read = read(&[
        delta(json!({ "role": "assistant", "content": "" })),
        delta(json!({ "content": "Hel" })),
        delta(json!({ "content": "lo" })),
        finish("stop"),
        usage,
        Value::Null,
    ]);
    let expected = [
        "created",
        "output_item.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "output_item.done",
        "completed",
    ];
    assert_eq!(read.kinds, expected);
    assert_eq!(read.output, [json!(Item::assistant("Hello"))]);
    let usage = read.usage;
    assert_eq!((usage.input_tokens, usage.cached_tokens, usage.reasoning_tokens, usage.total_tokens), (5, 3, 1, 7));
}

#[test]
fn calls_are_put_together_however_a_server_numbers_them() {
    let call = |fields: Value| delta(json!({ "content": null, "tool_calls": [fields] }));
    let two = [("f".to_owned(), "{\"a\":1}".to_owned()), ("g".to_owned(), "{\"b\":2}".to_owned())];
    for (server, chunks) in [
        (
            "numbered, in pieces",
            vec![
                call(
                    json!({ "index": 0, "id": "c1", "type": "function", "function": { "name": "f", "arguments": "" } }),
                ),
                call(json!({ "index": 0, "function": { "arguments": "{\"a\"" } })),
                call(json!({ "index": 1, "id": "c2", "function": { "name": "g", "arguments": "{\"b\":2}" } })),
                call(json!({ "index": 0, "function": { "arguments": ":1}" } })),
            ],
        ),
        (
            "parsed arguments, all numbered 0, named",
            vec![
                call(json!({ "index": 0, "id": "c1", "function": { "name": "f", "arguments": { "a": 1 } } })),
                call(json!({ "index": 0, "id": "c2", "function": { "name": "g", "arguments": { "b": 2 } } })),
            ],
        ),
        (
            "neither numbers nor names",
            vec![
                call(json!({ "function": { "name": "f", "arguments": "{\"a\":" } })),
                call(json!({ "function": { "arguments": "1}" } })),
                call(json!({ "id": "", "function": { "name": "g", "arguments": "{\"b\":2}" } })),
            ],
        ),
        (
            "names only, repeated",
            vec![
                call(json!({ "id": "c1", "function": { "name": "f", "arguments": "{\"a\":" } })),
                call(json!({ "id": "c1", "function": { "name": "f", "arguments": "1}" } })),
                call(json!({ "id": "c2", "function": { "name": "g", "arguments": "{\"b\":2}" } })),
            ],
        ),
    ] {
        for reason in ["tool_calls", "stop", "function_call", "eos"] {
            let mut chunks = chunks.clone();
            chunks.push(finish(reason));
            let read = read(&chunks);
            assert_eq!(calls(&read), two, "{server}");
            let ids: HashSet<_> = read.output.iter().filter_map(|item| item["call_id"].as_str()).collect();
            assert_eq!(ids.len(), 2, "{server}");
            assert!(read.kinds.contains(&"function_call_arguments.delta".to_owned()));
        }
    }
}

#[test]
fn an_id_that_names_an_older_call_is_replaced() {
    let call = json!({ "index": 0, "id": "call_old", "function": { "name": "f", "arguments": "" } });
    let read = read(&[delta(json!({ "tool_calls": [call] })), finish("tool_calls")]);
    assert_ne!(read.output[0]["call_id"], "call_old");
    assert_eq!(calls(&read), [("f".to_owned(), "{}".to_owned())]);
}

#[test]
fn freeform_calls_come_back_as_such() {
    for (arguments, input) in [(r#"{"input":"a\nb"}"#, "a\nb"), ("plain text", "plain text")] {
        let call = json!({ "index": 0, "id": "c", "function": { "name": "patch", "arguments": arguments } });
        let read = read(&[delta(json!({ "tool_calls": [call] })), finish("tool_calls")]);
        let expected = json!({ "type": "custom_tool_call", "call_id": "c", "name": "patch", "input": input, "status": "completed" });
        assert_eq!(read.output, [expected]);
        assert!(read.kinds.contains(&"custom_tool_call_input.done".to_owned()));
    }
}

#[test]
fn thoughts_refusals_and_old_forms_are_understood() {
    let answer = read(&[
        delta(json!({ "reasoning_content": "hm" })),
        delta(json!({ "reasoning": "m" })),
        delta(json!({ "content": [{ "type": "text", "text": "yes" }] })),
        Value::Null,
    ]);
    assert_eq!(answer.output[0]["content"][0]["text"], "hmm");
    assert!(answer.output[0]["provider_data"].is_object(), "so that no other server gets it");
    assert_eq!(answer.output[1]["content"][0]["text"], "yes");
    assert_eq!(answer.usage.total_tokens, 0);

    let refused = read(&[delta(json!({ "refusal": "no" })), finish("stop")]);
    assert_eq!(refused.output[0]["content"][0]["refusal"], "no");

    let old = read(&[delta(json!({ "function_call": { "name": "f", "arguments": "{}" } })), finish("function_call")]);
    assert_eq!(calls(&old), [("f".to_owned(), "{}".to_owned())]);

    let whole = json!({ "choices": [{ "message": { "content": "all at once" }, "finish_reason": "stop" }] });
    assert_eq!(read(&[whole]).output, [json!(Item::assistant("all at once"))]);
}

#[test]
fn an_answer_without_an_end_is_not_one() {
    let cut = read(&[delta(json!({ "content": "Hel" }))]);
    assert!(!cut.done && cut.failure.is_none());
    assert!(!read(&[Value::Null]).done, "an end of nothing");
    assert!(!read(&[]).done);
    assert!(read(&[delta(json!({})), Value::Null]).done, "nothing to say, properly");
}

#[test]
fn what_ends_early_or_fails_is_an_error() {
    for (chunk, expected) in [
        (finish("length"), "max_output_tokens"),
        (finish("content_filter"), "content_filter"),
        (finish("error"), "server_error"),
        (json!({ "error": { "message": "m", "code": "overloaded" } }), "overloaded"),
    ] {
        let read = read(&[delta(json!({ "content": "x" })), chunk.clone(), Value::Null]);
        assert!(!read.done);
        let Some(ModelError::Failed { code, .. }) = read.failure else { panic!("{chunk}: {:?}", read.failure) };
        assert_eq!(code.as_deref(), Some(expected));
    }
    let garbage = Chunks::new(Arc::default()).parse(SseEvent { name: None, data: b"<html>" }, &mut VecDeque::new());
    assert!(matches!(garbage, Err(ModelError::Malformed(_))));
}

#[test]
fn calls_without_end_are_refused() {
    let many: Vec<Value> = (0..2000).map(|at| json!({ "index": at, "function": { "name": "f" } })).collect();
    let read = read(&[delta(json!({ "tool_calls": many }))]);
    assert!(matches!(read.failure, Some(ModelError::Malformed(_))));
}

/// Random JSON from the field names and values of chunks, in any position.
fn nonsense() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        (0..3_u64).prop_map(Value::from),
        prop::sample::select(vec!["", "a", "stop", "length", "patch", "call_old", "{\"input\":1}"])
            .prop_map(Value::from),
    ];
    let names = vec![
        "choices",
        "delta",
        "message",
        "content",
        "refusal",
        "reasoning",
        "tool_calls",
        "function_call",
        "function",
        "custom",
        "index",
        "id",
        "name",
        "arguments",
        "input",
        "finish_reason",
        "usage",
        "prompt_tokens",
        "error",
        "text",
    ];
    leaf.prop_recursive(6, 64, 5, move |inner| {
        let name = prop::sample::select(names.clone()).prop_map(str::to_owned);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::vec((name, inner), 0..5).prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_chunk_makes_a_reading_panic(
        deltas in prop::collection::vec(nonsense(), 0..5),
        chunks in prop::collection::vec(nonsense(), 0..3),
    ) {
        let mut all: Vec<Value> = deltas.into_iter().map(delta).collect();
        all.extend(chunks);
        all.push(Value::Null);
        let heard = read(&all);
        prop_assert!(heard.done || heard.failure.is_some() || heard.output.is_empty());
    }
}
