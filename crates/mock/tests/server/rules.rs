//! Requests that the server refuses, and the reported positions of their faults.

use sandbar_mock::{Script, item};
use serde_json::{Value, json};

use super::wire::{call, output, request, said, serve, user};

fn script() -> Script {
    let one = item::function_call("f", json!({}));
    Script::new().turn([one.clone(), item::custom_tool_call("c", "x")]).turn(one).turn(item::text("end"))
}

/// Sends each body to a path, and expects a refusal with that place and words; and nothing else to be a problem.
fn refused(path: &str, cases: Vec<(Value, &str, &str)>) {
    let (server, mut client) = serve(script());
    let count = cases.len();
    for (body, param, words) in cases {
        let answer = client.post(path, &body);
        let error = &answer.json()["error"];
        assert_eq!(answer.status, 400, "{body} got {}", answer.text());
        assert_eq!(error["type"], "invalid_request_error");
        assert_eq!(error["param"].as_str().unwrap_or("-"), param, "{body} got {error}");
        assert!(error["message"].as_str().unwrap().contains(words), "{body} got {error}");
        let problem = server.problems().pop().unwrap();
        assert_eq!((problem.param.as_deref().unwrap_or("-"), problem.status), (param, 400));
        assert_eq!(Some(problem.message.as_str()), error["message"].as_str());
    }
    assert_eq!(server.problems().len(), count);
}

fn with(key: &str, value: Value) -> Value {
    let mut body = request(json!("hi"));
    body[key] = value;
    body
}

fn item_cases(cases: Vec<(Value, &'static str, &'static str)>) -> Vec<(Value, &'static str, &'static str)> {
    cases.into_iter().map(|(item, param, words)| (request(json!([user("hi"), item])), param, words)).collect()
}

#[test]
fn the_fields_of_a_request() {
    refused(
        "/responses",
        vec![
            (json!([]), "-", "expected an object"),
            (json!({"input": "hi"}), "model", "Missing required parameter: 'model'"),
            (json!({"model": "m"}), "input", "Missing required parameter"),
            (json!({"model": 1, "input": ""}), "model", "Invalid value"),
            (json!({"model": "m", "input": 1}), "input", "expected a string or an array"),
            (with("modle", json!("x")), "modle", "Unknown parameter: 'modle'"),
            (with("stream", json!("yes")), "stream", "Invalid value"),
            (with("temperature", json!(3)), "temperature", "between 0 and 2"),
            (with("top_p", json!(-0.1)), "top_p", "between 0 and 1"),
            (with("max_output_tokens", json!(1)), "max_output_tokens", ">= 16"),
            (with("max_output_tokens", json!(-1)), "max_output_tokens", "Invalid value"),
            (with("truncation", json!("some")), "truncation", "Invalid value"),
            (with("reasoning", json!({"effort": "huge"})), "reasoning.effort", "huge"),
            (with("metadata", json!({"a": 1})), "metadata.a", "expected a string"),
            (with("include", json!([1])), "include[0]", "expected a string"),
            (with("prompt", json!({})), "prompt.id", "Missing"),
            (with("conversation", json!({})), "conversation.id", "Missing"),
            (with("previous_response_id", json!("resp_7_7")), "previous_response_id", "not found"),
            (
                json!({"model": "m", "input": "", "previous_response_id": "resp_0_2", "conversation": "conv_1"}),
                "previous_response_id",
                "Mutually exclusive",
            ),
        ],
    );
}

#[test]
fn a_body_that_is_no_json() {
    let (server, mut client) = serve(script());
    let answer = client.send("POST", "/responses", "", b"{\"model\": ");
    assert_eq!((answer.status, &answer.json()["error"]["code"]), (400, &json!("invalid_json")));
    assert_eq!(server.problems().len(), 1);
}

