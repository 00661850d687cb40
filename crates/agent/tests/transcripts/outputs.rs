//! Structured final outputs.

use sandbar_agent::{Agent, Recovery, RunConfig, agent::ToolUse};
use serde_json::json;

use crate::play::{Log, Scene, calls, check, echo, says, script};

#[derive(serde::Deserialize, schemars::JsonSchema)]
#[expect(dead_code, reason = "only its shape matters")]
struct Weather {
    city: String,
    degrees: Option<f64>,
}

#[tokio::test(start_paused = true)]
async fn a_structured_output_is_asked_for_and_checked() {
    check("structured", || {
        let model = script([says(r#"{"city":"Paris","degrees":null}"#)]);
        Scene::new(Agent::new("a").output::<Weather>().model(model.clone()), model)
    })
    .await;
    check("structured_list", || {
        let model = script([says(r#"{"response":["a","b"]}"#)]);
        Scene::new(Agent::new("a").output::<Vec<String>>().model(model.clone()), model)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_invalid_output_fails_the_run_unless_a_function_recovers() {
    check("structured_wrong", || {
        let model = script([says(r#"{"town":"Paris"}"#)]);
        Scene::new(Agent::new("a").output::<Weather>().model(model.clone()), model)
    })
    .await;
    check("structured_recovered", || {
        let model = script([says("no idea")]);
        let config = RunConfig::new()
            .on_invalid_output(|_| async { Some(Recovery::with(json!({ "city": "unknown", "degrees": 0.0 }))) });
        Scene::new(Agent::new("a").output::<Weather>().model(model.clone()), model).config(config)
    })
    .await;
    check("structured_recovered_wrongly", || {
        let model = script([says("no idea")]);
        let config = RunConfig::new().on_invalid_output(|_| async { Some(Recovery::with("still no idea")) });
        Scene::new(Agent::new("a").output::<Weather>().model(model.clone()), model).config(config)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_empty_reply_without_structured_output_asks_the_model_again() {
    check("structured_silence", || {
        let model = script([says(""), says(r#"{"city":"Rome","degrees":30}"#)]);
        Scene::new(Agent::new("a").output::<Weather>().model(model.clone()), model)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_output_of_a_tool_becomes_text_if_the_final_output_is_text() {
    check("tool_value_as_text", || {
        let log = Log::default();
        let model = script([calls([("c1", "look", "{}")])]);
        let agent = Agent::new("a")
            .tool(echo("look", &log))
            .tool_use(ToolUse::decide(|_, _| async { Ok(Some(json!([1, 2]))) }));
        Scene::new(agent.model(model.clone()), model).log(log)
    })
    .await;
}
