//! The ends of runs: in every case, nothing of the run is left.

use std::time::Duration;

use sandbar::{
    mock::{Fault, Script, Turn},
    prelude::*,
};

use crate::rig::{Rig, call, done, eventually, exec, full, is_running, own_word};

/// A command that no other test runs.
fn marked(number: u32) -> String {
    format!("sleep {}", own_word(number))
}

/// Whether the command of this number runs.
fn runs(number: u32) -> bool {
    is_running(&own_word(number))
}

#[tokio::test]
async fn a_finished_run_leaves_no_process_and_no_directory() {
    let rig = Rig::turns([exec(&format!("{} & echo begun", marked(101))), done()]);
    let before = leftovers();
    rig.run(&rig.agent()).await;
    assert!(!runs(101));
    let is_as_before = || leftovers().iter().all(|name| before.contains(name));
    eventually("the temporary directory is as before", is_as_before).await;
    rig.leaves_nothing().await;
}

/// Names of the temporary directory, without those that other tests share and leave there.
fn leftovers() -> Vec<String> {
    let is_shared = |name: &str| name.bytes().all(|byte| byte.is_ascii_digit()) || name == "test-gc";
    let entries = std::fs::read_dir(std::env::temp_dir()).expect("a directory").flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| name.starts_with("sandbar") && !name.strip_prefix("sandbar-").is_some_and(is_shared)).collect()
}

#[tokio::test]
async fn a_failed_run_leaves_nothing_and_cannot_be_resumed_in_its_workspace() {
    let broken = Turn::new([done()]).fault(Fault::status(400));
    let rig = Rig::new(Script::new().turn(exec(&format!("{} & echo begun", marked(102)))).turn(broken));
    let sandbox = rig.sandbox();
    let error = run(rig.agent(), "Go.").sandbox(&sandbox).await.expect_err("it fails");
    assert!(!runs(102));
    assert_eq!(rig.machines(), 0);
    let again = run(rig.agent(), error.state()).sandbox(&sandbox).await.expect_err("it fails again");
    assert!(full(&again).contains("its session was removed when the run failed"), "{}", full(&again));
    eventually("no machine is left", || rig.machines() == 0).await;
}

#[tokio::test]
async fn a_run_that_is_cancelled_during_a_command_ends_at_once_and_leaves_nothing() {
    let rig =
        Rig::turns([call("exec_command", serde_json::json!({ "cmd": marked(103), "yield_time_ms": 30000 })), done()]);
    let mut stream = run(rig.agent(), "Go.").sandbox(rig.sandbox()).stream();
    let canceller = stream.canceller();
    let cancel = tokio::spawn(async move {
        eventually("the command runs", || runs(103)).await;
        canceller.now();
        std::time::Instant::now()
    });
    while stream.next().await.is_some() {}
    let result = stream.result().await.expect("it was cancelled");
    assert_eq!(*result.stop(), Stop::Cancelled);
    let asked = cancel.await.expect("it cancels");
    assert!(asked.elapsed() < Duration::from_secs(25), "the run waited for the command");
    drop(result);
    eventually("the command is gone", || !runs(103)).await;
    rig.leaves_nothing().await;
}

#[tokio::test]
async fn a_cancelled_run_can_be_resumed_and_the_model_reads_about_the_interruption() {
    let rig = Rig::turns([
        call(
            "exec_command",
            serde_json::json!({ "cmd": format!("echo x > file; {}", marked(104)), "yield_time_ms": 30000 }),
        ),
        exec("cat file"),
        done(),
    ]);
    let sandbox = rig.sandbox();
    let stream = run(rig.agent(), "Go.").sandbox(&sandbox).stream();
    let canceller = stream.canceller();
    let cancel = tokio::spawn(async move {
        eventually("the command runs", || runs(104)).await;
        canceller.now();
    });
    let result = stream.result().await.expect("it was cancelled");
    cancel.await.expect("it cancels");
    run(rig.agent(), result.to_state()).sandbox(&sandbox).await.expect("it ends well");
    let outputs = rig.texts();
    assert!(outputs[0].starts_with("The call was interrupted before it answered."), "{}", outputs[0]);
    assert!(outputs[1].ends_with("Output:\nx\n"), "{}", outputs[1]);
    rig.leaves_nothing().await;
}