#[test]
fn what_items_must_have() {
    refused(
        "/responses",
        item_cases(vec![
            (json!("text"), "input[1]", "expected an object"),
            (json!({}), "input[1].type", "Missing"),
            (json!({"type": "odd"}), "input[1].type", "'odd'"),
            (json!({"role": "robot", "content": ""}), "input[1].role", "Supported values are"),
            (json!({"role": "user"}), "input[1].content", "Missing"),
            (json!({"role": "user", "content": 1}), "input[1].content", "a string or an array"),
            (json!({"role": "user", "content": [{}]}), "input[1].content[0].type", "Missing"),
            (
                json!({"role": "user", "content": [{"type": "output_text", "text": ""}]}),
                "input[1].content[0].type",
                "input_text",
            ),
            (
                json!({"role": "assistant", "content": [{"type": "input_text", "text": ""}]}),
                "input[1].content[0].type",
                "output_text",
            ),
            (json!({"role": "user", "content": [{"type": "input_text"}]}), "input[1].content[0].text", "Missing"),
            (json!({"role": "user", "content": [{"type": "input_image"}]}), "input[1].content[0].image_url", "Missing"),
            (json!({"role": "user", "content": [{"type": "input_file"}]}), "input[1].content[0].file_id", "Missing"),
            (json!({"type": "function_call", "name": "f", "arguments": ""}), "input[1].call_id", "Missing"),
            (json!({"type": "function_call", "call_id": "x", "arguments": ""}), "input[1].name", "Missing"),
            (
                json!({"type": "function_call", "call_id": "x", "name": "f", "arguments": {}}),
                "input[1].arguments",
                "expected a string",
            ),
            (json!({"type": "function_call_output", "call_id": "x"}), "input[1].output", "Missing"),
            (
                json!({"type": "function_call_output", "call_id": "x", "output": [{"type": "text"}]}),
                "input[1].output[0].type",
                "'text'",
            ),
        ]),
    );
}

#[test]
fn what_items_of_other_kinds_must_have() {
    refused(
        "/responses",
        item_cases(vec![
            (json!({"type": "custom_tool_call", "call_id": "x", "name": "f"}), "input[1].input", "Missing"),
            (json!({"type": "reasoning", "summary": []}), "input[1].id", "Missing"),
            (json!({"type": "reasoning", "id": "rs_1"}), "input[1].summary", "Missing"),
            (json!({"type": "reasoning", "id": "rs_1", "summary": [{"type": "x"}]}), "input[1].summary[0].type", "'x'"),
            (json!({"type": "compaction"}), "input[1].encrypted_content", "Missing"),
            (json!({"type": "shell_call", "call_id": "x", "action": {}}), "input[1].action.commands", "Missing"),
            (
                json!({"type": "shell_call_output", "call_id": "x", "output": [{"stdout": ""}]}),
                "input[1].output[0].stderr",
                "Missing",
            ),
            (
                json!({"type": "shell_call_output", "call_id": "x", "output":
                    [{"stdout": "", "stderr": "", "outcome": {"type": "exit"}}]}),
                "input[1].output[0].outcome.exit_code",
                "Missing",
            ),
            (
                json!({"type": "apply_patch_call", "call_id": "x", "status": "completed", "operation": {"type": "move"}}),
                "input[1].operation.type",
                "Supported values are",
            ),
            (
                json!({"type": "apply_patch_call", "call_id": "x", "status": "completed", "operation":
                    {"type": "create_file", "path": "a"}}),
                "input[1].operation.diff",
                "Missing",
            ),
            (
                json!({"type": "apply_patch_call_output", "call_id": "x", "status": "odd"}),
                "input[1].status",
                "Supported values are",
            ),
            (json!({"type": "mcp_approval_response", "approve": true}), "input[1].approval_request_id", "Missing"),
            (json!({"role": "user", "content": "", "created_by": "me"}), "input[1].created_by", "Unknown parameter"),
            (
                json!({"role": "user", "content": "", "provider_data": {}}),
                "input[1].provider_data",
                "Unknown parameter",
            ),
            (json!({"role": "assistant", "content": "", "id": "__fake_id__"}), "input[1].id", "begins with 'msg'"),
            (json!({"type": "reasoning", "summary": [], "id": "x"}), "input[1].id", "begins with 'rs'"),
        ]),
    );
}

