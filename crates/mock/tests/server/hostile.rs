//! Malformed requests get an error, and the next request is served.

use proptest::{prelude::*, test_runner::Config};
use sandbar_mock::{Script, item};
use serde_json::{Value, json};

use super::wire::{call, output, request, said, serve, user};

/// Any small JSON, with words that mean something to the server.
fn anything() -> impl Strategy<Value = Value> {
    let words = prop::sample::select(vec![
        "",
        "type",
        "message",
        "function_call",
        "reasoning",
        "item_reference",
        "user",
        "assistant",
        "call_0_0",
        "msg_0_0",
        "mock:0_0",
        "mock:9_9-",
        "resp_0_0",
        "object",
        "auto",
        "🦀",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        words.clone().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((words.clone(), inner), 0..4)
                .prop_map(|fields| fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()),
        ]
    })
}

/// Requests that are fine, until something in them is replaced.
fn fine() -> Vec<(&'static str, Value)> {
    let parameters = json!({"type": "object", "properties": {"a": {"anyOf": [{"type": "string"}]}}, "required": ["a"],
        "additionalProperties": false});
    let tool = json!({"type": "function", "name": "f", "strict": true, "parameters": parameters});
    let mut whole = request(json!([user("hi"), call("call_0_0"), output("call_0_0"), said("one")]));
    whole["tools"] = json!([tool]);
    whole["tool_choice"] = json!({"type": "function", "name": "f"});
    whole["text"] = json!({"format": {"type": "json_schema", "name": "n", "schema": parameters}});
    let tool_call = json!({"id": "call_0_0", "type": "function", "function": {"name": "f", "arguments": "{}"}});
    let messages = json!([user("hi"), {"role": "assistant", "content": null, "tool_calls": [tool_call]},
        {"role": "tool", "tool_call_id": "call_0_0", "content": [{"type": "text", "text": "ok"}]}]);
    vec![
        ("/responses", whole.clone()),
        ("/responses/compact", request(whole["input"].clone())),
        (
            "/chat/completions",
            json!({"model": "m", "messages": messages, "stream": true, "tools": [{"type": "function", "function": tool}]}),
        ),
        ("/conversations", json!({"items": whole["input"], "metadata": {"a": "b"}})),
    ]
}

/// Every place in a value.
fn places(value: &Value, here: String, found: &mut Vec<String>) {
    match value {
        Value::Array(list) => {
            list.iter().enumerate().for_each(|(at, inner)| places(inner, format!("{here}/{at}"), found))
        }
        Value::Object(map) => map.iter().for_each(|(key, inner)| places(inner, format!("{here}/{key}"), found)),
        _ => {}
    }
    found.push(here);
}

#[test]
fn whatever_is_sent_is_answered() {
    let script = Script::new().turn(item::function_call("f", json!({}))).turn(item::text("one")).closing("over");
    let (_server, client) = serve(script);
    let client = std::cell::RefCell::new(client);
    for (path, body) in fine() {
        assert_eq!(client.borrow_mut().post(path, &body).status, 200, "{path}");
    }
    let config = Config { cases: 256, failure_persistence: None, ..Config::default() };
    proptest!(config, |(which in 0..fine().len(), at in any::<prop::sample::Index>(), value in anything())| {
        let (path, mut body) = fine().swap_remove(which);
        let mut found = Vec::new();
        places(&body, String::new(), &mut found);
        *body.pointer_mut(&found[at.index(found.len())]).unwrap() = value;
        let answer = client.borrow_mut().post(path, &body);
        prop_assert!(matches!(answer.status, 200 | 400 | 404), "{} to {body}", answer.status);
        if answer.status != 200 {
            prop_assert!(answer.json()["error"]["message"].is_string());
        }
    });
}
