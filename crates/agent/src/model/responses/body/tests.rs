//! Tests of the request body of the Responses API, field by field.

use std::{sync::Arc, time::Duration};

use super::*;
use crate::{Grammar, Item, OutputFormat, Prompt, Retry};

fn written(choice: Choice, request: &ModelRequest) -> Value {
    let body = Body::new("gpt-5.5", choice, request).expect("usable").write().expect("json");
    let text = String::from_utf8(body).expect("text");
    let value: Value = serde_json::from_str(&text).expect("json");
    assert_eq!(serde_json::to_string(&value).expect("json"), text, "no field is written twice");
    value
}

/// Fields of the body, without those that every body has.
fn beside(request: ModelRequest) -> Value {
    let mut value = written(Choice::Explicit, &ModelRequest { input: vec![Item::user("hi")].into(), ..request });
    let fields = value.as_object_mut().expect("an object");
    assert_eq!(fields.shift_remove("model"), Some(json!("gpt-5.5")));
    assert_eq!(fields.shift_remove("input"), Some(json!([{ "role": "user", "content": "hi" }])));
    assert_eq!(fields.shift_remove("stream"), Some(json!(true)));
    value
}

fn with(settings: ModelSettings) -> ModelRequest {
    ModelRequest { settings, ..ModelRequest::default() }
}

fn tool() -> ToolSpec {
    ToolSpec::function("add", "Adds.", json!({ "type": "object" }))
}

fn tools(tools: impl Into<Arc<[ToolSpec]>>, settings: ModelSettings) -> ModelRequest {
    ModelRequest { tools: tools.into(), settings, ..ModelRequest::default() }
}

fn fields(value: Value) -> Map<String, Value> {
    serde_json::from_value(value).expect("an object")
}

#[test]
fn a_plain_question_has_no_field_it_does_not_need() {
    assert_eq!(beside(ModelRequest::default()), json!({}));
    let settings = ModelSettings {
        retry: Some(Retry::default()),
        timeout: Some(Duration::from_secs(3)),
        reasoning: Some(Reasoning::default()),
        frequency_penalty: Some(0.5),
        presence_penalty: Some(0.5),
        parallel_tool_calls: Some(true),
        tool_choice: Some(ToolChoice::Required),
        extra_headers: [("x-key".to_owned(), "hunter2".to_owned())].into(),
        ..ModelSettings::default()
    };
    assert_eq!(beside(with(settings)), json!({}), "what is for the transport, for another API, or for tools");
}

#[test]
fn every_setting_has_its_field() {
    let settings = ModelSettings {
        temperature: Some(0.5),
        top_p: Some(0.25),
        truncation: Some("auto".to_owned()),
        max_tokens: Some(7),
        reasoning: Some(Reasoning { effort: Some("low".to_owned()), summary: Some("auto".to_owned()) }),
        verbosity: Some("low".to_owned()),
        metadata: Some([("k".to_owned(), "v".to_owned())].into()),
        store: Some(false),
        include: vec!["reasoning.encrypted_content".to_owned()],
        top_logprobs: Some(2),
        prompt_cache_retention: Some("24h".to_owned()),
        context_management: Some(json!([{ "type": "compaction", "compact_threshold": 9 }])),
        ..ModelSettings::default()
    };
    let format = OutputFormat { name: "answer".to_owned(), schema: json!({ "type": "object" }), strict: true };
    let request = ModelRequest {
        instructions: Some("be kind".to_owned()),
        output: Some(Arc::new(format)),
        previous_response_id: Some("resp_1".to_owned()),
        ..with(settings)
    };
    let expected = json!({
        "instructions": "be kind",
        "previous_response_id": "resp_1",
        "reasoning": { "effort": "low", "summary": "auto" },
        "text": {
            "format": { "type": "json_schema", "name": "answer", "schema": { "type": "object" }, "strict": true },
            "verbosity": "low",
        },
        "temperature": 0.5, "top_p": 0.25, "max_output_tokens": 7, "truncation": "auto",
        "metadata": { "k": "v" }, "store": false,
        "include": ["reasoning.encrypted_content", "message.output_text.logprobs"],
        "top_logprobs": 2, "prompt_cache_retention": "24h",
        "context_management": [{ "type": "compaction", "compact_threshold": 9 }],
    });
    assert_eq!(beside(request), expected);
}

