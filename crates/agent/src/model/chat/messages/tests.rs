//! Tests of the conversion of items to messages.

use serde_json::json;

use super::*;

fn converted(items: Value) -> Result<Value, ModelError> {
    let input: Vec<Item> = serde_json::from_value(items).expect("items");
    messages(&ModelRequest { input: input.into(), ..ModelRequest::default() }).map(Value::Array)
}

#[test]
fn a_whole_turn_is_one_message_and_its_answers_follow() {
    let request = ModelRequest {
        instructions: Some("be kind".to_owned()),
        input: vec![
            Item::user("add"),
            Item::from_value(json!({ "type": "reasoning", "summary": [] })).expect("an item"),
            Item::assistant("I will."),
            Item::function_call("c1", "add", "{\"a\":1}"),
            Item::custom_call("c2", "patch", "*** Begin"),
            Item::function_output("c1", "3"),
            Item::custom_output("c2", "done"),
            Item::assistant("It is 3."),
            Item::developer("now stop"),
        ]
        .into(),
        ..ModelRequest::default()
    };
    let call = |id: &str, name: &str, arguments: &str| json!({ "id": id, "type": "function", "function": { "name": name, "arguments": arguments } });
    let expected = json!([
        { "role": "system", "content": "be kind" },
        { "role": "user", "content": "add" },
        { "role": "assistant", "content": "I will.",
          "tool_calls": [call("c1", "add", "{\"a\":1}"), call("c2", "patch", r#"{"input":"*** Begin"}"#)] },
        { "role": "tool", "tool_call_id": "c1", "content": "3" },
        { "role": "tool", "tool_call_id": "c2", "content": "done" },
        { "role": "assistant", "content": "It is 3." },
        { "role": "system", "content": "now stop" },
    ]);
    assert_eq!(Value::Array(messages(&request).expect("messages")), expected);
}

#[test]
fn contents_take_the_simplest_form_that_holds_them() {
    let user = |content: Value| json!([{ "role": "user", "content": content }]);
    let text = json!({ "type": "input_text", "text": "a" });
    for (content, expected) in [
        (json!([text, text]), json!("aa")),
        (
            json!([text, { "type": "input_image", "image_url": "data:x", "detail": "low" }]),
            json!([{ "type": "text", "text": "a" }, { "type": "image_url", "image_url": { "url": "data:x", "detail": "low" } }]),
        ),
        (
            json!([{ "type": "input_file", "filename": "f", "file_data": "QQ==" }]),
            json!([{ "type": "file", "file": { "file_data": "QQ==", "filename": "f" } }]),
        ),
    ] {
        assert_eq!(converted(user(content)).expect("messages"), user(expected));
    }
}

#[test]
fn pictures_of_tools_are_shown_after_all_answers() {
    let picture = json!([{ "type": "input_text", "text": "a cat" }, { "type": "input_image", "image_url": "data:x" }]);
    let items = json!([
        { "type": "function_call", "call_id": "c1", "name": "f", "arguments": "" },
        { "type": "function_call", "call_id": "c2", "name": "f", "arguments": "not json" },
        { "type": "function_call_output", "call_id": "c1", "output": picture },
        { "type": "function_call_output", "call_id": "c2", "output": "ok" },
        { "role": "user", "content": "and?" },
    ]);
    let messages = converted(items).expect("messages");
    let roles: Vec<_> = messages.as_array().expect("a list").iter().map(|message| message["role"].clone()).collect();
    assert_eq!(roles, ["assistant", "tool", "tool", "user", "user"]);
    assert_eq!(messages[0]["content"], Value::Null);
    assert_eq!(messages[0]["tool_calls"][0]["function"]["arguments"], "{}");
    assert_eq!(messages[0]["tool_calls"][1]["function"]["arguments"], r#"{"not_an_object":"not json"}"#);
    assert_eq!(messages[1]["content"], "a cat");
    assert_eq!(messages[3]["content"][0]["text"], "The result of call c1:");
    assert_eq!(messages[3]["content"][1]["image_url"]["url"], "data:x");
}

#[test]
fn what_cannot_be_said_is_named() {
    for (item, named) in [
        (json!({ "type": "compaction", "encrypted_content": "x" }), "compacted"),
        (json!({ "type": "web_search_call", "id": "x" }), "web_search_call"),
        (json!({ "type": "shell_call_output", "call_id": "c", "output": [] }), "shell_call_output"),
        (json!({ "type": "item_reference", "id": "x" }), "item_reference"),
        (json!({ "role": "user", "content": [{ "type": "input_image", "file_id": "f" }] }), "file_id"),
        (json!({ "role": "user", "content": [{ "type": "input_file", "file_url": "f" }] }), "URL"),
        (json!({ "role": "user", "content": [{ "type": "input_audio" }] }), "input_audio"),
        (json!({ "type": "function_call", "name": "f" }), "call_id"),
    ] {
        let error = converted(json!([item])).expect_err("unsupported");
        assert!(matches!(&error, ModelError::Unusable(text) if text.contains(named)), "{item}: {error}");
    }
}
