//! Saved runs that were modified, and runs whose saved form must be loadable.

use sandbar_agent::{Agent, FunctionTool, Json, RunState, ToolContext, ToolExt as _, run};
use serde_json::{Value, json};

use crate::scene::{Log, calls, echo, open_schema, says, script, tampered};

#[tokio::test]
async fn a_saved_run_with_two_calls_of_one_id_is_refused_or_ends() {
    let log = Log::default();
    let agent = Agent::new("a")
        .tool(echo("look", &log).needs_approval())
        .model(script([calls([("c1", "look", "{}")]), says("done")]));
    let mut state = run(&agent, "go").await.expect("it waits").to_state();
    let call = state.interruptions().remove(0);
    state.approve(&call).expect("waits");
    let twice = tampered(&state, |value| {
        let call = value["phase"]["calls"][0].clone();
        value["phase"]["calls"].as_array_mut().unwrap().push(call);
    });
    let Ok(state) = twice else { return };
    let _ended = run(&agent, state).steps(50).await;
    assert!(log.lines().len() <= 2, "an approved call was made {} times", log.lines().len());
}

#[tokio::test]
async fn a_saved_run_with_more_turns_than_can_be_counted_does_not_panic() {
    let log = Log::default();
    let agent = Agent::new("a").tool(echo("look", &log)).model(script([calls([("c1", "look", "{}")]), says("done")]));
    let paused = run(&agent, "go").steps(1).await.expect("paused").to_state();
    let state = tampered(&paused, |value| {
        value["turn"] = json!(u32::MAX);
        value["max_turns"] = Value::Null;
    });
    let Ok(state) = state else { return };
    let played = tokio::spawn(async move { run(&agent, state).await.map(drop).map_err(drop) }).await;
    assert!(played.is_ok(), "it panicked");
}

#[tokio::test]
async fn what_a_tool_answers_never_makes_a_run_that_cannot_be_loaded() {
    let deep = FunctionTool::raw("deep", "Digs.", open_schema(), |_: ToolContext, _: Value| async {
        let text = format!("{}{}", "[".repeat(126), "]".repeat(126));
        Json(serde_json::from_str::<Value>(&text).unwrap())
    })
    .lenient();
    let agent = Agent::new("a").tool(deep).model(script([calls([("c1", "deep", "{}")]), says("done")]));
    let result = run(&agent, "go").await.expect("it runs");
    let saved = result.to_state().to_json().expect("saved");
    RunState::from_json(&saved).expect("what was saved can be loaded");
}

#[tokio::test]
async fn what_a_model_says_never_makes_a_run_that_cannot_be_loaded() {
    // The deepest nesting that the decoder of the stream accepts in an event that finishes an item.
    let text = format!(r#"{{"type":"new_thing","x":{}{}}}"#, "[".repeat(125), "]".repeat(125));
    let event = format!(r#"{{"type":"response.output_item.done","item":{text}}}"#);
    assert!(serde_json::from_str::<Value>(&event).is_ok());
    let mut reply = vec![serde_json::from_str(&text).expect("an item")];
    reply.extend(says("done"));
    let agent = Agent::new("a").model(script([reply]));
    let error = run(&agent, "go").await.expect_err("it is refused");
    assert_eq!(error.error().code(), "model_behavior", "{error}");
    let saved = error.state().to_json().expect("saved");
    RunState::from_json(&saved).expect("what was saved can be loaded");
}

#[tokio::test]
async fn a_price_without_end_does_not_spoil_a_saved_run() {
    let prices = sandbar_agent::Prices::default()
        .with("forbidden", sandbar_agent::Price { input: f64::INFINITY, cached: 0.0, output: 0.0 });
    let budget = sandbar_agent::Budget::new().dollars(1.0).prices(prices);
    let agent = Agent::new("a").model(script([says("done")]));
    let result = run(&agent, "go").budget(budget).await.expect("it runs");
    let saved = result.to_state().to_json().expect("saved");
    RunState::from_json(&saved).expect("what was saved can be loaded");
}

#[tokio::test]
async fn a_run_that_was_read_without_being_checked_does_not_panic() {
    let agent = Agent::new("a").model(script([says("done")]));
    let state = run(&agent, "go").await.expect("it runs").to_state();
    let mut value: Value = serde_json::from_str(&state.to_json().expect("saved")).expect("json");
    value["replies"][0]["to"] = json!(99);
    // Any program can deserialise `Run` directly, without the version and the checks of `RunState`.
    if let Ok(read) = serde_json::from_value::<sandbar_agent::Run>(value) {
        assert_eq!(read.replies().count(), 1);
    }
}
