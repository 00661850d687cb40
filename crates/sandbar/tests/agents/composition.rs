//! Several agents in a run: handoffs, agents as tools, and approvals in nested runs.

use sandbar::{
    RunState,
    mock::{Conversation, Script, Turn, When, item},
    prelude::*,
    sandbox::User,
};
use serde_json::{Value, json};

use crate::rig::{Rig, call, done, exec, exited, news};

/// The turns of the agent whose instructions contain this word.
fn of(word: &str, turns: impl IntoIterator<Item = impl Into<Turn>>) -> Conversation {
    turns.into_iter().fold(Conversation::new().name(word).when(When::any().instructions(word)), Conversation::turn)
}

fn worker(rig: &Rig, name: &str) -> SandboxAgent {
    SandboxAgent::new(name).instructions(format!("I am {name}.")).model(rig.model()).capabilities([Shell::new()])
}

fn plain(rig: &Rig, name: &str) -> Agent {
    Agent::new(name).instructions(format!("I am {name}.")).model(rig.model())
}

/// The tool outputs in the last request of the agent whose instructions contain this word.
fn outputs_of(rig: &Rig, word: &str) -> Vec<String> {
    let bodies = rig.bodies();
    let asked = bodies.iter().rev().find(|body| body["instructions"].as_str().is_some_and(|text| text.contains(word)));
    let input = asked.expect("it was asked")["input"].as_array().cloned().unwrap_or_default();
    input
        .iter()
        .filter(|item| item["type"] == "function_call_output")
        .map(|item| item["output"].as_str().unwrap_or_default().to_owned())
        .collect()
}

fn ask(tool: &str) -> Value {
    call(tool, json!({ "input": "Do it." }))
}

#[tokio::test]
async fn a_plain_agent_hands_over_to_one_with_a_machine() {
    let rig = Rig::new(
        Script::new()
            .conversation(of("I am triage.", [call("transfer_to_fixer", json!({}))]))
            .conversation(of("I am fixer.", [exec("cat task"), done()])),
    );
    let fixer = worker(&rig, "fixer").manifest(Manifest::new().file("task", "fix it\n"));
    let triage = plain(&rig, "triage").handoff(&fixer);
    let result = run(&triage, "Go.").sandbox(rig.sandbox()).await.expect("it ends well");
    assert_eq!((result.final_output(), result.last_agent()), ("Done.".to_owned(), "fixer"));
    assert_eq!(rig.tool_names(0), ["transfer_to_fixer"]);
    assert_eq!(rig.tool_names(1), ["exec_command", "write_stdin"]);
    assert!(!rig.prompt(0).contains("# Filesystem") && rig.prompt(1).contains("# Filesystem"));
    assert_eq!(news(&outputs_of(&rig, "I am fixer.")[1]), exited(0, "fix it\n"));
    rig.leaves_nothing().await;
}

fn relay(rig: &Rig) -> SandboxAgent {
    let second = worker(rig, "second").manifest(Manifest::new().file("of_second", ""));
    worker(rig, "first").manifest(Manifest::new().file("of_first", "")).handoff(second)
}

fn relay_script() -> Rig {
    Rig::new(
        Script::new()
            .conversation(of("I am first.", [exec("touch made; ls"), call("transfer_to_second", json!({}))]))
            .conversation(of("I am second.", [exec("ls"), done()])),
    )
}

#[tokio::test]
async fn agents_that_hand_over_have_a_machine_each() {
    let rig = relay_script();
    run(relay(&rig), "Go.").sandbox(rig.sandbox()).await.expect("it ends well");
    let outputs = outputs_of(&rig, "I am second.");
    assert_eq!(news(&outputs[0]), exited(0, "made\nof_first\n"));
    assert_eq!(news(&outputs[2]), exited(0, "of_second\n"));
    rig.leaves_nothing().await;
}

#[tokio::test]
async fn agents_that_hand_over_share_the_callers_session() {
    let rig = relay_script();
    let session = rig.session(Manifest::new().file("of_caller", "")).await;
    run(relay(&rig), "Go.").sandbox(&session).await.expect("it ends well");
    assert_eq!(news(&outputs_of(&rig, "I am second.")[2]), exited(0, "made\nof_caller\n"));
    session.delete().await.expect("it ends");
    rig.leaves_nothing().await;
}

