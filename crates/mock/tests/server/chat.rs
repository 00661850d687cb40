//! Scripts over the Chat Completions API.

use sandbar_mock::{Fault, Script, Turn, item};
use serde_json::{Value, json};

use super::wire::{Client, serve, user};

fn script() -> Script {
    Script::new()
        .turn([
            item::reasoning("hm"),
            item::text("Let me see."),
            item::function_call("add", json!({"a": 1})),
            item::custom_tool_call("note", "x"),
        ])
        .turn(Turn::new([item::text("Three."), item::text("Done.")]).tokens(5, 2))
        .turn(item::refusal("No."))
        .delta_chars(4)
}

fn ask(client: &mut Client, messages: &[Value], extra: Value) -> super::wire::Answer {
    let mut body = json!({"model": "m", "messages": messages});
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    client.post("/chat/completions", &body)
}

#[test]
fn a_chat_goes_through_the_script() {
    let (server, mut client) = serve(script());
    let mut messages = vec![json!({"role": "system", "content": "s"}), user("hi")];
    let mut told = Vec::new();
    for _ in 0..3 {
        let choice = ask(&mut client, &messages, json!({})).json()["choices"][0].clone();
        let message = choice["message"].clone();
        told.push((choice["finish_reason"].clone(), message["content"].clone()));
        messages.push(message.clone());
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            messages.push(json!({"role": "tool", "tool_call_id": call["id"], "content": "ok"}));
        }
    }
    assert_eq!(
        told,
        [
            (json!("tool_calls"), json!("Let me see.")),
            (json!("stop"), json!("Three.\nDone.")),
            (json!("stop"), Value::Null)
        ]
    );
    let first = &messages[2];
    assert_eq!(first["reasoning_content"], "hm");
    assert_eq!(
        first["tool_calls"],
        json!([
            {"id": "call_0_2", "type": "function", "function": {"name": "add", "arguments": "{\"a\":1}"}},
            {"id": "call_0_3", "type": "custom", "custom": {"name": "note", "input": "x"}},
        ])
    );
    assert_eq!(messages.last().unwrap()["refusal"], "No.");
    messages.push(user("more"));
    assert_eq!(ask(&mut client, &messages, json!({})).json()["error"]["code"], "script_exhausted");
    assert_eq!(server.problems().len(), 1);
}

#[test]
fn chunks_add_up_to_the_message() {
    let (_server, mut client) = serve(script());
    let whole = ask(&mut client, &[user("hi")], json!({})).json();
    let answer = ask(&mut client, &[user("hi")], json!({"stream": true}));
    assert!(answer.text().ends_with("data: [DONE]\n\n"));
    assert!(!answer.text().contains("event:"));
    let (mut text, mut arguments) = (String::new(), String::new());
    let events = answer.events();
    for chunk in &events {
        assert!(chunk.get("usage").is_none());
        let delta = &chunk["choices"][0]["delta"];
        text.push_str(delta["content"].as_str().unwrap_or_default());
        let call = &delta["tool_calls"][0];
        if call["index"] == 0 {
            arguments.push_str(call["function"]["arguments"].as_str().unwrap());
        }
    }
    let message = &whole["choices"][0]["message"];
    assert_eq!(message["content"], text.as_str());
    assert_eq!(message["tool_calls"][0]["function"]["arguments"], arguments.as_str());
    assert_eq!(events.last().unwrap()["choices"][0]["finish_reason"], "tool_calls");
}

#[test]
fn usage_comes_in_a_chunk_of_its_own_when_asked_for() {
    let (_server, mut client) = serve(Script::new().turn(Turn::new([item::text("a")]).tokens(5, 2)));
    let options = json!({"stream": true, "stream_options": {"include_usage": true}});
    let events = ask(&mut client, &[user("hi")], options).events();
    let (last, others) = events.split_last().unwrap();
    assert_eq!((&last["choices"], &last["usage"]["total_tokens"]), (&json!([]), &json!(7)));
    assert!(others.iter().all(|chunk| chunk["usage"].is_null()));
}

#[test]
fn a_chat_that_goes_wrong_says_so() {
    let fault = |reason: &str| Fault::Incomplete { reason: reason.to_owned() };
    let failed = || Fault::Failed { code: "server_error".to_owned(), message: "no".to_owned() };
    let turn = Turn::new([item::text("a")])
        .fault(fault("max_output_tokens"))
        .fault(fault("content_filter"))
        .fault(failed())
        .fault(failed());
    let (_server, mut client) = serve(Script::new().turn(turn));
    for reason in ["length", "content_filter"] {
        assert_eq!(ask(&mut client, &[user("hi")], json!({})).json()["choices"][0]["finish_reason"], reason);
    }
    let whole = ask(&mut client, &[user("hi")], json!({}));
    assert_eq!((whole.status, &whole.json()["error"]["code"]), (500, &json!("server_error")));
    let streamed = ask(&mut client, &[user("hi")], json!({"stream": true}));
    assert_eq!((streamed.status, &streamed.events().pop().unwrap()["error"]["message"]), (200, &json!("no")));
    assert_eq!(ask(&mut client, &[user("hi")], json!({})).json()["choices"][0]["finish_reason"], "stop");
}
