//! Streams: complete events in order, and the whole response at the end.

use sandbar_mock::{Events, Script, Turn, item};
use serde_json::{Value, json};

use super::wire::{request, serve};

fn streamed(input: &str) -> Value {
    let mut body = request(json!(input));
    body["stream"] = json!(true);
    body
}

/// The names of events, without the prefix they share.
fn names(events: &[Value]) -> Vec<&str> {
    events
        .iter()
        .map(|event| event["type"].as_str().unwrap())
        .map(|name| name.strip_prefix("response.").unwrap_or(name))
        .collect()
}

/// Items, and the events between their beginning and their end.
fn items() -> Vec<(Value, Vec<&'static str>)> {
    vec![
        (
            item::text("héllo 🦀!"),
            vec![
                "content_part.added",
                "output_text.delta",
                "output_text.delta",
                "output_text.delta",
                "output_text.done",
                "content_part.done",
            ],
        ),
        (item::text(""), vec!["content_part.added", "output_text.done", "content_part.done"]),
        (item::refusal("no"), vec!["content_part.added", "refusal.delta", "refusal.done", "content_part.done"]),
        (
            item::reasoning("hmm"),
            vec![
                "reasoning_summary_part.added",
                "reasoning_summary_text.delta",
                "reasoning_summary_text.done",
                "reasoning_summary_part.done",
            ],
        ),
        (
            item::function_call("f", json!({"a": 1})),
            vec!["function_call_arguments.delta", "function_call_arguments.delta", "function_call_arguments.done"],
        ),
        (
            item::custom_tool_call("c", "abcd"),
            vec!["custom_tool_call_input.delta", "custom_tool_call_input.delta", "custom_tool_call_input.done"],
        ),
        (item::compaction("opaque"), vec![]),
        (
            item::shell_call(["ls"]),
            vec!["shell_call_command.added", "shell_call_command.delta", "shell_call_command.done"],
        ),
        (
            json!({"type": "web_search_call"}),
            vec!["web_search_call.in_progress", "web_search_call.searching", "web_search_call.completed"],
        ),
        (item::apply_patch_call(json!({"type": "delete_file", "path": "p"})), vec![]),
        (json!({"type": "something_new", "field": [1, 2]}), vec![]),
    ]
}

#[test]
fn every_kind_of_item_is_told_from_its_beginning_to_its_end() {
    for (item, expected) in items() {
        let (_server, mut client) = serve(Script::new().turn(item.clone()).delta_chars(3));
        let answer = client.ask(&streamed("hi"));
        assert_eq!(answer.header("content-type"), Some("text/event-stream; charset=utf-8"));
        let events = answer.events();
        let whole: Vec<&str> = ["created", "in_progress", "output_item.added"]
            .into_iter()
            .chain(expected)
            .chain(["output_item.done", "completed"])
            .collect();
        // Three characters per delta give the last ones one or two.
        let squeezed = |names: Vec<&str>| {
            let mut names: Vec<String> = names.into_iter().map(str::to_owned).collect();
            names.dedup();
            names
        };
        assert_eq!(squeezed(names(&events)), squeezed(whole), "{item}");
        let numbers: Vec<u64> = events.iter().map(|event| event["sequence_number"].as_u64().unwrap()).collect();
        assert_eq!(numbers, (0..events.len() as u64).collect::<Vec<_>>());
        let done = &events[events.len() - 2];
        let response = &events[events.len() - 1]["response"];
        assert_eq!(response["output"], json!([done["item"]]));
        assert_eq!((&response["status"], &response["id"]), (&json!("completed"), &json!("resp_0_0")));
        for key in ["created_at", "model", "object", "output", "parallel_tool_calls", "tool_choice", "tools", "usage"] {
            assert!(!response[key].is_null(), "{key}");
        }
    }
}

#[test]
fn deltas_add_up_to_the_text_and_are_as_long_as_asked() {
    let text = "Grüße, 世界 🦀🦀. ".repeat(20);
    for size in [1, 2, 7, 10_000] {
        let (_server, mut client) = serve(Script::new().turn(item::text(&text)).delta_chars(size));
        let events = client.ask(&streamed("hi")).events();
        let deltas: Vec<&str> = events
            .iter()
            .filter(|event| event["type"] == "response.output_text.delta")
            .map(|event| event["delta"].as_str().unwrap())
            .collect();
        assert_eq!(deltas.concat(), text);
        assert_eq!(deltas.len(), text.chars().count().div_ceil(size));
        assert!(deltas.iter().all(|delta| delta.chars().count() <= size));
    }
}

#[test]
fn a_whole_answer_is_the_end_of_the_stream() {
    let turn = || {
        let annotated = json!({"type": "message", "content": [{"type": "output_text", "text": "see", "annotations":
            [{"type": "url_citation", "url": "u", "title": "t", "start_index": 0, "end_index": 1}]}]});
        Turn::new([item::reasoning("r"), annotated, item::function_call("f", json!({}))]).tokens(3, 4)
    };
    let (_server, mut client) = serve(Script::new().turn(turn()));
    let mut body = json!({"model": "gpt", "input": "x", "instructions": "i", "metadata": {"a": "b"}, "temperature": 0.5,
        "tools": [{"type": "web_search"}], "parallel_tool_calls": false, "store": false});
    let whole = client.ask(&body).json();
    body["stream"] = json!(true);
    let events = client.ask(&body).events();
    assert_eq!(events.last().unwrap()["response"], whole);
    assert!(names(&events).contains(&"output_text.annotation.added"));
    for key in ["model", "instructions", "metadata", "temperature", "tools", "parallel_tool_calls", "store"] {
        assert_eq!(whole[key], body[key], "{key}");
    }
    assert_eq!(whole["usage"]["total_tokens"], 7);
    assert_eq!(whole["output"][2]["call_id"], "call_0_2");
}

#[test]
fn minimal_streams_have_three_kinds_of_events() {
    let script = Script::new().turn([item::text("a"), item::function_call("f", json!({}))]).events(Events::Minimal);
    let (_server, mut client) = serve(script);
    let events = client.ask(&streamed("hi")).events();
    assert_eq!(names(&events), ["created", "output_item.done", "output_item.done", "completed"]);
}

#[test]
fn a_second_client_is_told_its_own_model_and_tools() {
    let (_server, mut client) = serve(Script::new().turn(item::text("a")));
    for model in ["one", "two", "one"] {
        let mut body = streamed("hi");
        body["model"] = json!(model);
        assert_eq!(client.ask(&body).events().pop().unwrap()["response"]["model"], model);
    }
}

#[test]
fn usage_may_be_missing() {
    let (_server, mut client) = serve(Script::new().turn(Turn::new([item::text("a")]).usage(Value::Null)));
    assert_eq!(client.ask(&request(json!("x"))).json()["usage"], Value::Null);
}
