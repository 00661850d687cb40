//! Outputs that an output guardrail refused.

use sandbar_agent::{
    Agent, Recovery, RunConfig, RunItemKind, Stop,
    agent::ToolUse,
    guardrail::{Finding, OutputGuardrail},
    run,
};

use crate::scene::{Log, calls, echo, reload, says, script};

fn no_secrets() -> OutputGuardrail {
    OutputGuardrail::new("no secrets", |check| async move {
        Ok(if check.output.to_string().contains("hunter2") { Finding::trip("secret") } else { Finding::pass() })
    })
}

#[tokio::test]
async fn a_run_whose_answer_was_refused_does_not_end_well_with_an_empty_one() {
    let agent = Agent::new("a").output_guardrail(no_secrets()).model(script([says("hunter2"), says("better")]));
    let error = run(&agent, "go").await.expect_err("refused");
    assert_eq!(error.error().code(), "tripwire");
    // Either the guardrail trips again, or the model is asked again; there is no empty output.
    let taken_up = run(&agent, reload(&error.state())).await;
    if let Ok(result) = taken_up {
        assert_ne!((result.stop(), result.final_output().as_str()), (&Stop::Finished, ""));
    }
}

#[tokio::test]
async fn a_refused_tool_output_is_not_in_the_saved_run() {
    let log = Log::default();
    let agent = Agent::new("a")
        .tool(echo("look", &log))
        .tool_use(ToolUse::StopOnFirst)
        .output_guardrail(no_secrets())
        .model(script([calls([("c1", "look", r#"{"p":"x"}"#)])]));
    // The tool of the scene repeats its arguments, so the call would contain the secret; this test has its own tool.
    let leak =
        sandbar_agent::FunctionTool::raw("leak", "Leaks.", crate::scene::open_schema(), |_, _| async { "hunter2" });
    let agent = agent.tool(leak.lenient()).model(script([calls([("c1", "leak", "{}")])]));
    let error = run(&agent, "go").await.expect_err("refused");
    assert_eq!(error.error().code(), "tripwire");
    assert!(error.run().items().iter().all(|item| !format!("{item:?}").contains("hunter2")));
    assert!(!error.state().to_json().expect("saved").contains("hunter2"), "the saved run still has it");
}

#[tokio::test]
async fn a_refused_way_out_is_taken_out_and_what_the_model_said_before_stays() {
    let log = Log::default();
    let mut talk = says("I will look.");
    talk.extend(calls([("c1", "look", "{}")]));
    let agent = Agent::new("a").tool(echo("look", &log)).output_guardrail(no_secrets()).model(script([talk]));
    let config = RunConfig::new().max_turns(Some(1)).on_max_turns(|_| async { Some(Recovery::with("hunter2")) });
    let error = run(&agent, "go").config(config).await.expect_err("refused");
    let said: Vec<String> = error
        .run()
        .items()
        .iter()
        .filter(|item| item.kind == RunItemKind::Message)
        .map(|item| format!("{:?}", item.raw))
        .collect();
    assert!(said.iter().all(|text| !text.contains("hunter2")), "the refused output stays: {said:?}");
    assert!(said.iter().any(|text| text.contains("I will look.")), "another message was taken out: {said:?}");
}
