//! Handoffs from one agent to another.

use sandbar_agent::{Agent, Handoff, handoff::InputFilter};

use crate::play::{Log, Scene, calls, check, echo, says, script};

#[tokio::test(start_paused = true)]
async fn the_next_agent_goes_on_with_the_whole_conversation() {
    check("handoff", || {
        let log = Log::default();
        let model =
            script([calls([("c1", "transfer_to_billing", "{}")]), calls([("c2", "look", "{}")]), says("Paid.")]);
        let billing = Agent::new("billing").instructions("Bills.").model(model.clone()).tool(echo("look", &log));
        let triage = Agent::new("triage").instructions("Sorts.").model(model.clone()).handoff(billing);
        Scene::new(triage, model).log(log)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn ordinary_calls_run_first_and_the_first_handoff_wins() {
    check("handoff_among_calls", || {
        let log = Log::default();
        let model = script([
            calls([("c1", "transfer_to_left", "{}"), ("c2", "look", "{}"), ("c3", "transfer_to_right", "{}")]),
            says("Here is left."),
        ]);
        let agent = Agent::new("fork")
            .handoff(Agent::new("left").model(model.clone()))
            .handoff(Agent::new("right").model(model.clone()))
            .tool(echo("look", &log));
        Scene::new(agent.model(model.clone()), model).log(log)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_filter_changes_what_the_next_agent_sees_and_not_what_happened() {
    check("handoff_filtered", || {
        let log = Log::default();
        let model = script([
            calls([("c1", "look", "{}")]),
            calls([("c2", "transfer_to_quiet", "{}")]),
            calls([("c3", "look", "{}")]),
            says("done"),
        ]);
        let quiet = Agent::new("quiet").model(model.clone()).tool(echo("look", &log));
        let loud = Agent::new("loud")
            .tool(echo("look", &log))
            .handoff(Handoff::to(quiet).filter(InputFilter::without_tools()))
            .model(model.clone());
        Scene::new(loud, model).log(log)
    })
    .await;
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Reason {
    reason: String,
}

#[tokio::test(start_paused = true)]
async fn a_handoff_can_carry_a_message_and_fail_on_a_broken_one() {
    check("handoff_with_input", || {
        let log = Log::default();
        let told = log.clone();
        let model = script([
            calls([("c1", "escalate", r#"{"wrong":1}"#)]),
            calls([("c2", "escalate", r#"{"reason":"angry"}"#)]),
            says("Calm down."),
        ]);
        let boss = Agent::new("boss").model(model.clone());
        let handoff = Handoff::to(boss).tool_name("escalate").description("Calls the boss.").with_input(
            move |_, input: Reason| {
                let told = told.clone();
                async move {
                    told.line(format!("escalated: {}", input.reason));
                    Ok(())
                }
            },
        );
        Scene::new(Agent::new("clerk").model(model.clone()).handoff(handoff), model).log(log)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn agents_can_hand_over_in_circles() {
    check("handoff_circle", || {
        let model = script([
            calls([("c1", "transfer_to_b", "{}")]),
            calls([("c2", "transfer_to_a", "{}")]),
            says("Back at a."),
        ]);
        let b = Agent::new("b").model(model.clone()).handoff(Handoff::to_named("a"));
        Scene::new(Agent::new("a").model(model.clone()).handoff(b), model)
    })
    .await;
}
