//! Tests of the request body of the Chat Completions API.

use std::sync::Arc;

use super::*;
use crate::{Item, ModelSettings, OutputFormat, Prompt, Reasoning};

fn written(request: &ModelRequest) -> Value {
    serde_json::from_slice(&write("m", request).expect("usable")).expect("json")
}

fn custom() -> ToolSpec {
    let grammar = Some(Grammar { syntax: "lark".to_owned(), definition: "start: x".to_owned() });
    ToolSpec { name: "patch".to_owned(), description: "Patches.".to_owned(), kind: ToolKind::Custom { grammar } }
}

#[test]
fn a_plain_question_has_no_field_it_does_not_need() {
    let settings = ModelSettings {
        truncation: Some("auto".to_owned()),
        include: vec!["reasoning.encrypted_content".to_owned()],
        tool_choice: Some(ToolChoice::Required),
        ..ModelSettings::default()
    };
    let expected = json!({
        "model": "m", "messages": [{ "role": "user", "content": "hi" }],
        "stream_options": { "include_usage": true }, "stream": true,
    });
    assert_eq!(
        written(&ModelRequest { input: vec![Item::user("hi")].into(), settings, ..ModelRequest::default() }),
        expected
    );
}

#[test]
fn every_setting_has_its_field_and_the_callers_win() {
    let settings = ModelSettings {
        temperature: Some(0.5),
        frequency_penalty: Some(0.25),
        presence_penalty: Some(0.75),
        max_tokens: Some(7),
        reasoning: Some(Reasoning { effort: Some("low".to_owned()), summary: None }),
        top_logprobs: Some(2),
        tool_choice: Some(ToolChoice::Named("patch".to_owned())),
        parallel_tool_calls: Some(false),
        extra_body: [("top_k".to_owned(), json!(5)), ("stream_options".to_owned(), Value::Null)].into_iter().collect(),
        ..ModelSettings::default()
    };
    let format = OutputFormat { name: "answer".to_owned(), schema: json!({ "type": "object" }), strict: false };
    let add = ToolSpec::function("add", "Adds.", json!({ "type": "object" }));
    let request = ModelRequest {
        settings,
        tools: Arc::new([add, custom()]),
        output: Some(Arc::new(format)),
        ..ModelRequest::default()
    };
    let mut body = written(&request);
    let tools = body.as_object_mut().expect("an object").shift_remove("tools").expect("tools");
    let expected = json!({
        "model": "m", "messages": [], "temperature": 0.5, "frequency_penalty": 0.25, "presence_penalty": 0.75,
        "max_tokens": 7, "reasoning_effort": "low", "logprobs": true, "top_logprobs": 2, "parallel_tool_calls": false,
        "tool_choice": { "type": "function", "function": { "name": "patch" } },
        "response_format": {
            "type": "json_schema",
            "json_schema": { "name": "answer", "schema": { "type": "object" }, "strict": false },
        },
        "top_k": 5, "stream": true,
    });
    assert_eq!(body, expected);
    let add = json!({ "name": "add", "description": "Adds.", "parameters": { "type": "object" }, "strict": true });
    assert_eq!(tools[0], json!({ "type": "function", "function": add }));
    assert_eq!(tools[1]["function"]["parameters"]["required"], json!(["input"]));
    let input = tools[1]["function"]["parameters"]["properties"]["input"]["description"].as_str();
    assert!(input.is_some_and(|text| text.contains("lark") && text.contains("start: x")));
}

#[test]
fn what_only_the_other_api_can_do_is_refused_by_name() {
    let hosted: Map<String, Value> = [("type".to_owned(), json!("web_search"))].into_iter().collect();
    let hosted = ToolSpec { name: "web".to_owned(), description: String::new(), kind: ToolKind::Hosted(hosted) };
    let mcp = ToolChoice::Mcp { server_label: "s".to_owned(), name: "n".to_owned() };
    let settings = ModelSettings { tool_choice: Some(mcp), ..ModelSettings::default() };
    for (request, named) in [
        (ModelRequest { prompt: Some(Prompt::default()), ..ModelRequest::default() }, "prompt"),
        (
            ModelRequest { previous_response_id: Some("r".to_owned()), ..ModelRequest::default() },
            "previous_response_id",
        ),
        (ModelRequest { conversation_id: Some("c".to_owned()), ..ModelRequest::default() }, "conversation"),
        (ModelRequest { tools: Arc::new([hosted]), ..ModelRequest::default() }, "web_search"),
        (ModelRequest { tools: Arc::new([custom()]), settings, ..ModelRequest::default() }, "MCP"),
    ] {
        let error = write("m", &request).expect_err(named);
        assert!(
            matches!(&error, ModelError::Unusable(text) if text.contains(named) && text.contains("Chat")),
            "{error}"
        );
    }
}
