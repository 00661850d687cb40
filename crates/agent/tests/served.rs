//! Whole runs over real HTTP, with a model server that checks every request and injects faults.

#![allow(clippy::expect_used, reason = "a test")]

use std::time::Duration;

use sandbar_agent::{
    Agent, AgentError, BoxError, Chat, FunctionTool, ModelEndpoint, ModelSettings, Responses, RunState, Stop,
    ToolContext, ToolExt as _, run,
};
use sandbar_mock::{Conversation, Fault, Malformed, MockServer, Script, Turn, When, item};
use serde_json::{Value, json};

fn tool(name: &str) -> FunctionTool {
    let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" } }, "required": ["n"], "additionalProperties": false });
    FunctionTool::raw(name, "Counts.", schema, |call: ToolContext, arguments: Value| async move {
        Ok::<_, BoxError>(format!("{} {}", call.tool(), arguments["n"]))
    })
}

fn model(server: &MockServer) -> Responses {
    Responses::new("test").base_url(server.base_url()).api_key("k")
}

fn serve(script: Script) -> MockServer {
    MockServer::start(script).expect("a server")
}

fn has_no_problems(server: &MockServer) {
    assert_eq!(server.problems(), []);
}

#[tokio::test]
async fn a_run_over_http_ends_like_one_in_memory() {
    let script = || {
        Script::new()
            .turn(vec![item::reasoning("let me count"), item::function_call("count", json!({ "n": 1 }))])
            .turn(vec![
                item::function_call("count", json!({ "n": 2 })),
                item::function_call("count", json!({ "n": 3 })),
            ])
            .turn(Turn::new([item::text("counted to three")]).tokens(10, 5))
    };
    let server = serve(script());
    let agent = Agent::new("counter").instructions("Count.").tool(tool("count")).model(model(&server));
    let result = run(&agent, "go").await.expect("it runs");
    assert_eq!(result.final_output(), "counted to three");
    assert_eq!(result.usage().requests, 3);
    has_no_problems(&server);

    let server = serve(script());
    let chat = Chat::new("test", ModelEndpoint::new(server.base_url()).api_key("k"));
    let agent = Agent::new("counter").instructions("Count.").tool(tool("count")).model(chat);
    assert_eq!(run(&agent, "go").await.expect("it runs").final_output(), "counted to three");
    has_no_problems(&server);
}

#[tokio::test]
async fn a_server_that_keeps_the_conversation_gets_only_new_items() {
    let server = serve(Script::new().turn(item::function_call("count", json!({ "n": 1 }))).turn(item::text("done")));
    let agent = Agent::new("counter").tool(tool("count")).model(model(&server));
    assert_eq!(run(&agent, "go").chain_responses().await.expect("it runs").final_output(), "done");
    has_no_problems(&server);
}

#[tokio::test]
async fn a_waiting_run_is_resumed_by_another_process() {
    let server = serve(Script::new().turn(item::function_call("count", json!({ "n": 1 }))).turn(item::text("done")));
    let agent = || Agent::new("counter").tool(tool("count").needs_approval()).model(model(&server));
    let saved = run(agent(), "go").await.expect("it waits").to_state().to_json().expect("saved");
    let mut state = RunState::from_json(&saved).expect("loaded");
    state.approve(&state.interruptions()[0].clone()).expect("it waits");
    assert_eq!(run(agent(), state).await.expect("it finishes").final_output(), "done");
    has_no_problems(&server);
}

#[tokio::test]
async fn handoffs_and_agents_as_tools_work_over_http() {
    let script = Script::new()
        .conversation(
            Conversation::new()
                .when(When::any().instructions("You sort."))
                .turn(item::function_call("ask_helper", json!({ "input": "which?" })))
                .turn(item::function_call("transfer_to_closer", json!({}))),
        )
        .conversation(Conversation::new().when(When::any().instructions("You help.")).turn(item::text("the second")))
        .conversation(Conversation::new().when(When::any().instructions("You close.")).turn(item::text("closed")));
    let server = serve(script);
    let helper = Agent::new("helper").instructions("You help.").model(model(&server));
    let closer = Agent::new("closer").instructions("You close.").model(model(&server));
    let sorter = Agent::new("sorter")
        .instructions("You sort.")
        .tool(helper.as_tool("ask_helper", "Asks the helper."))
        .handoff(closer)
        .model(model(&server));
    let result = run(&sorter, "go").await.expect("it runs");
    assert_eq!((result.final_output().as_str(), result.last_agent()), ("closed", "closer"));
    has_no_problems(&server);
}

