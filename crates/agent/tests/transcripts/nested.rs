//! Agents used as tools.

use sandbar_agent::{Agent, Budget, Item, ModelReply, RunConfig, ToolExt as _, Turn, Usage};

use crate::play::{Log, Scene, calls, check, echo, says, script};

#[tokio::test(start_paused = true)]
async fn an_agent_answers_a_call_with_its_final_output() {
    check("nested", || {
        let log = Log::default();
        let inner = script([calls([("i1", "look", "{}")]), says("It is raining.")]);
        let outer = script([
            calls([("o1", "weather", r#"{"input":"Paris?"}"#), ("o2", "weather", "{}")]),
            says("Take an umbrella."),
        ]);
        let worker = Agent::new("meteorologist").tool(echo("look", &log)).model(inner.clone());
        let boss = Agent::new("boss").model(outer.clone()).tool(worker.as_tool("weather", "Knows the weather."));
        Scene::new(boss, outer).model(inner).log(log)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn events_of_a_nested_run_can_be_followed() {
    check("nested_events", || {
        let log = Log::default();
        let told = log.clone();
        let inner = script([says("It is raining.")]);
        let outer = script([calls([("o1", "weather", r#"{"input":"Paris?"}"#)]), says("Take an umbrella.")]);
        let tool = Agent::new("meteorologist").model(inner.clone()).as_tool("weather", "Knows the weather.").on_event(
            move |event| {
                if let Some(text) = event.event.text_delta() {
                    told.line(format!("{} for #{}: {text}", event.agent, event.call_id));
                }
            },
        );
        Scene::new(Agent::new("boss").model(outer.clone()).tool(tool), outer).model(inner).log(log)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn what_a_nested_run_says_can_be_extracted() {
    check("nested_extracted", || {
        let inner = script([says("very long story")]);
        let outer = script([calls([("o1", "story", r#"{"input":"x"}"#)]), says("ok")]);
        let tool = Agent::new("teller").model(inner.clone()).as_tool("story", "Tells.").extract(|result| async move {
            Ok(format!("{} items by {}", result.new_items().len(), result.last_agent()))
        });
        Scene::new(Agent::new("boss").model(outer.clone()).tool(tool), outer).model(inner)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_nested_run_that_fails_is_an_answer_the_model_can_act_on() {
    check("nested_fails", || {
        let log = Log::default();
        let inner = script([calls([("i1", "look", "{}")])]);
        let outer = script([calls([("o1", "helper", r#"{"input":"x"}"#)]), says("I see.")]);
        let worker = Agent::new("worker").tool(echo("look", &log)).model(inner.clone());
        let boss = Agent::new("boss").tool(worker.as_tool("helper", "Helps.").max_turns(Some(1)));
        Scene::new(boss.model(outer.clone()), outer).model(inner).log(log)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn approvals_two_runs_deep_are_decided_outside() {
    check("nested_twice", || {
        let log = Log::default();
        let deepest = script([calls([("d1", "deploy", "{}")]), says("deployed")]);
        let middle = script([calls([("m1", "deployer", r#"{"input":"now"}"#)]), says("it is deployed")]);
        let outer =
            script([calls([("o1", "manager", r#"{"input":"deploy"}"#), ("o2", "deploy", "{}")]), says("all done")]);
        let worker = Agent::new("worker").tool(echo("deploy", &log).needs_approval()).model(deepest.clone());
        let lead = Agent::new("lead").tool(worker.as_tool("deployer", "Deploys.")).model(middle.clone());
        let boss = Agent::new("boss")
            .tool(lead.as_tool("manager", "Leads."))
            .tool(echo("deploy", &log).needs_approval())
            .model(outer.clone());
        Scene::new(boss, outer)
            .model(middle)
            .model(deepest)
            .decide(|state| {
                let inner =
                    state.interruptions().into_iter().find(|call| !call.inside.is_empty()).expect("a nested one");
                state.reject_with(&inner, "not there").expect("it waits");
            })
            .decide(|state| state.approve(&state.interruptions()[0].clone()).expect("it waits"))
            .log(log)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_nested_run_spends_from_the_outer_budget() {
    let costs = |tokens: u64, output: Vec<Item>| {
        let usage = Usage { requests: 1, input_tokens: tokens, total_tokens: tokens, ..Usage::default() };
        Turn::Reply(ModelReply { output, usage, ..ModelReply::default() })
    };
    check("nested_budget", || {
        let log = Log::default();
        let inner = sandbar_agent::ScriptedModel::new([
            costs(50, calls([("i1", "look", "{}")])),
            costs(60, calls([("i2", "look", "{}")])),
            costs(1, says("never")),
        ]);
        let outer = sandbar_agent::ScriptedModel::new([
            costs(10, calls([("o1", "helper", r#"{"input":"x"}"#)])),
            costs(1, says("never")),
        ]);
        let worker = Agent::new("worker").tool(echo("look", &log)).model(inner.clone());
        let boss = Agent::new("boss").tool(worker.as_tool("helper", "Helps.")).model(outer.clone());
        Scene::new(boss, outer).model(inner).config(RunConfig::new().budget(Budget::new().tokens(100))).log(log)
    })
    .await;
}
