//! Calls: all at once, answers in order, and what becomes of those that go wrong.

use std::{num::NonZeroUsize, time::Duration};

use sandbar_agent::{
    Agent, BoxError, CustomTool, FunctionTool, OnFailure, OnTimeout, RunConfig, ToolContext, ToolExt as _,
};
use serde_json::{Value, json};

use crate::play::{Log, Scene, calls, check, echo, says, script};

fn open_schema() -> Value {
    json!({ "type": "object", "properties": {}, "additionalProperties": true })
}

/// A tool that takes its time, by its arguments.
fn slow(log: &Log) -> FunctionTool {
    let log = log.clone();
    FunctionTool::raw("slow", "Waits.", open_schema(), move |call: ToolContext, arguments: Value| {
        let log = log.clone();
        async move {
            log.line(format!("#{} begins", call.call_id()));
            tokio::time::sleep(Duration::from_secs(arguments["s"].as_u64().unwrap_or(0))).await;
            log.line(format!("#{} ends", call.call_id()));
            Ok::<_, BoxError>(format!("waited {}", arguments["s"]))
        }
    })
    .lenient()
}

/// A tool that fails.
fn failing() -> FunctionTool {
    FunctionTool::raw("fail", "Fails.", open_schema(), |_: ToolContext, _: Value| async {
        Err::<String, BoxError>("the cellar is flooded".into())
    })
    .lenient()
}

#[tokio::test(start_paused = true)]
async fn calls_of_a_turn_run_at_once_and_answer_in_order() {
    check("parallel_calls", || {
        let log = Log::default();
        let model = script([
            calls([("c1", "slow", r#"{"s":3}"#), ("c2", "slow", r#"{"s":1}"#), ("c3", "slow", r#"{"s":2}"#)]),
            says("done"),
        ]);
        Scene::new(Agent::new("a").model(model.clone()).tool(slow(&log)), model).log(log)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_cap_lets_fewer_calls_run_at_once() {
    check("capped_calls", || {
        let log = Log::default();
        let model = script([
            calls([("c1", "slow", r#"{"s":3}"#), ("c2", "slow", r#"{"s":1}"#), ("c3", "slow", r#"{"s":1}"#)]),
            says("done"),
        ]);
        Scene::new(Agent::new("a").model(model.clone()).tool(slow(&log)), model)
            .config(RunConfig::new().tool_concurrency(NonZeroUsize::new(2).expect("two")))
            .log(log)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_told_to_the_model_or_worded_or_ends_the_run() {
    for (name, rule) in [
        ("failure_told", OnFailure::Tell),
        ("failure_worded", OnFailure::Say(std::sync::Arc::new(|call, error| format!("{}: {error}!", call.tool())))),
        ("failure_raised", OnFailure::Raise),
    ] {
        check(name, || {
            let model = script([calls([("c1", "fail", "{}")]), says("I see.")]);
            let agent = Agent::new("a").model(model.clone()).tool(failing().on_failure(rule.clone()));
            Scene::new(agent, model)
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_takes_too_long_is_told_worded_or_ends_the_run() {
    for (name, rule) in [
        ("timeout_told", OnTimeout::Tell),
        ("timeout_worded", OnTimeout::Say(std::sync::Arc::new(|_, limit| format!("too slow for {limit:?}")))),
        ("timeout_raised", OnTimeout::Raise),
    ] {
        check(name, || {
            let log = Log::default();
            let model = script([calls([("c1", "slow", r#"{"s":60}"#)]), says("I see.")]);
            let tool = slow(&log).timeout(Duration::from_millis(1500)).on_timeout(rule.clone());
            Scene::new(Agent::new("a").model(model.clone()).tool(tool), model).log(log)
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn when_a_call_ends_the_run_what_others_answered_is_kept() {
    check("failure_keeps_answers", || {
        let log = Log::default();
        let model = script([calls([("c1", "slow", r#"{"s":60}"#), ("c2", "look", "{}"), ("c3", "fail", "{}")])]);
        let agent =
            Agent::new("a").tool(slow(&log)).tool(echo("look", &log)).tool(failing().on_failure(OnFailure::Raise));
        Scene::new(agent.model(model.clone()), model).log(log)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn arguments_that_are_no_object_are_an_answer_the_model_can_act_on() {
    check("bad_arguments", || {
        let log = Log::default();
        let model =
            script([calls([("c1", "look", "{\"at\": "), ("c2", "look", "[1]"), ("c3", "look", "")]), says("I see.")]);
        Scene::new(Agent::new("a").model(model.clone()).tool(echo("look", &log)), model).log(log)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_is_not_there_ends_the_run_or_is_told() {
    check("unknown_tool", || {
        let model = script([calls([("c1", "nope", "{}")])]);
        Scene::new(Agent::new("a").model(model.clone()), model)
    })
    .await;
    check("unknown_tool_told", || {
        let model = script([calls([("c1", "nope", "{}")]), says("I see.")]);
        Scene::new(Agent::new("a").model(model.clone()), model).config(RunConfig::new().tell_unknown_tools())
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_answered_is_not_made_again() {
    check("replayed_call", || {
        let log = Log::default();
        let model =
            script([calls([("c1", "look", "{}")]), calls([("c1", "look", "{}"), ("c2", "look", "{}")]), says("done")]);
        Scene::new(Agent::new("a").model(model.clone()).tool(echo("look", &log)), model).log(log)
    })
    .await;
    check("reused_call_id", || {
        let log = Log::default();
        let model = script([calls([("c1", "look", "{}")]), calls([("c1", "look", r#"{"other":1}"#)])]);
        Scene::new(Agent::new("a").model(model.clone()).tool(echo("look", &log)), model).log(log)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_freeform_tool_gets_the_text_as_it_is() {
    check("custom_tool", || {
        let log = Log::default();
        let model = script([vec![sandbar_agent::Item::custom_call("c1", "poem", "not { json")], says("Nice.")]);
        let tool = CustomTool::new("poem", "Recites.", |_: ToolContext, text: String| async move {
            Ok::<_, BoxError>(text.to_uppercase())
        });
        Scene::new(Agent::new("a").model(model.clone()).tool(tool), model).log(log)
    })
    .await;
}
