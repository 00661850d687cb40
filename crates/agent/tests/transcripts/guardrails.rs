//! Guardrails of runs and tools.

use std::time::Duration;

use sandbar_agent::{
    Agent, ToolExt as _, ToolOutput,
    agent::ToolUse,
    guardrail::{Finding, InputGuardrail, OutputGuardrail, ToolInputGuardrail, ToolOutputGuardrail, ToolVerdict},
};
use serde_json::json;

use crate::play::{Log, Scene, calls, check, echo, says, script};

/// A guardrail that trips on certain inputs, after a delay.
fn no_secrets(log: &Log) -> InputGuardrail {
    let log = log.clone();
    InputGuardrail::new("no_secrets", move |check| {
        let log = log.clone();
        async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let text = format!("{:?}", check.input);
            log.line(format!("no_secrets looks for {}", check.agent));
            Ok(if text.contains("secret") { Finding::trip("there is a secret in it") } else { Finding::pass() })
        }
    })
}

#[tokio::test(start_paused = true)]
async fn input_guardrails_let_a_run_pass() {
    check("input_passes", || {
        let log = Log::default();
        let model = script([calls([("c1", "look", "{}")]), says("fine")]);
        let agent = Agent::new("a").input_guardrail(no_secrets(&log)).tool(echo("look", &log));
        Scene::new(agent.model(model.clone()), model).log(log)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_blocking_guardrail_trips_before_the_model_is_asked() {
    check("input_trips_first", || {
        let log = Log::default();
        let model = script([says("never")]);
        let agent = Agent::new("a").blocking_guardrail(no_secrets(&log)).model(model.clone());
        Scene::new(agent, model).input("a secret").log(log)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_parallel_guardrail_trips_before_any_tool_is_called() {
    check("input_trips_beside", || {
        let log = Log::default();
        let model = script([calls([("c1", "look", "{}")])]);
        let agent = Agent::new("a").input_guardrail(no_secrets(&log)).tool(echo("look", &log)).model(model.clone());
        Scene::new(agent, model).input("a secret").log(log)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn input_guardrails_are_those_of_the_first_agent_only() {
    check("input_guardrails_once", || {
        let log = Log::default();
        let model = script([calls([("c1", "transfer_to_b", "{}")]), says("b speaks")]);
        let b = Agent::new("b").input_guardrail(no_secrets(&log)).model(model.clone());
        Scene::new(Agent::new("a").handoff(b).model(model.clone()), model).input("a secret").log(log)
    })
    .await;
}

/// A guardrail that trips on this word in the output.
fn no_word(word: &'static str) -> OutputGuardrail {
    OutputGuardrail::new("no_word", move |check| async move {
        let text = check.output.to_string();
        Ok(if text.contains(word) { Finding::trip(json!({ "word": word })) } else { Finding::pass() })
    })
}

#[tokio::test(start_paused = true)]
async fn a_refused_output_is_taken_out_of_the_run() {
    check("output_trips", || {
        let log = Log::default();
        let model = script([calls([("c1", "look", "{}")]), says("the password is 123")]);
        let agent = Agent::new("a").tool(echo("look", &log)).output_guardrail(no_word("password")).model(model.clone());
        Scene::new(agent, model).log(log)
    })
    .await;
    check("output_passes", || {
        let model = script([says("hello")]);
        Scene::new(Agent::new("a").output_guardrail(no_word("password")).model(model.clone()), model)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_refused_answer_of_a_tool_is_withheld() {
    check("output_of_tool_trips", || {
        let log = Log::default();
        let model = script([calls([("c1", "look", r#"{"password":1}"#)])]);
        let agent = Agent::new("a").tool(echo("look", &log)).tool_use(ToolUse::StopOnFirst);
        Scene::new(agent.output_guardrail(no_word("password")).model(model.clone()), model).log(log)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_guardrail_can_answer_in_place_of_a_tool() {
    check("tool_input_rejected", || {
        let log = Log::default();
        let model =
            script([calls([("c1", "look", r#"{"at":"/etc"}"#), ("c2", "look", r#"{"at":"sky"}"#)]), says("ok")]);
        let guard = ToolInputGuardrail::new("no_etc", |call| async move {
            Ok(if call.arguments().contains("/etc") {
                ToolVerdict::Reject("You may not look there.".to_owned())
            } else {
                ToolVerdict::Allow
            })
        });
        let agent = Agent::new("a").tool(echo("look", &log).input_guardrail(guard)).model(model.clone());
        Scene::new(agent, model).log(log)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_guardrail_can_replace_what_a_tool_answered_or_end_the_run() {
    let guard = |verdict: ToolVerdict| {
        ToolOutputGuardrail::new("clean", move |_, answer: ToolOutput| {
            let dirty = matches!(&answer, ToolOutput::Text(text) if text.contains("mud"));
            let verdict = if dirty { verdict.clone() } else { ToolVerdict::Allow };
            async move { Ok(verdict) }
        })
    };
    for (name, verdict) in [
        ("tool_output_rejected", ToolVerdict::Reject("(removed)".to_owned())),
        ("tool_output_stops", ToolVerdict::Stop(json!("mud everywhere"))),
    ] {
        check(name, || {
            let log = Log::default();
            let model = script([calls([("c1", "look", r#"{"at":"mud"}"#)]), says("ok")]);
            let tool = echo("look", &log).output_guardrail(guard(verdict.clone()));
            Scene::new(Agent::new("a").tool(tool).model(model.clone()), model).log(log)
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_guardrail_that_fails_ends_the_run() {
    check("guardrail_fails", || {
        let model = script([says("hi")]);
        let broken = OutputGuardrail::new("broken", |_| async { Err("no dictionary".into()) });
        Scene::new(Agent::new("a").output_guardrail(broken).model(model.clone()), model)
    })
    .await;
}
