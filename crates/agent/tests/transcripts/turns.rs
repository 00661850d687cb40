//! Turns: when a run ends, and the input of each model request.

use sandbar_agent::{
    Agent, Item, ModelError, ModelSettings, Recovery, Retry, RunConfig, ToolChoice, Turn, agent::ToolUse,
};

use crate::play::{Log, Scene, calls, check, echo, says, script};

#[tokio::test(start_paused = true)]
async fn a_run_ends_with_a_reply_without_calls() {
    check("just_talk", || {
        let model = script([says("Hello.")]);
        Scene::new(Agent::new("greeter").instructions("Be kind.").model(model.clone()), model)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_model_is_asked_again_with_the_outputs_of_tools() {
    check("ask_again", || {
        let log = Log::default();
        let model = script([calls([("c1", "look", r#"{"at":"sky"}"#)]), says("Blue.")]);
        Scene::new(Agent::new("a").model(model.clone()).tool(echo("look", &log)), model).log(log)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn turns_are_counted_and_run_out() {
    check("max_turns", || {
        let log = Log::default();
        let model = script([calls([("c1", "look", "{}")]), calls([("c2", "look", "{}")]), says("never")]);
        Scene::new(Agent::new("a").model(model.clone()).tool(echo("look", &log)), model)
            .config(RunConfig::new().max_turns(Some(2)))
            .log(log)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn running_out_of_turns_can_be_recovered_from() {
    check("max_turns_recovered", || {
        let log = Log::default();
        let model = script([calls([("c1", "look", "{}")])]);
        Scene::new(Agent::new("a").model(model.clone()).tool(echo("look", &log)), model)
            .config(
                RunConfig::new()
                    .max_turns(Some(1))
                    .on_max_turns(|trouble| async move { Some(Recovery::with(format!("gave up: {}", trouble.what))) }),
            )
            .log(log)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_first_answer_of_a_tool_can_end_the_run() {
    check("stop_on_first", || {
        let log = Log::default();
        let model = script([calls([("c1", "one", "{}"), ("c2", "two", "{}")])]);
        let agent = Agent::new("a").tool(echo("one", &log)).tool(echo("two", &log)).tool_use(ToolUse::StopOnFirst);
        Scene::new(agent.model(model.clone()), model).log(log)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn only_the_named_tools_end_the_run() {
    check("stop_at", || {
        let log = Log::default();
        let model = script([calls([("c1", "one", "{}")]), calls([("c2", "one", "{}"), ("c3", "two", "{}")])]);
        let agent = Agent::new("a").tool(echo("one", &log)).tool(echo("two", &log));
        Scene::new(agent.tool_use(ToolUse::StopAt(vec!["two".to_owned()])).model(model.clone()), model).log(log)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_function_can_decide_whether_tools_end_the_run() {
    check("tool_use_decided", || {
        let log = Log::default();
        let model = script([calls([("c1", "one", "{}")]), calls([("c2", "one", r#"{"enough":true}"#)])]);
        let agent = Agent::new("a").tool(echo("one", &log)).tool_use(ToolUse::decide(|_, results| async move {
            let output = results[0].output.value();
            Ok(output.as_str().is_some_and(|text| text.contains("enough")).then_some(output))
        }));
        Scene::new(agent.model(model.clone()), model).log(log)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_tool_choice_is_dropped_once_a_tool_was_used() {
    for keep in [false, true] {
        let name = if keep { "tool_choice_kept" } else { "tool_choice_reset" };
        check(name, || {
            let log = Log::default();
            let model = script([calls([("c1", "one", "{}")]), says("done")]);
            let mut settings = ModelSettings::new();
            settings.tool_choice = Some(ToolChoice::Required);
            let agent = Agent::new("a").tool(echo("one", &log)).settings(settings).model(model.clone());
            Scene::new(if keep { agent.keep_tool_choice() } else { agent }, model).log(log)
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_fails_the_run_unless_a_function_recovers() {
    let refusal = || -> Item {
        let text = r#"{"type":"message","role":"assistant","content":[{"type":"refusal","refusal":"I will not."}]}"#;
        serde_json::from_str(text).expect("an item")
    };
    check("refusal", || {
        let model = script([vec![refusal()]]);
        Scene::new(Agent::new("a").model(model.clone()), model)
    })
    .await;
    check("refusal_recovered", || {
        let model = script([vec![refusal()]]);
        Scene::new(Agent::new("a").model(model.clone()), model)
            .config(RunConfig::new().on_refusal(|_| async { Some(Recovery::with("Sorry.").not_in_history()) }))
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_hosted_call_without_a_message_asks_the_model_again() {
    check("hosted_without_words", || {
        let searched = serde_json::from_str(r#"{"type":"web_search_call","id":"ws_1","status":"completed"}"#);
        let model = script([vec![searched.expect("an item")], says("Found it.")]);
        Scene::new(Agent::new("a").model(model.clone()), model)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn items_before_a_compaction_are_not_sent_again() {
    check("compaction", || {
        let log = Log::default();
        let compaction = || serde_json::from_str(r#"{"type":"compaction","id":"cmp_1","encrypted_content":"x"}"#);
        let mut second = vec![compaction().expect("an item")];
        second.extend(calls([("c2", "look", "{}")]));
        let model = script([calls([("c1", "look", "{}")]), second, says("done")]);
        Scene::new(Agent::new("a").model(model.clone()).tool(echo("look", &log)), model).log(log)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_failed_model_call_is_retried_by_the_policy_of_the_settings() {
    check("model_retry", || {
        let failure = || ModelError::Network { host: "h".to_owned(), reason: "gone".to_owned() };
        let model = sandbar_agent::ScriptedModel::new([
            Turn::Error(failure()),
            Turn::Error(failure()),
            Turn::Items(says("at last")),
        ]);
        let mut settings = ModelSettings::new();
        settings.retry = Some(Retry { max_retries: 2, ..Retry::default() });
        Scene::new(Agent::new("a").settings(settings).model(model.clone()), model)
    })
    .await;
}