#[tokio::test]
async fn a_run_that_is_dropped_during_a_command_leaves_nothing_even_if_machines_are_detached() {
    for (number, lifetime) in [(105, Lifetime::WithOwner), (106, Lifetime::Detached)] {
        let rig = Rig::turns([
            call("exec_command", serde_json::json!({ "cmd": marked(number), "yield_time_ms": 30000 })),
            done(),
        ]);
        let sandbox = rig.sandbox().machine(MachineSpec::default().lifetime(lifetime));
        let agent = rig.agent();
        let running = tokio::spawn(async move { run(&agent, "Go.").sandbox(sandbox).await.map(drop) });
        eventually("the command runs", || runs(number)).await;
        running.abort();
        eventually("the command is gone", || !runs(number)).await;
        rig.leaves_nothing().await;
    }
}

#[tokio::test]
async fn the_model_reads_about_the_timeout_of_a_nested_run_and_its_machine_is_removed() {
    use sandbar::mock::{Conversation, When, item};

    let of = |word: &str| Conversation::new().when(When::any().instructions(word));
    let slow = call("exec_command", serde_json::json!({ "cmd": marked(108), "yield_time_ms": 30000 }));
    let rig = Rig::new(
        Script::new()
            .conversation(
                of("I am boss.")
                    .turn(call("inner", serde_json::json!({ "input": "x" })))
                    .turn(exec("echo on"))
                    .turn(done()),
            )
            .conversation(of("I am inner.").turn(slow).turn(item::text("late"))),
    );
    let inner = rig.agent().renamed("inner").instructions("I am inner.").as_tool("inner", "Inner.");
    let boss = rig.agent().instructions("I am boss.").tool(inner.timeout(Duration::from_secs(1)));
    rig.run(&boss).await;
    let outputs = rig.texts();
    assert_eq!(outputs[0], "Tool 'inner' timed out after 1 seconds.");
    assert!(outputs[1].ends_with("Output:\non\n"), "{}", outputs[1]);
    eventually("the command is gone", || !runs(108)).await;
    rig.leaves_nothing().await;
}

#[tokio::test]
async fn the_model_reads_that_the_caller_closed_the_session_during_a_run() {
    let rig = Rig::turns([call("close", serde_json::json!({})), exec("echo after"), done()]);
    let session = rig.session(Manifest::new()).await;
    let closing = session.clone();
    let close = FunctionTool::new("close", "Closes.", move |_call: ToolContext, _none: sandbar::agent::NoArguments| {
        let session = closing.clone();
        async move { session.delete().await.map_err(|error| error.to_string()) }
    });
    run(rig.agent().tool(close), "Go.").sandbox(&session).await.expect("it ends well");
    assert!(
        rig.texts()[1].contains("Process exited with code 1") && rig.texts()[1].contains("closed"),
        "{}",
        rig.texts()[1]
    );
    rig.leaves_nothing().await;
}

#[tokio::test]
async fn a_run_that_is_dropped_during_its_clean_up_still_removes_detached_machines() {
    /// A capability with a slow stop hook.
    #[derive(Debug)]
    struct Slow;

    #[async_trait]
    impl Capability for Slow {
        fn kind(&self) -> &str {
            "slow"
        }

        async fn equip(&self, _agent_session: &AgentSession) -> Result<CapabilityKit, SandboxError> {
            Ok(CapabilityKit::new())
        }

        async fn before_stop(&self, session: &SandboxSession) -> Result<(), SandboxError> {
            session.exec(Exec::new(["sleep", &own_word(107)]).timeout(Duration::from_secs(20))).await.map(drop)
        }
    }

    let rig = Rig::turns([done()]);
    let sandbox = rig.sandbox().machine(MachineSpec::default().lifetime(Lifetime::Detached));
    let agent = rig.agent().capability(Slow);
    let running = tokio::spawn(async move { run(&agent, "Go.").sandbox(sandbox).await.map(drop) });
    eventually("the stop hook runs", || runs(107)).await;
    running.abort();
    rig.leaves_nothing().await;
}
