//! Runs that pause, are saved, and resume on the same machine.

use sandbar::{RunState, prelude::*};
use serde_json::json;

use crate::rig::{Rig, call, done, eventually, exec, exited, full, news};

/// An agent whose commands need approval if they contain `ask`.
fn careful(rig: &Rig) -> SandboxAgent {
    let ask =
        Approval::when(
            |_call, arguments| async move { arguments["cmd"].as_str().is_none_or(|cmd| cmd.contains("ask")) },
        );
    rig.agent().capabilities([Shell::new().approval(ask)])
}

fn saved(paused: &RunResult) -> RunState {
    assert_eq!(*paused.stop(), Stop::Interrupted);
    let mut state = RunState::from_json(&paused.to_state().to_json().expect("written")).expect("read");
    for call in state.interruptions() {
        state.approve(&call).expect("it waits");
    }
    state
}

fn script() -> Rig {
    Rig::turns([
        call("exec_command", json!({ "cmd": "echo before > file; exec cat", "tty": true, "yield_time_ms": 0 })),
        exec("echo ask; until grep -q . file; do sleep 0.1; done 2>/dev/null; cat file"),
        call("write_stdin", json!({ "session_id": 1000, "chars": "still here\n", "yield_time_ms": 30000 })),
        done(),
    ])
}

#[tokio::test]
async fn a_run_resumes_its_live_session_with_its_files_and_processes() {
    let rig = script();
    let sandbox = rig.sandbox();
    let agent = careful(&rig);
    let state = saved(&run(&agent, "Go.").sandbox(&sandbox).await.expect("it pauses"));
    assert_eq!(rig.machines(), 1);
    // Every clone of the configuration has the session.
    let result = run(&agent, state).sandbox(sandbox.clone()).await.expect("it ends well");
    assert_eq!(result.final_output(), "Done.");
    let outputs = rig.texts();
    assert_eq!(news(&outputs[1]), exited(0, "ask\nbefore\n"));
    assert!(outputs[2].contains("still here"), "{}", outputs[2]);
    rig.leaves_nothing().await;
}

#[tokio::test]
async fn a_run_whose_session_is_lost_is_refused() {
    let rig = script();
    let agent = careful(&rig);
    let first = rig.sandbox();
    let state = saved(&run(&agent, "Go.").sandbox(&first).await.expect("it pauses"));
    // The session is alive, but another configuration cannot reach it.
    let error = run(&agent, state.clone()).sandbox(rig.sandbox()).await.expect_err("it fails");
    let message = full(&error);
    assert!(message.contains("SandboxRunConfig") || message.contains("detached"), "{message}");
    drop(first);
    eventually("the machine is gone", || rig.machines() == 0).await;
    let error = run(&agent, state).sandbox(rig.sandbox()).await.expect_err("it fails");
    let message = full(&error);
    assert!(message.contains("its machine is gone"), "{message}");
    rig.leaves_nothing().await;
}

#[tokio::test]
async fn a_detached_machine_is_found_again_by_another_configuration() {
    let rig = Rig::turns([exec("echo before > file"), exec("echo ask; cat file"), done()]);
    let agent = careful(&rig);
    let detached = || rig.sandbox().machine(MachineSpec::default().lifetime(Lifetime::Detached));
    let state = saved(&run(&agent, "Go.").sandbox(detached()).await.expect("it pauses"));
    assert_eq!(rig.machines(), 1);
    run(&agent, state).sandbox(detached()).await.expect("it ends well");
    assert_eq!(news(&rig.texts()[1]), exited(0, "ask\nbefore\n"));
    rig.leaves_nothing().await;
}

#[tokio::test]
async fn retained_sessions_can_be_released() {
    let rig = script();
    let sandbox = rig.sandbox();
    let paused = run(careful(&rig), "Go.").sandbox(&sandbox).await.expect("it pauses");
    assert_eq!(rig.machines(), 1);
    sandbox.release().await.expect("released");
    assert_eq!(rig.machines(), 0);
    let error = run(careful(&rig), saved(&paused)).sandbox(&sandbox).await.expect_err("it fails");
    assert!(full(&error).contains("its machine is gone"), "{}", full(&error));
    rig.leaves_nothing().await;
}