#[test]
fn calls_and_outputs_come_in_pairs() {
    let custom = |id: &str| json!({"type": "custom_tool_call_output", "call_id": id, "output": "ok"});
    let first = || {
        vec![
            user("hi"),
            call("call_0_0"),
            json!({"type": "custom_tool_call", "call_id": "call_0_1", "name": "c", "input": "x"}),
        ]
    };
    let then = |more: Vec<Value>| request(json!(first().into_iter().chain(more).collect::<Vec<_>>()));
    let shell = json!({"type": "shell_call", "call_id": "s", "action": {"commands": ["ls"]}, "status": "completed"});
    let after = |input: Value, previous: &str| json!({"model": "m", "input": input, "previous_response_id": previous});
    refused(
        "/responses",
        vec![
            (
                request(json!([user("hi"), output("x")])),
                "input[1]",
                "No tool call found for function call output with call_id x.",
            ),
            (request(json!([output("x"), call("x")])), "input[0]", "No tool call found"),
            (request(json!([call("x"), custom("x")])), "input[1]", "No tool call found for custom tool call output"),
            (request(json!([call("x"), output("x"), output("x")])), "input[2]", "Duplicate output for function call"),
            (request(json!([call("x"), user("hi")])), "input[0]", "No tool output found for function call x."),
            (request(json!([shell])), "input[0]", "No tool output found for shell call s."),
            (then(vec![output("call_0_0")]), "input[2]", "No tool output found for custom tool call call_0_1."),
            (
                then(vec![output("call_0_0"), call("call_1_0"), output("call_1_0"), custom("call_0_1")]),
                "input[4]",
                "No tool output found for custom tool call call_0_1 before the next turn.",
            ),
            (after(json!("go on"), "resp_0_0"), "input", "No tool output found for custom tool call call_0_1."),
            (after(json!([output("call_0_0")]), "resp_0_0"), "input", "custom tool call call_0_1"),
            (
                after(json!([output("call_0_0"), custom("call_0_1"), output("call_0_0")]), "resp_0_0"),
                "input[2]",
                "Duplicate",
            ),
            (after(json!([output("call_1_0")]), "resp_0_0"), "input[0]", "No tool call found"),
            (after(json!([output("call_1_0"), output("call_0_0")]), "resp_0_1"), "input[1]", "No tool call found"),
        ],
    );
    let (server, mut client) = serve(script());
    let reference = json!({"type": "item_reference", "id": "nothing"});
    assert_eq!(client.ask(&request(json!([reference]))).status, 404);
    assert_eq!(server.problems().len(), 1);
}

#[test]
fn tools_and_the_choice_of_one() {
    let function =
        |name: &str| json!({"type": "function", "name": name, "parameters": {"type": "object", "properties": {}}});
    let tools = |tools: Value| with("tools", tools);
    let choice = |choice: Value| {
        let mut body = with("tool_choice", choice);
        body["tools"] = json!([function("f")]);
        body
    };
    refused(
        "/responses",
        vec![
            (tools(json!({})), "tools", "expected an array"),
            (tools(json!([{}])), "tools[0].type", "Missing"),
            (tools(json!([{"type": "odd"}])), "tools[0].type", "'odd'"),
            (tools(json!([{"type": "function"}])), "tools[0].name", "Missing"),
            (tools(json!([function("a b")])), "tools[0].name", "pattern"),
            (tools(json!([function("f"), function("f")])), "tools[1].name", "Duplicate tool name: 'f'"),
            (tools(json!([function("f"), {"type": "custom", "name": "f"}])), "tools[1].name", "Duplicate"),
            (
                tools(json!([{"type": "namespace", "name": "n", "tools": [function("f"), function("f")]}])),
                "tools[0].tools[1].name",
                "Duplicate",
            ),
            (
                tools(json!([{"type": "function", "name": "f", "parameters": []}])),
                "tools[0].parameters",
                "not an object",
            ),
            (
                tools(json!([{"type": "function", "name": "f", "parameters": {"type": "string"}}])),
                "tools[0].parameters",
                "type",
            ),
            (tools(json!([{"type": "function", "name": "f", "strict": 1}])), "tools[0].strict", "boolean"),
            (tools(json!([{"type": "function", "name": "f", "description": 1}])), "tools[0].description", "string"),
            (
                tools(json!([{"type": "custom", "name": "f", "format": {"type": "x"}}])),
                "tools[0].format.type",
                "grammar",
            ),
            (
                tools(
                    json!([{"type": "custom", "name": "f", "format": {"type": "grammar", "syntax": "ebnf", "definition": ""}}]),
                ),
                "tools[0].format.syntax",
                "ebnf",
            ),
            (tools(json!([{"type": "file_search"}])), "tools[0].vector_store_ids", "Missing"),
            (with("tool_choice", json!("required")), "tool_choice", "must be specified with 'tools'"),
            (choice(json!("always")), "tool_choice", "'always'"),
            (choice(json!({"type": "function", "name": "g"})), "tool_choice", "Tool choice 'g' not found"),
            (choice(json!({"type": "function"})), "tool_choice.name", "Missing"),
            (
                choice(json!({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "g"}]})),
                "tool_choice",
                "'g' not found",
            ),
            (choice(json!({"type": "web_search"})), "tool_choice", "'web_search' not found"),
        ],
    );
}

