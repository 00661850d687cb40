//! Compaction of long conversations.

use sandbar::{
    RunState,
    capability::CompactionPolicy,
    mock::{Conversation, Fault, Script, Turn, When, item},
    prelude::*,
};
use serde_json::{Value, json};

use crate::rig::{Rig, call, done};

/// The shortest possible call, because its length counts.
fn exec(cmd: &str) -> Value {
    call("exec_command", json!({ "cmd": cmd }))
}

#[tokio::test]
async fn a_responses_server_compacts_at_the_models_threshold() {
    let table = [
        ("gpt-5.5", Compaction::new(), 942_818),
        ("gpt-5-2025-08-07", Compaction::new(), 360_000),
        ("some-new-model", Compaction::new(), 240_000),
        ("gpt-5.5", Compaction::new().threshold(1000), 1000),
        ("gpt-5.5", Compaction::new().policy(CompactionPolicy::Dynamic { window: Some(100_000), share: 500 }), 50_000),
    ];
    for (model, compaction, threshold) in table {
        let rig = Rig::turns([done()]);
        let model = Responses::new(model).base_url(rig.server.base_url());
        rig.run(&rig.agent().model(model).capabilities([compaction])).await;
        let wanted = json!([{ "type": "compaction", "compact_threshold": threshold }]);
        assert_eq!(rig.body(0)["context_management"], wanted);
        rig.leaves_nothing().await;
    }
}

#[tokio::test]
async fn no_compaction_is_requested_without_the_capability_or_from_a_chat_server() {
    let rig = Rig::turns([done()]);
    rig.run(&rig.agent().capabilities([Shell::new()])).await;
    rig.run(&rig.agent().model(rig.chat())).await;
    assert!(rig.bodies().iter().all(|body| body.get("context_management").is_none()));
    rig.leaves_nothing().await;
}

fn kinds(body: &Value) -> Vec<String> {
    let items = body["input"].as_array().expect("a list");
    items.iter().map(|item| item["type"].as_str().unwrap_or("message").to_owned()).collect()
}

#[tokio::test]
async fn compacted_items_are_not_sent_again() {
    let rig = Rig::new(
        Script::new()
            .turn(exec("echo one"))
            .turn(Turn::new([item::compaction("opaque"), exec("echo two")]))
            .turn(exec("echo three"))
            .turn(done()),
    );
    let result = rig.run(&rig.agent()).await;
    assert_eq!(kinds(&rig.body(1)), ["message", "function_call", "function_call_output"]);
    assert_eq!(kinds(&rig.body(2)), ["compaction", "function_call", "function_call_output"]);
    let last = ["compaction", "function_call", "function_call_output", "function_call", "function_call_output"];
    assert_eq!(kinds(&rig.body(3)), last);
    // The transcript of the run is complete.
    assert_eq!(result.new_items().len(), 8);
    rig.leaves_nothing().await;
}

#[tokio::test]
async fn the_callers_input_is_also_cut_at_a_compaction() {
    let rig = Rig::turns([done()]);
    let compacted: Item =
        serde_json::from_value(json!({ "type": "compaction", "id": "cmp_9", "encrypted_content": "x" }))
            .expect("an item");
    let input = vec![Item::user("long ago"), Item::assistant("indeed"), compacted, Item::user("Go.")];
    run(rig.agent(), input).sandbox(rig.sandbox()).await.expect("it ends well");
    assert_eq!(kinds(&rig.body(0)), ["compaction", "message"]);
    rig.leaves_nothing().await;
}

const SUMMED_UP: &str = "You sum up a conversation";

/// A conversation with about 700 tokens of output in each turn.
fn long_turns(count: usize) -> Conversation {
    let turns = (0..count).map(|number| exec(&format!("echo turn {number}; seq 1 700")));
    turns.chain([done()]).fold(Conversation::new().name("work"), Conversation::turn)
}

fn summaries(turn: impl Into<Turn>) -> Conversation {
    Conversation::new().name("summary").when(When::any().instructions(SUMMED_UP)).turn(turn)
}

fn is_summary(body: &Value) -> bool {
    body["messages"][0]["content"].as_str().is_some_and(|text| text.starts_with(SUMMED_UP))
}

fn roles(body: &Value) -> Vec<String> {
    let messages = body["messages"].as_array().expect("messages");
    messages.iter().map(|message| message["role"].as_str().unwrap_or_default().to_owned()).collect()
}

fn chat_agent(rig: &Rig, threshold: u64) -> SandboxAgent {
    let capabilities = Capabilities::none().with(Shell::new()).with(Compaction::new().threshold(threshold));
    rig.agent().model(rig.chat()).capabilities(capabilities)
}