#[tokio::test]
async fn a_finished_run_also_removes_detached_machines_that_no_agent_resumed() {
    use sandbar::mock::{Conversation, Script, When};

    let of = |word: &str| Conversation::new().when(When::any().instructions(word));
    let rig = Rig::new(
        Script::new()
            .conversation(of("I am first.").turn(exec("echo one")).turn(call("transfer_to_second", json!({}))))
            .conversation(of("I am second.").turn(exec("echo ask")).turn(done())),
    );
    let second = careful(&rig).renamed("second").instructions("I am second.");
    let first = careful(&rig).renamed("first").instructions("I am first.").handoff(&second);
    let detached = || rig.sandbox().machine(MachineSpec::default().lifetime(Lifetime::Detached));
    let state = saved(&run(&first, "Go.").sandbox(detached()).await.expect("it pauses"));
    assert_eq!(rig.machines(), 2);
    run(&first, state).sandbox(detached()).await.expect("it ends well");
    rig.leaves_nothing().await;
}

#[test]
fn machines_end_with_the_runtime_that_created_them() {
    let rig = script();
    let sandbox = rig.sandbox();
    let agent = careful(&rig);
    let paused = run(&agent, "Go.").sandbox(&sandbox).blocking().expect("it pauses");
    let error = run(&agent, saved(&paused)).sandbox(&sandbox).blocking().expect_err("it fails");
    assert!(full(&error).contains("its machine is gone"), "{}", full(&error));
    rig.well_asked();
}

#[tokio::test]
async fn secrets_are_neither_in_prompts_nor_in_saved_runs() {
    let rig = Rig::turns([
        exec("test \"$TOKEN\" = hunter2-hunter2 && echo known"),
        exec("echo ask; test -n \"$TOKEN\""),
        done(),
    ]);
    let manifest = Manifest::new().env("TOKEN", EnvValue::secret("token")).env("PLAIN", "plain");
    let sandbox = rig.sandbox().manifest(manifest).secrets(SecretStore::new().with("token", "hunter2-hunter2"));
    let agent = careful(&rig);
    let paused = run(&agent, "Go.").sandbox(&sandbox).await.expect("it pauses");
    assert_eq!(news(&rig.texts()[0]), exited(0, "known\n"));
    let json = paused.to_state().to_json().expect("written").replace("= hunter2-hunter2 &&", "");
    assert!(!json.contains("hunter2"), "{json}");
    assert!(!rig.prompt(0).contains("hunter2"));
    assert!(!format!("{sandbox:?} {agent:?}").contains("hunter2"));
    run(&agent, saved(&paused)).sandbox(&sandbox).await.expect("it ends well");
    rig.leaves_nothing().await;
}

#[tokio::test]
async fn a_callers_session_is_not_in_the_saved_run_and_given_again() {
    let rig = script();
    let session = rig.session(Manifest::new()).await;
    let agent = careful(&rig);
    let paused = run(&agent, "Go.").sandbox(&session).await.expect("it pauses");
    let json = paused.to_state().to_json().expect("written");
    assert!(!json.contains(session.id()), "{json}");
    run(&agent, saved(&paused)).sandbox(&session).await.expect("it ends well");
    assert_eq!(news(&rig.texts()[1]), exited(0, "ask\nbefore\n"));
    assert!(session.running().await.expect("it answers"));
    session.delete().await.expect("it ends");
    rig.leaves_nothing().await;
}

#[tokio::test]
async fn a_saved_run_that_was_tampered_with_is_refused() {
    let rig = script();
    let sandbox = rig.sandbox();
    let agent = careful(&rig);
    let paused = run(&agent, "Go.").sandbox(&sandbox).await.expect("it pauses");
    let json: serde_json::Value = serde_json::from_str(&paused.to_state().to_json().expect("written")).expect("JSON");
    for (wrong, message) in
        [(json!("nonsense"), "the sandbox in the saved run"), (json!({ "version": 99 }), "is of form 99")]
    {
        let text = json.to_string().replace(&json["run"]["environment"].to_string(), &wrong.to_string());
        let text = text.replace(&json["environment"].to_string(), &wrong.to_string());
        let Ok(mut state) = RunState::from_json(&text) else { continue };
        for call in state.interruptions() {
            state.approve(&call).expect("it waits");
        }
        let error = run(&agent, state).sandbox(&sandbox).await.expect_err("it fails");
        assert!(full(&error).contains(message), "{}", full(&error));
    }
    sandbox.release().await.expect("released");
    rig.leaves_nothing().await;
}
