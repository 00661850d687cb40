//! The official `openai` Python package accepts all answers of the server.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::{path::Path, process::Command, time::Duration};

use sandbar_mock::{Authorization, Conversation, Events, Fault, Malformed, MockServer, Script, Turn, When, item};
use serde_json::json;

const TEXT: &str = "Grüße, 世界 🦀";

/// Runs one check of a program against a server, which must find nothing wrong with the client either.
fn python(check: &str, script: Script, problems: usize) {
    run("openai_client.py", check, script, problems);
}

fn run(program: &str, check: &str, script: Script, problems: usize) {
    let server = MockServer::start(script).unwrap();
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let python = package.join("../../.venv-agents/bin/python");
    assert!(python.exists(), "there is no {}: `cargo xtask setup` makes it", python.display());
    let mut command = Command::new(python);
    for variable in ["http_proxy", "https_proxy", "all_proxy", "no_proxy"] {
        command.env_remove(variable).env_remove(variable.to_uppercase());
    }
    let output = command
        .arg(package.join("tests/python").join(program))
        .args([check, &server.base_url(), "6"])
        .output()
        .expect("python runs");
    let (printed, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && printed.ends_with("ok\n"), "{printed}{said}\n{:#?}", server.problems());
    assert_eq!(server.problems().len(), problems, "{:#?}", server.problems());
}

/// A turn with an item of every kind; text first, and again last.
fn everything() -> Turn {
    Turn::new([
        item::text(TEXT),
        item::reasoning("Thinking about it."),
        item::function_call("f", json!({"a": 1})),
        item::custom_tool_call("c", "*** Begin Patch"),
        item::compaction("opaque"),
        item::shell_call(["ls -l", "pwd"]),
        item::apply_patch_call(json!({"type": "update_file", "path": "a.txt", "diff": "+x"})),
        json!({"type": "local_shell_call", "action": {"type": "exec", "command": ["ls"], "env": {}}}),
        json!({"type": "computer_call", "action": {"type": "screenshot"}}),
        json!({"type": "web_search_call", "action": {"type": "search", "query": "q"}}),
        json!({"type": "file_search_call", "queries": ["q"]}),
        json!({"type": "code_interpreter_call", "code": "print(1)", "container_id": "c", "outputs": null}),
        json!({"type": "image_generation_call", "result": null}),
        json!({"type": "mcp_list_tools", "server_label": "s", "tools": [{"name": "t", "input_schema": {}}]}),
        json!({"type": "mcp_call", "server_label": "s", "name": "t", "arguments": {"x": [1, 2]}}),
        json!({"type": "mcp_approval_request", "server_label": "s", "name": "t"}),
        json!({"type": "message", "content": [
            {"type": "output_text", "text": "Two parts. ", "annotations":
                [{"type": "url_citation", "url": "u", "title": "t", "start_index": 0, "end_index": 3}]},
            {"type": "refusal", "refusal": "And a refusal."},
        ]}),
    ])
}

#[test]
fn every_item_is_parsed_streamed_and_whole() {
    python("items", Script::new().turn(everything()).delta_chars(3), 0);
}

#[test]
fn minimal_streams_are_parsed() {
    let script = Script::new().turn(Turn::new([item::text("hello")]).tokens(3, 4)).events(Events::Minimal);
    python("minimal", script, 0);
}

#[test]
fn a_run_goes_to_its_end_in_every_way_of_keeping_state() {
    let call = || item::function_call("f", json!({}));
    python("loop", Script::new().turn(call()).turn([item::reasoning("hm"), call()]).turn(item::text("done")), 0);
}

#[test]
fn chat_completions_are_parsed_streamed_and_whole() {
    let first = [item::text(TEXT), item::function_call("f", json!({"a": 1})), item::function_call("f", json!({}))];
    python("chat", Script::new().turn(first).turn(item::text("done")).delta_chars(2), 0);
}

#[test]
fn errors_are_the_exceptions_they_should_be() {
    let mut turn = Turn::new([item::text("hello")]);
    for status in [400, 401, 403, 404, 409, 422, 429, 500, 503] {
        turn = turn.fault(Fault::status(status));
    }
    let (code, message) = ("server_error".to_owned(), "no".to_owned());
    let turn = turn
        .fault(Fault::CutAfterEvents(3))
        .fault(Fault::Failed { code: code.clone(), message: message.clone() })
        .fault(Fault::Incomplete { reason: "max_output_tokens".to_owned() })
        .fault(Fault::ErrorEvent { code, message })
        .fault(Fault::status(429).header("retry-after-ms", "5"))
        .fault(Fault::status(500).header("retry-after-ms", "5").header("x-should-retry", "true"));
    python("errors", Script::new().turn(turn).authorization(Authorization::Key("key".to_owned())), 4);
}

#[test]
fn odd_but_legal_framing_is_read() {
    let turn = [
        Malformed::Split,
        Malformed::Crlf,
        Malformed::Comments,
        Malformed::GarbageLine,
        Malformed::OversizedLine(1 << 20),
    ]
    .into_iter()
    .fold(Turn::new([item::text(TEXT)]), |turn, how| turn.fault(Fault::Malformed(how)))
    .fault(Fault::Slow { bytes: 97, every: Duration::from_millis(1) });
    python("framing", Script::new().turn(turn).delta_chars(1), 0);
}

/// A front desk that hands over, a forecaster with tools, and a translator who is one of them.
fn agents() -> Script {
    let desk = Conversation::new()
        .name("desk")
        .when(When::any().tool("transfer_to_forecaster"))
        .turn(item::function_call("transfer_to_forecaster", json!({})));
    let forecaster = Conversation::new()
        .name("forecaster")
        .when(When::any().tool("weather"))
        .turn([
            item::text("Let me see."),
            item::function_call("weather", json!({"city": "Oslo", "unit": "C"})),
            item::function_call("translate", json!({"input": "warm"})),
        ])
        .turn(item::text(json!({"city": "Oslo", "degrees": 7}).to_string()));
    let translator = Conversation::new()
        .name("translator")
        .when(When::any().instructions("You translate."))
        .turn(item::text("varm"));
    Script::new().conversation(desk).conversation(forecaster).conversation(translator)
}

#[test]
fn agents_of_the_python_sdk_run_to_their_end() {
    run("agents_client.py", "responses,chat,previous,conversation,session", agents(), 0);
}