#[tokio::test]
async fn temporary_faults_are_retried() {
    let soon = |status| Fault::status(status).header("retry-after-ms", "1");
    let mut ends = Vec::new();
    // A busy host may need longer for an answer.
    for seconds in [2, 30] {
        let script = Script::new()
            .turn(Turn::new([item::function_call("count", json!({ "n": 1 }))]).fault(soon(429)).fault(soon(500)))
            .turn(Turn::new([item::text("done")]).fault(Fault::CutAfterEvents(1)).fault(Fault::Hang));
        let server = serve(script);
        let mut settings = ModelSettings::new();
        settings.timeout = Some(Duration::from_secs(seconds));
        let agent = Agent::new("counter").tool(tool("count")).settings(settings).model(model(&server));
        let end = run(&agent, "go").await.map(|result| (result.final_output(), result.usage().requests));
        ends.push(end.map_err(|error| error.to_string()));
        if ends.last() == Some(&Ok(("done".to_owned(), 6))) {
            return;
        }
    }
    panic!("{ends:?}");
}

#[tokio::test]
async fn permanent_faults_fail_the_run_which_can_be_resumed() {
    let refused =
        json!({ "error": { "message": "who are you?", "type": "invalid_request_error", "code": "invalid_api_key" } });
    for (name, fault, says) in [
        ("401", Fault::status(401).body(refused), "401"),
        ("garbage", Fault::Malformed(Malformed::InvalidJson), "cannot be understood"),
        (
            "failed",
            Fault::Failed { code: "invalid_prompt".to_owned(), message: "no".to_owned() },
            "the model failed: no",
        ),
        ("cut after output", Fault::CutAfterEvents(7), "part of the answer had been shown"),
    ] {
        let script = Script::new()
            .turn(item::function_call("count", json!({ "n": 1 })))
            .turn(
                Turn::new([item::text("a rather long answer, in many pieces, to be cut in the middle of it")])
                    .fault(fault),
            )
            .delta_chars(4);
        let server = serve(script);
        let agent = Agent::new("counter").tool(tool("count")).model(model(&server));
        let error = run(&agent, "go").await.expect_err(name);
        assert!(matches!(error.error(), AgentError::Model(_)), "{name}: {error}");
        assert!(error.to_string().contains(says), "{name}: {error}");
        assert_eq!((error.run().turn(), error.run().items().len()), (1, 2), "{name}: the first turn is kept");

        // The fault is gone: the run continues at the same point.
        let state = RunState::from_json(&error.state().to_json().expect("saved")).expect("loaded");
        let result = run(&agent, state).await.expect(name);
        assert!(result.final_output().starts_with("a rather long answer"), "{name}");
        assert_eq!(result.new_items().len(), 3, "{name}: nothing was done twice");
    }
}

#[tokio::test]
async fn a_model_that_calls_tools_forever_reaches_the_limit_of_turns() {
    let script = (0..20).fold(Script::new(), |script, n| script.turn(item::function_call("count", json!({ "n": n }))));
    let server = serve(script);
    let agent = Agent::new("counter").tool(tool("count")).model(model(&server));
    let error = run(&agent, "go").await.expect_err("it must end");
    assert!(matches!(error.error(), AgentError::MaxTurns(10)), "{error}");
    assert_eq!(error.run().turn(), 10);
    has_no_problems(&server);
}

#[tokio::test]
async fn a_stream_emits_the_text_in_pieces() {
    let server = serve(Script::new().turn(item::text("Größe: 10 µm, 日本")).delta_chars(3));
    let agent = Agent::new("a").model(model(&server));
    let mut stream = run(&agent, "go").stream();
    let mut pieces = Vec::new();
    while let Some(event) = stream.next().await {
        pieces.extend(event.text_delta().map(str::to_owned));
    }
    assert!(pieces.len() > 3, "{pieces:?}");
    let result = stream.result().await.expect("it runs");
    assert_eq!((pieces.concat(), result.stop()), (result.final_output(), &Stop::Finished));
}