#[tokio::test]
async fn a_coordinator_and_a_reviewer_share_a_session_as_separate_users() {
    let look = "id -un; cat plans/plan.md; echo x >> plans/plan.md || echo kept; echo fine > reviews/first; \
                stat -c %U plans/plan.md reviews/first";
    let rig = Rig::new(
        Script::new()
            .conversation(of(
                "I am coordinator.",
                [exec("id -un; echo step one > plans/plan.md"), call("transfer_to_reviewer", json!({}))],
            ))
            .conversation(of("I am reviewer.", [exec(look), done()])),
    );
    let manifest = Manifest::new()
        .user(User::new("coordinator"))
        .user(User::new("reviewer"))
        .entry("plans", Dir::new().mode(0o775).group("coordinator"))
        .entry("reviews", Dir::new().mode(0o775).group("reviewer"));
    let session = rig.session(manifest).await;
    let reviewer = worker(&rig, "reviewer").run_as("reviewer");
    let coordinator = worker(&rig, "coordinator").run_as("coordinator").handoff(reviewer);
    run(&coordinator, "Go.").sandbox(&session).await.expect("it ends well");
    let outputs = outputs_of(&rig, "I am reviewer.");
    assert_eq!(news(&outputs[0]), exited(0, "coordinator\n"));
    let seen = news(&outputs[2]);
    assert!(seen.contains("reviewer\nstep one\n") && seen.contains("denied"), "{seen}");
    assert!(seen.contains("kept\ncoordinator\nreviewer\n"), "{seen}");
    session.delete().await.expect("it ends");
    rig.leaves_nothing().await;
}

#[tokio::test]
async fn an_agent_finds_its_machine_unchanged_after_a_handoff_back() {
    let rig = Rig::new(
        Script::new()
            .conversation(of(
                "I am first.",
                [exec("touch made"), call("transfer_to_second", json!({})), exec("ls"), done()],
            ))
            .conversation(of("I am second.", [call("transfer_to_first", json!({}))])),
    );
    let first = worker(&rig, "first");
    let second = worker(&rig, "second").handoff(Handoff::to_named("first"));
    let first = first.handoff(second);
    run(&first, "Go.").sandbox(rig.sandbox()).await.expect("it ends well");
    assert_eq!(news(outputs_of(&rig, "I am first.").last().expect("an answer")), exited(0, "made\n"));
    rig.leaves_nothing().await;
}

#[tokio::test]
async fn an_agent_as_a_tool_has_its_own_machine_another_or_that_of_its_caller() {
    let rig = Rig::new(
        Script::new()
            .conversation(of(
                "I am boss.",
                [exec("touch of_boss"), ask("own"), ask("other"), ask("shared"), exec("ls"), done()],
            ))
            .conversation(of("I am own.", [exec("ls; touch of_own"), item::text("own done")]))
            .conversation(of("I am other.", [exec("ls; touch of_other"), item::text("other done")]))
            .conversation(of("I am shared.", [exec("ls; touch of_shared"), item::text("shared done")])),
    );
    let elsewhere = rig.session(Manifest::new().file("elsewhere", "")).await;
    let boss = worker(&rig, "boss")
        .tool(worker(&rig, "own").as_tool("own", "Its own."))
        .tool(worker(&rig, "other").as_tool("other", "Another.").sandbox(&elsewhere))
        .tool(worker(&rig, "shared").as_tool("shared", "Mine.").share_place());
    run(&boss, "Go.").sandbox(rig.sandbox()).await.expect("it ends well");
    assert_eq!(news(&outputs_of(&rig, "I am own.")[0]), exited(0, ""));
    assert_eq!(news(&outputs_of(&rig, "I am other.")[0]), exited(0, "elsewhere\n"));
    assert_eq!(news(&outputs_of(&rig, "I am shared.")[0]), exited(0, "of_boss\n"));
    let boss = outputs_of(&rig, "I am boss.");
    assert_eq!(boss[1..4], ["own done", "other done", "shared done"]);
    assert_eq!(news(&boss[4]), exited(0, "of_boss\nof_shared\n"));
    assert!(elsewhere.running().await.expect("it answers"));
    elsewhere.delete().await.expect("it ends");
    rig.leaves_nothing().await;
}

