//! Calls that wait for approval.

use sandbar_agent::{Agent, Approval, RunConfig, RunState, ToolExt as _};

use crate::play::{Log, Scene, calls, check, echo, says, script};

fn approve_all(state: &mut RunState) {
    for call in state.interruptions() {
        state.approve(&call).expect("it waits");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_waits_for_approval() {
    check("approved", || {
        let log = Log::default();
        let model = script([calls([("c1", "deploy", r#"{"to":"prod"}"#)]), says("Done.")]);
        let agent = Agent::new("ops").model(model.clone()).tool(echo("deploy", &log).needs_approval());
        Scene::new(agent, model).decide(approve_all).log(log)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn calls_without_approval_are_made_at_once_and_only_once() {
    check("approved_among_others", || {
        let log = Log::default();
        let model =
            script([calls([("c1", "look", "{}"), ("c2", "deploy", "{}"), ("c3", "look", "{}")]), says("Done.")]);
        let agent = Agent::new("ops").tool(echo("look", &log)).tool(echo("deploy", &log).needs_approval());
        Scene::new(agent.model(model.clone()), model).decide(approve_all).log(log)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_model_reads_that_a_call_was_rejected() {
    check("rejected", || {
        let log = Log::default();
        let model = script([calls([("c1", "deploy", "{}"), ("c2", "deploy", "{}")]), says("Fine.")]);
        let agent = Agent::new("ops").model(model.clone()).tool(echo("deploy", &log).needs_approval());
        Scene::new(agent, model)
            .decide(|state| {
                let waiting = state.interruptions();
                state.reject(&waiting[0]).expect("it waits");
                state.reject_with(&waiting[1], "not on a Friday").expect("it waits");
            })
            .log(log)
    })
    .await;
    check("rejected_in_own_words", || {
        let log = Log::default();
        let model = script([calls([("c1", "deploy", "{}")]), says("Fine.")]);
        let agent = Agent::new("ops").model(model.clone()).tool(echo("deploy", &log).needs_approval());
        Scene::new(agent, model)
            .config(RunConfig::new().rejection(|call| format!("{} is off limits", call.tool)))
            .decide(|state| state.reject(&state.interruptions()[0].clone()).expect("it waits"))
            .log(log)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn calls_can_be_decided_one_by_one() {
    check("decided_one_by_one", || {
        let log = Log::default();
        let model = script([calls([("c1", "deploy", "{}"), ("c2", "deploy", "{}")]), says("Done.")]);
        let agent = Agent::new("ops").model(model.clone()).tool(echo("deploy", &log).needs_approval());
        Scene::new(agent, model)
            .decide(|state| state.approve(&state.interruptions()[1].clone()).expect("it waits"))
            .decide(approve_all)
            .log(log)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_decision_can_apply_to_all_later_calls() {
    check("approved_always", || {
        let log = Log::default();
        let model = script([calls([("c1", "deploy", "{}")]), calls([("c2", "deploy", "{}")]), says("Done.")]);
        let agent = Agent::new("ops").model(model.clone()).tool(echo("deploy", &log).needs_approval());
        Scene::new(agent, model)
            .decide(|state| state.approve_always(&state.interruptions()[0].clone()).expect("it waits"))
            .log(log)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn approval_can_depend_on_the_call() {
    check("approval_when", || {
        let log = Log::default();
        let model = script([
            calls([
                ("c1", "deploy", r#"{"to":"test"}"#),
                ("c2", "deploy", r#"{"to":"prod"}"#),
                ("c3", "deploy", "{broken"),
            ]),
            says("Done."),
        ]);
        let rule = Approval::when(|_, arguments| async move { arguments["to"] == "prod" });
        let agent = Agent::new("ops").model(model.clone()).tool(echo("deploy", &log).approval(rule));
        Scene::new(agent, model).decide(approve_all).log(log)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn approvals_inside_an_agent_used_as_a_tool_surface_outside() {
    check("nested_approval", || {
        let log = Log::default();
        let inner = script([calls([("i1", "look", "{}"), ("i2", "deploy", "{}")]), says("Deployed.")]);
        let outer = script([calls([("o1", "helper", r#"{"input":"deploy it"}"#)]), says("All done.")]);
        let worker = Agent::new("worker")
            .tool(echo("look", &log))
            .tool(echo("deploy", &log).needs_approval())
            .model(inner.clone());
        let boss = Agent::new("boss").model(outer.clone()).tool(worker.as_tool("helper", "Does things."));
        Scene::new(boss, outer).model(inner).decide(approve_all).log(log)
    })
    .await;
}