#[tokio::test]
async fn a_chat_model_writes_a_summary_and_continues_with_it() {
    let summary = Turn::new([item::text("THE SUMMARY")]).tokens(1000, 10);
    let rig = Rig::new(Script::new().conversation(summaries(summary)).conversation(long_turns(12)));
    let result =
        run(chat_agent(&rig, 4500), "Count.").sandbox(rig.sandbox()).max_turns(20).await.expect("it ends well");
    assert_eq!(result.final_output(), "Done.");
    let bodies = rig.bodies();
    let summed: Vec<usize> = bodies.iter().enumerate().filter(|(_, body)| is_summary(body)).map(|(at, _)| at).collect();
    assert_eq!(summed.len(), 2, "two in twelve turns: {summed:?}");
    for at in summed {
        let asked = &bodies[at]["messages"][1]["content"].as_str().expect("a transcript").to_owned();
        assert!(asked.contains("User: Count.") && asked.contains("Agent calls exec_command: "), "{asked}");
        assert!(bodies[at].get("tools").is_none());
        // The message of the user, one summary, and the last turn.
        let after = &bodies[at + 1];
        assert_eq!(roles(after), ["system", "user", "user", "assistant", "tool"]);
        assert_eq!(after["messages"][1]["content"], "Count.");
        let output = after["messages"][2]["content"].as_str().expect("the summary");
        assert!(output.ends_with("\n\nTHE SUMMARY") && output.matches("THE SUMMARY").count() == 1, "{output}");
    }
    assert_eq!(result.usage().requests, bodies.len() as u64);
    // The transcript is complete: thirteen replies and twelve tool outputs.
    assert_eq!(result.new_items().len(), 25);
    rig.leaves_nothing().await;
}

#[tokio::test]
async fn a_summary_survives_being_saved() {
    let rig = Rig::new(
        Script::new().conversation(summaries(item::text("THE SUMMARY"))).conversation(
            (0..6)
                .map(|number| exec(&format!("echo turn {number}; seq 1 700")))
                .chain([call("exec_command", json!({ "cmd": "echo ask" })), done()])
                .fold(Conversation::new(), Conversation::turn),
        ),
    );
    let sandbox = rig.sandbox();
    let careful =
        Shell::new().approval(Approval::when(|_call, arguments| async move { arguments["cmd"] == "echo ask" }));
    let agent = rig
        .agent()
        .model(rig.chat())
        .capabilities(Capabilities::none().with(careful).with(Compaction::new().threshold(4500)));
    let paused = run(&agent, "Count.").sandbox(&sandbox).max_turns(20).await.expect("it pauses");
    let mut state = RunState::from_json(&paused.to_state().to_json().expect("written")).expect("read");
    state.approve(&state.interruptions()[0].clone()).expect("it waits");
    run(&agent, state).sandbox(&sandbox).await.expect("it ends well");
    let last = rig.bodies().pop().expect("questions");
    assert_eq!(roles(&last)[..3], ["system", "user", "user"]);
    assert!(last["messages"][2]["content"].as_str().is_some_and(|text| text.ends_with("THE SUMMARY")), "{last}");
    assert_eq!(rig.bodies().iter().filter(|body| is_summary(body)).count(), 1);
    rig.leaves_nothing().await;
}

#[tokio::test]
async fn a_run_continues_without_a_summary_if_the_summary_fails() {
    let broken = Turn::new([item::text("late")]).fault(Fault::status(400));
    let rig = Rig::new(Script::new().conversation(summaries(broken)).conversation(long_turns(5)));
    let result = run(chat_agent(&rig, 4500), "Count.").sandbox(rig.sandbox()).await.expect("it ends well");
    assert_eq!(result.final_output(), "Done.");
    let last = rig.bodies().pop().expect("questions");
    assert_eq!(roles(&last).iter().filter(|role| *role == "tool").count(), 5, "all of it is still there");
    rig.leaves_nothing().await;
}

#[tokio::test]
async fn long_user_messages_are_cut_and_summarised_only_once() {
    let rig = Rig::new(Script::new().conversation(summaries(item::text("S"))).conversation(long_turns(4)));
    // The message alone exceeds the threshold.
    let words = "word ".repeat(5000);
    let result = run(chat_agent(&rig, 6000), words).sandbox(rig.sandbox()).max_turns(20).await.expect("it ends well");
    assert_eq!(result.final_output(), "Done.");
    let count = rig.bodies().iter().filter(|body| is_summary(body)).count();
    assert_eq!(count, 1);
    rig.leaves_nothing().await;
}