#[tokio::test]
async fn the_model_reads_that_there_is_no_session_to_share() {
    let rig = Rig::new(
        Script::new()
            .conversation(of("I am boss.", [ask("shared"), done()]))
            .conversation(of("I am shared.", [done()])),
    );
    let boss = plain(&rig, "boss").tool(worker(&rig, "shared").as_tool("shared", "Mine.").share_place());
    run(&boss, "Go.").sandbox(rig.sandbox()).await.expect("it ends well");
    let message = &outputs_of(&rig, "I am boss.")[0];
    assert!(message.contains("\"boss\" has no environment session that could be shared"), "{message}");
    rig.leaves_nothing().await;
}

#[tokio::test]
async fn agents_as_tools_work_side_by_side() {
    let workers = ["ann", "bob", "cid"];
    let calls = Turn::new(workers.map(ask));
    let mut script = Script::new().conversation(of("I am boss.", [calls, Turn::from(done())]));
    for name in workers {
        script = script.conversation(of(
            &format!("I am {name}."),
            [exec(&format!("echo {name} > f; sleep 0.3; cat f")), item::text(name)],
        ));
    }
    let rig = Rig::new(script);
    let boss = workers
        .iter()
        .fold(plain(&rig, "boss"), |boss, name| boss.tool(worker(&rig, name).as_tool(*name, "A worker.")));
    run(&boss, "Go.").sandbox(rig.sandbox()).await.expect("it ends well");
    assert_eq!(outputs_of(&rig, "I am boss."), workers);
    for name in workers {
        assert_eq!(news(&outputs_of(&rig, &format!("I am {name}."))[0]), exited(0, &format!("{name}\n")));
    }
    rig.leaves_nothing().await;
}

#[tokio::test]
async fn approvals_of_a_nested_run_surface_and_its_machine_waits() {
    for shares in [false, true] {
        let rig = Rig::new(
            Script::new()
                .conversation(of("I am boss.", [exec("touch of_boss"), ask("inner"), done()]))
                .conversation(of("I am inner.", [exec("touch made"), exec("ls #ask"), item::text("inner done")])),
        );
        let careful = Approval::when(|_call, arguments| async move {
            arguments["cmd"].as_str().is_none_or(|cmd| cmd.contains("#ask"))
        });
        let inner = worker(&rig, "inner").capabilities([Shell::new().approval(careful)]).as_tool("inner", "Inner.");
        let boss = worker(&rig, "boss").tool(if shares { inner.share_place() } else { inner });
        let sandbox = rig.sandbox();
        let paused = run(&boss, "Go.").sandbox(&sandbox).await.expect("it pauses");
        assert_eq!(*paused.stop(), Stop::Interrupted);
        let mut state = RunState::from_json(&paused.to_state().to_json().expect("written")).expect("read");
        let asked = state.interruptions();
        assert_eq!((asked.len(), &*asked[0].tool), (1, "exec_command"));
        state.approve(&asked[0]).expect("it waits");
        run(&boss, state).sandbox(&sandbox).await.expect("it ends well");
        let found = if shares { "made\nof_boss\n" } else { "made\n" };
        assert_eq!(news(&outputs_of(&rig, "I am inner.")[1]), exited(0, found));
        assert_eq!(outputs_of(&rig, "I am boss.")[1], "inner done");
        rig.leaves_nothing().await;
    }
}

#[tokio::test]
async fn an_agent_as_a_tool_in_a_shared_session_registers_its_stop_hook_once() {
    let rig = Rig::new(
        Script::new()
            .conversation(of("I am boss.", [ask("inner"), ask("inner"), done()]))
            .conversation(of("I am inner.", [item::text("inner done")])),
    );
    let watch = crate::capabilities::Watch::default();
    let inner = worker(&rig, "inner").capability(watch.clone());
    let boss = worker(&rig, "boss").tool(inner.as_tool("inner", "Inner.").share_place());
    run(&boss, "Go.").sandbox(rig.sandbox()).await.expect("it ends well");
    assert_eq!(watch.counts(), (2, 2, 1));
    rig.leaves_nothing().await;
}