#[test]
fn schemas_that_claim_to_be_strict() {
    let tool =
        |schema: Value| with("tools", json!([{"type": "function", "name": "f", "strict": true, "parameters": schema}]));
    let format = |schema: Value| {
        with("text", json!({"format": {"type": "json_schema", "name": "a", "strict": true, "schema": schema}}))
    };
    let closed = |properties: Value, required: Value| json!({"type": "object", "additionalProperties": false, "properties": properties, "required": required});
    let open = json!({"type": "object", "properties": {}});
    let place = "tools[0].parameters";
    let refusals = vec![
        (json!({"anyOf": []}), "'anyOf' is not permitted at the root"),
        (json!({"type": "array"}), "type: \"object\""),
        (open.clone(), "In context=(), 'additionalProperties' is required"),
        (closed(json!({"a": {"type": "string"}}), json!([])), "Missing 'a'"),
        (closed(json!({}), json!(["b"])), "Extra required key 'b'"),
        (closed(json!({"a": open}), json!(["a"])), "In context=('properties', 'a'), 'additionalProperties'"),
        (closed(json!({"a": {"type": "array", "items": open}}), json!(["a"])), "('properties', 'a', 'items')"),
        (closed(json!({"a": {"anyOf": [{"type": "null"}, open]}}), json!(["a"])), "('properties', 'a', 'anyOf', '1')"),
        (closed(json!({"a": {"oneOf": []}}), json!(["a"])), "'oneOf' is not permitted"),
        (closed(json!({"a": {"$ref": "#/$defs/b"}}), json!(["a"])), "reference"),
        (closed(json!({"a": true}), json!(["a"])), "a schema must be an object"),
    ];
    let tools = refusals.iter().map(|(schema, words)| (tool(schema.clone()), place, *words));
    let formats = refusals.iter().map(|(schema, words)| (format(schema.clone()), "text.format.schema", *words));
    refused("/responses", tools.chain(formats).collect());
    refused(
        "/responses",
        vec![
            (with("text", json!({"format": {"type": "xml"}})), "text.format.type", "Supported values"),
            (with("text", json!({"format": {"type": "json_schema"}})), "text.format.name", "Missing"),
            (with("text", json!({"format": {"type": "json_schema", "name": "a"}})), "text.format.schema", "Missing"),
        ],
    );
}

#[test]
fn chats_are_judged_alike() {
    let body = |messages: Value| json!({"model": "m", "messages": messages});
    let tool_call = |id: &str| json!({"id": id, "type": "function", "function": {"name": "f", "arguments": "{}"}});
    let calling = |id: &str| json!({"role": "assistant", "tool_calls": [tool_call(id)]});
    let result = |id: &str| json!({"role": "tool", "tool_call_id": id, "content": "ok"});
    let extra = |key: &str, value: Value| {
        let mut body = body(json!([user("hi")]));
        body[key] = value;
        body
    };
    refused(
        "/chat/completions",
        vec![
            (json!({"messages": []}), "model", "Missing"),
            (body(json!([])), "messages", "Missing"),
            (body(json!([{}])), "messages[0].role", "Missing"),
            (body(json!([{"role": "robot", "content": ""}])), "messages[0].role", "'robot'"),
            (body(json!([{"role": "user"}])), "messages[0].content", "Missing"),
            (body(json!([{"role": "assistant"}])), "messages[0].content", "Missing"),
            (body(json!([{"role": "user", "content": [{"type": "text"}]}])), "messages[0].content[0].text", "Missing"),
            (body(json!([{"role": "tool", "content": "x"}])), "messages[0].tool_call_id", "Missing"),
            (
                body(json!([{"role": "assistant", "tool_calls": [{"id": "x", "function": {}}]}])),
                "messages[0].tool_calls[0].function.name",
                "Missing",
            ),
            (body(json!([result("x")])), "messages[0]", "No tool call found"),
            (body(json!([calling("x"), user("hi")])), "messages[0].tool_calls[0]", "No tool output found"),
            (body(json!([calling("x"), result("x"), result("x")])), "messages[2]", "Duplicate"),
            (extra("tools", json!([{"type": "function"}])), "tools[0].function", "Missing"),
            (extra("tools", json!([{"type": "web"}])), "tools[0].type", "Supported"),
            (
                extra(
                    "tools",
                    json!([{"type": "function", "function": {"name": "f", "strict": true, "parameters": {"type": "object"}}}]),
                ),
                "tools[0].function.parameters",
                "additionalProperties",
            ),
            (
                extra("tool_choice", json!({"type": "function", "function": {"name": "g"}})),
                "tool_choice",
                "'g' not found",
            ),
            (extra("response_format", json!({"type": "json_schema"})), "response_format.json_schema", "Missing"),
            (extra("input", json!("x")), "input", "Unknown parameter"),
        ],
    );
}