#[test]
fn tools_are_chosen_by_what_they_are() {
    let custom = ToolSpec {
        name: "patch".to_owned(),
        description: "Patches.".to_owned(),
        kind: ToolKind::Custom {
            grammar: Some(Grammar { syntax: "lark".to_owned(), definition: "start: x".to_owned() }),
        },
    };
    let hosted = ToolSpec {
        name: "search".to_owned(),
        description: String::new(),
        kind: ToolKind::Hosted(fields(json!({ "type": "web_search" }))),
    };
    let named = |name: &str| ToolChoice::Named(name.to_owned());
    let all: Arc<[ToolSpec]> = [tool(), custom, hosted].into();
    for (choice, expected) in [
        (ToolChoice::Auto, json!("auto")),
        (ToolChoice::Required, json!("required")),
        (ToolChoice::None, json!("none")),
        (named("add"), json!({ "type": "function", "name": "add" })),
        (named("patch"), json!({ "type": "custom", "name": "patch" })),
        (named("search"), json!({ "type": "web_search" })),
        (named("file_search"), json!({ "type": "file_search" })),
        (named("from_the_prompt"), json!({ "type": "function", "name": "from_the_prompt" })),
        (
            ToolChoice::Mcp { server_label: "docs".to_owned(), name: "find".to_owned() },
            json!({ "type": "mcp", "server_label": "docs", "name": "find" }),
        ),
    ] {
        let settings = ModelSettings {
            tool_choice: Some(choice.clone()),
            parallel_tool_calls: Some(false),
            ..ModelSettings::default()
        };
        let body = beside(tools(Arc::clone(&all), settings));
        assert_eq!(body["tool_choice"], expected, "{choice:?}");
        assert_eq!(body["parallel_tool_calls"], json!(false));
        assert_eq!(body["tools"][0]["strict"], json!(true));
        assert_eq!(body["tools"][1]["format"]["syntax"], json!("lark"));
        assert_eq!(body["tools"][2], json!({ "type": "web_search" }));
    }
}

#[test]
fn a_prompt_names_the_model_unless_the_caller_chose_one() {
    let prompt = Prompt { id: "pmpt_1".to_owned(), version: Some("2".to_owned()), variables: Map::new() };
    let settings = ModelSettings { parallel_tool_calls: Some(true), ..ModelSettings::default() };
    let request = ModelRequest { prompt: Some(prompt), settings, ..ModelRequest::default() };
    for (choice, model) in [(Choice::Explicit, Some(&json!("gpt-5.5"))), (Choice::Usual, None)] {
        let body = written(choice, &request);
        assert_eq!(body.get("model"), model);
        assert_eq!(body["prompt"], json!({ "id": "pmpt_1", "version": "2" }));
        assert_eq!(body["parallel_tool_calls"], json!(true));
    }
    assert_eq!(written(Choice::Usual, &ModelRequest::default())["model"], "gpt-5.5");
}

#[test]
fn the_callers_own_fields_win() {
    let settings = ModelSettings {
        temperature: Some(0.5),
        top_p: Some(0.5),
        extra_body: fields(json!({
            "temperature": 1, "top_p": null, "service_tier": "flex", "model": "other", "stream": false,
        })),
        ..ModelSettings::default()
    };
    let body = written(Choice::Explicit, &with(settings));
    let expected = json!({ "input": [], "temperature": 1, "service_tier": "flex", "model": "other", "stream": true });
    assert_eq!(body, expected);
}

#[test]
fn context_management_is_merged_and_never_doubled() {
    let compaction = |threshold| json!([{ "type": "compaction", "compact_threshold": threshold }]);
    for (ours, theirs, expected) in [
        (Some(compaction(1)), None, Some(compaction(1))),
        (None, Some(compaction(2)), Some(compaction(2))),
        (Some(compaction(1)), Some(compaction(2)), Some(compaction(2))),
        (
            Some(json!([{ "type": "compaction" }, { "type": "a" }])),
            Some(json!([{ "type": "b" }, { "type": "a", "x": 1 }])),
            Some(json!([{ "type": "b" }, { "type": "a", "x": 1 }, { "type": "compaction" }])),
        ),
        (Some(compaction(1)), Some(Value::Null), None),
        (None, None, None),
    ] {
        let extra_body = theirs.map(|theirs| fields(json!({ "context_management": theirs }))).unwrap_or_default();
        let settings = ModelSettings { context_management: ours, extra_body, ..ModelSettings::default() };
        assert_eq!(beside(with(settings)).get("context_management"), expected.as_ref());
    }
}

#[test]
fn a_request_goes_on_in_one_place_only() {
    let request = ModelRequest {
        previous_response_id: Some("resp_1".to_owned()),
        conversation_id: Some("conv_1".to_owned()),
        ..ModelRequest::default()
    };
    assert!(matches!(Body::new("m", Choice::Explicit, &request), Err(ModelError::Unusable(_))));
    let request = ModelRequest { conversation_id: Some("conv_1".to_owned()), ..ModelRequest::default() };
    assert_eq!(beside(request), json!({ "conversation": "conv_1" }));
}
