//! Tool calls: concurrency, the order of outputs, and failures.

use std::{num::NonZeroUsize, time::Duration};

use sandbar_agent::{
    Agent, BoxError, CustomTool, FunctionTool, OnFailure, OnTimeout, RunConfig, ToolContext, ToolExt as _,
};
use serde_json::{Value, json};

use crate::play::{Log, Scene, calls, check, echo, says, script};

fn open_schema() -> Value {
    json!({ "type": "object", "properties": {}, "additionalProperties": true })
}

/// A tool that waits as long as its arguments say.
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
async fn calls_of_a_turn_run_concurrently_with_outputs_in_order() {
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
async fn a_limit_reduces_the_number_of_concurrent_calls() {
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
async fn the_model_reads_the_default_or_a_custom_text_of_a_failure_or_the_run_fails() {
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
async fn the_model_reads_the_default_or_a_custom_text_of_a_timeout_or_the_run_fails() {
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
async fn outputs_of_other_calls_are_kept_when_a_call_fails_the_run() {
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
async fn the_model_reads_the_fault_of_invalid_arguments() {
    check("bad_arguments", || {
        let log = Log::default();
        let model =
            script([calls([("c1", "look", "{\"at\": "), ("c2", "look", "[1]"), ("c3", "look", "")]), says("I see.")]);
        Scene::new(Agent::new("a").model(model.clone()).tool(echo("look", &log)), model).log(log)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_call_of_an_unknown_tool_fails_the_run_or_the_model_reads_about_it() {
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
async fn an_answered_call_is_not_made_again() {
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
async fn a_freeform_tool_gets_the_text_unchanged() {
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