#[test]
fn everything_a_good_client_sends_is_taken() {
    let (server, mut client) = serve(script().closing("over"));
    let schema = json!({"type": "object", "additionalProperties": false, "required": ["a", "b"], "properties": {
        "a": {"anyOf": [{"$ref": "#/$defs/x"}, {"type": "null"}]}, "b": {"type": ["string", "null"]}},
        "$defs": {"x": {"type": "object", "additionalProperties": false, "properties": {}, "required": []}}});
    let mut body = request(json!([
        user("hi"),
        {"role": "system", "content": "s"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "t"}, {"type": "input_image", "image_url": "data:"}]},
        said("x"),
        {"type": "reasoning", "id": "rs_9", "summary": [{"type": "summary_text", "text": "t"}], "encrypted_content": "e"},
        {"type": "function_call", "id": "fc_9", "call_id": "a", "name": "f", "arguments": "{}", "status": "completed"},
        {"type": "shell_call", "call_id": "b", "action": {"commands": ["ls"]}},
        {"type": "shell_call", "call_id": "hosted", "action": {"commands": ["ls"]}, "environment": {"type": "container_reference"}},
        {"type": "apply_patch_call", "call_id": "c", "status": "completed", "operation": {"type": "delete_file", "path": "p"}},
        {"type": "local_shell_call", "id": "lsh_9", "call_id": "d", "status": "completed", "action": {"type": "exec", "command": ["ls"]}},
        {"type": "mcp_approval_request", "id": "mcpr_9", "server_label": "l", "name": "n", "arguments": "{}"},
        {"type": "apply_patch_call_output", "call_id": "c", "status": "failed", "output": "no"},
        {"type": "shell_call_output", "call_id": "b", "output": [{"stdout": "", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}},
            {"stdout": "", "stderr": "", "outcome": {"type": "timeout"}}]},
        {"type": "function_call_output", "call_id": "a", "output": [{"type": "input_text", "text": "t"}]},
        {"type": "local_shell_call_output", "id": "d", "output": "x"},
        {"type": "mcp_approval_response", "approval_request_id": "mcpr_9", "approve": true},
        {"type": "compaction", "id": "cmp_9", "encrypted_content": "opaque"},
        {"type": "web_search_call", "id": "ws_9", "status": "completed"},
    ]));
    body["tools"] = json!([
        {"type": "function", "name": "f", "description": null, "strict": true, "parameters": schema},
        {"type": "function", "name": "g", "parameters": {"type": "object", "properties": {"a": {"oneOf": []}}}, "strict": false},
        {"type": "custom", "name": "c", "format": {"type": "grammar", "syntax": "lark", "definition": "start: \"x\""}},
        {"type": "web_search"}, {"type": "shell", "environment": {"type": "local"}}, {"type": "apply_patch"},
        {"type": "mcp", "server_label": "l"},
    ]);
    body["text"] =
        json!({"format": {"type": "json_schema", "name": "a", "strict": true, "schema": schema}, "verbosity": "low"});
    body["instructions"] = Value::Null;
    for choice in [
        json!("auto"),
        json!("required"),
        json!({"type": "function", "name": "f"}),
        json!({"type": "custom", "name": "c"}),
        json!({"type": "shell"}),
    ] {
        body["tool_choice"] = choice;
        let answer = client.ask(&body);
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    assert_eq!(client.ask(&json!({"prompt": {"id": "p"}})).status, 200);
    assert_eq!(server.problems(), []);
}

#[test]
fn long_transcripts_are_judged_in_linear_time() {
    let (server, mut client) = serve(Script::new().turn(item::text("ok")));
    let mut input = Vec::new();
    for at in 0..20_000 {
        input.extend([call(&format!("c{at}")), output(&format!("c{at}"))]);
    }
    let started = std::time::Instant::now();
    assert_eq!(client.ask(&request(json!(input))).said(), "ok");
    assert!(started.elapsed().as_secs() < 60);
    assert_eq!(server.problems(), []);
}
