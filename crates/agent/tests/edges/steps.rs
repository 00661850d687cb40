//! Edge cases of calls, turns, cancellation and approvals.

use std::{num::NonZeroUsize, time::Duration};

use sandbar_agent::{
    Agent, BoxError, Enabled, FunctionTool, Handoff, HostedTool, Item, ModelError, OnFailure, RunConfig, ScriptedModel,
    Stop, ToolContext, ToolExt as _, Turn, agent::ToolUse, handoff::InputFilter, run,
};
use serde_json::Value;

use crate::scene::{Log, calls, echo, open_schema, reload, says, script, tampered};

fn failing() -> impl sandbar_agent::Tool + 'static {
    FunctionTool::raw("fail", "Fails.", open_schema(), |_: ToolContext, _: Value| async {
        Err::<String, BoxError>("broken".into())
    })
    .lenient()
    .on_failure(OnFailure::Raise)
}

#[tokio::test]
async fn a_call_that_was_never_begun_is_made_when_the_run_goes_on() {
    let log = Log::default();
    let model = script([calls([("c1", "fail", "{}"), ("c2", "look", "{}")]), says("done")]);
    let agent = Agent::new("a").tool(failing()).tool(echo("look", &log)).model(model.clone());
    let config = RunConfig::new().tool_concurrency(NonZeroUsize::MIN);
    let error = run(&agent, "go").config(config.clone()).await.expect_err("raised");
    assert_eq!(log.lines(), [""; 0], "one at a time, and the first has failed");
    run(&agent, reload(&error.state())).config(config).await.expect("it goes on");
    assert_eq!(log.lines(), ["look {}"], "the model read that the effect is unknown, but the call was never begun");
}

#[tokio::test(start_paused = true)]
async fn what_was_answered_before_a_cancel_is_kept() {
    let log = Log::default();
    let sleep = FunctionTool::raw("sleep", "Sleeps.", open_schema(), |_: ToolContext, _: Value| async {
        tokio::time::sleep(Duration::from_secs(3600)).await;
        "slept"
    })
    .lenient();
    let model = script([calls([("c1", "look", "{}"), ("c2", "sleep", "{}")]), says("done")]);
    let agent = Agent::new("a").tool(sleep).tool(echo("look", &log)).model(model.clone());
    let mut stream = run(&agent, "go").stream();
    while let Ok(Some(_)) = tokio::time::timeout(Duration::from_secs(1), stream.next()).await {}
    stream.cancel_now();
    let result = stream.result().await.expect("cancelled");
    run(&agent, reload(&result.to_state())).await.expect("it goes on");
    let answer =
        model.requests()[1].input.iter().find(|item| item.is_answer() && item.call_id() == Some("c1")).cloned();
    assert_eq!(answer.expect("an answer").text_field("output"), Some("look {}"));
}

#[tokio::test]
async fn an_interrupted_call_is_no_final_output() {
    let log = Log::default();
    let agent = Agent::new("a")
        .tool(echo("look", &log).needs_approval())
        .tool_use(ToolUse::StopOnFirst)
        .model(script([calls([("c1", "look", "{}")]), says("done")]));
    let paused = run(&agent, "go").await.expect("it waits");
    // The state that is saved if the process dies during the call.
    let begun = tampered(&paused.to_state(), |value| value["phase"]["calls"][0]["status"] = "begun".into());
    let result = run(&agent, begun.expect("a good state")).await.expect("it goes on");
    assert!(!result.final_output().contains("interrupted"), "{}", result.final_output());
}

#[tokio::test]
async fn cancelling_after_the_last_turn_is_no_failure() {
    let log = Log::default();
    let agent = Agent::new("a").tool(echo("look", &log)).model(script([calls([("c1", "look", "{}")]), says("done")]));
    let stream = run(&agent, "go").max_turns(1).stream();
    stream.cancel_after_turn();
    let result = stream.result().await.expect("stopped after its turn, as asked");
    assert_eq!(result.stop(), &Stop::Cancelled);
}

#[tokio::test]
async fn a_request_that_failed_for_good_is_counted_too() {
    let error = ModelError::Failed { code: None, message: "broken".to_owned() };
    let agent = Agent::new("a").model(ScriptedModel::new([Turn::Error(error)]));
    let error = run(&agent, "go").await.expect_err("it fails");
    assert_eq!(error.run().usage().requests, 1);
}

#[tokio::test]
async fn a_thread_that_is_named_when_a_run_is_taken_up_is_used() {
    let log = Log::default();
    let model = script([calls([("c1", "look", "{}")]), says("done")]);
    let agent = Agent::new("a").tool(echo("look", &log).needs_approval()).model(model.clone());
    let mut state = run(&agent, "go").await.expect("it waits").to_state();
    let call = state.interruptions().remove(0);
    state.approve(&call).expect("waits");
    run(&agent, state).conversation("conv_1").await.expect("it goes on");
    assert_eq!(model.requests()[1].conversation_id.as_deref(), Some("conv_1"), "it was ignored without a word");
}

#[tokio::test]
async fn a_hosted_tool_does_not_stand_in_for_a_function_of_the_same_name() {
    let log = Log::default();
    let model = script([calls([("c1", "web_search", "{}")]), says("done")]);
    let agent = Agent::new("a").tool(echo("web_search", &log)).tool(HostedTool::web_search()).model(model.clone());
    if run(&agent, "go").await.is_ok() {
        assert_eq!(log.lines(), ["web_search {}"]);
    }
}

#[tokio::test]
async fn a_call_of_a_tool_that_is_gone_can_still_be_refused() {
    let log = Log::default();
    let model = script([calls([("c1", "deploy", "{}")]), says("done")]);
    let agent = Agent::new("a").model(model);
    let with = agent.clone().tool(echo("deploy", &log).needs_approval());
    let without = agent.tool(echo("deploy", &log).needs_approval().enabled(Enabled::Never));
    let mut state = run(&with, "go").await.expect("it waits").to_state();
    let call = state.interruptions().remove(0);
    state.reject(&call).expect("waits");
    let result = run(&without, state).await.expect("nothing has to be called");
    assert_eq!(result.final_output(), "done");
}

#[tokio::test]
async fn a_reply_that_only_repeats_an_answered_call_is_no_final_answer() {
    let log = Log::default();
    let model = script([calls([("c1", "look", "{}")]), calls([("c1", "look", "{}")]), says("done")]);
    let agent = Agent::new("a").tool(echo("look", &log)).model(model);
    let result = run(&agent, "go").await.expect("it runs");
    assert_eq!(log.lines().len(), 1);
    assert_eq!(result.final_output(), "done");
}

#[tokio::test]
async fn a_repeated_call_is_answered_again_where_the_server_keeps_the_conversation() {
    let log = Log::default();
    let mut both = calls([("c1", "look", "{}")]);
    both.extend(calls([("c2", "look", "{}")]));
    let model = script([calls([("c1", "look", "{}")]), both, says("done")]);
    let agent = Agent::new("a").tool(echo("look", &log)).model(model.clone());
    run(&agent, "go").chain_responses().await.expect("it runs");
    // resp_2 contains both calls; a server refuses the next request unless each has its output.
    let answered: Vec<_> =
        model.requests()[2].input.iter().filter_map(|item| item.call_id().map(str::to_owned)).collect();
    assert_eq!(answered, ["c1", "c2"]);
}

#[tokio::test]
async fn a_sticky_decision_is_about_the_tool_of_the_call_and_no_other() {
    let log = Log::default();
    let model = script([calls([("c1", "look", "{}")]), calls([("c2", "delete", "{}")]), says("done")]);
    let agent = Agent::new("a")
        .tool(echo("look", &log).needs_approval())
        .tool(echo("delete", &log).needs_approval())
        .model(model);
    let mut state = run(&agent, "go").await.expect("it waits").to_state();
    // The interruption that a browser returns after it displayed "look".
    let mut call = state.interruptions().remove(0);
    call.tool = "delete".to_owned();
    if state.approve_always(&call).is_ok() {
        let call = state.interruptions().pop();
        if let Some(call) = call {
            state.approve(&call).expect("waits");
        }
        run(&agent, state).await.expect("it goes on");
    }
    assert!(
        !log.lines().iter().any(|line| line.starts_with("delete")),
        "no approval was requested for delete: {:?}",
        log.lines()
    );
}

#[tokio::test]
async fn a_handoff_that_is_refused_at_once_emits_no_event() {
    let log = Log::default();
    let told = log.clone();
    let b = Agent::new("b").model(script([says("done")]));
    let handoff = Handoff::to(b).filter(InputFilter::without_tools()).on_handoff(move |_| {
        let told = told.clone();
        async move {
            told.line("handed over");
            Ok(())
        }
    });
    let agent = Agent::new("a").handoff(handoff).model(script([calls([("c1", "transfer_to_b", "{}")])]));
    let error = run(&agent, "go").chain_responses().await.expect_err("a filter cannot be used here");
    assert_eq!((error.error().code(), log.lines()), ("misuse", vec![]));
}

#[tokio::test]
async fn items_of_the_last_reply_are_emitted_also_if_the_reader_is_slow() {
    // More events than the channel holds.
    let many: Vec<Item> = (0..2000).map(|n| Item::assistant(format!("{n}"))).collect();
    let agent = Agent::new("a").model(ScriptedModel::new([many]));
    let stream = run(&agent, "go").stream();
    let result = tokio::time::timeout(Duration::from_secs(60), stream.result()).await.expect("no deadlock");
    assert_eq!(result.expect("it runs").final_output(), "1999");
}

#[test]
fn numbers_come_back_as_they_were_sent_and_beyond_64_bits_as_floating_point() {
    let sent_back = |number: &str| {
        let text = format!(r#"{{"type":"brand_new","n":{number},"a":null}}"#);
        let item: Item = serde_json::from_str(&text).expect("an item");
        (text, serde_json::to_string(&item).expect("text"), item)
    };
    for number in ["18446744073709551615", "-9223372036854775808", "9007199254740993", "0.1", "2.2250738585072014e-308"]
    {
        let (sent, back, _) = sent_back(number);
        assert_eq!(back, sent);
    }
    for (number, nearest) in [
        ("18446744073709551616", 18_446_744_073_709_551_616.0),
        ("-9223372036854775809", -9_223_372_036_854_775_808.0),
        ("123456789012345678901234567890", 123_456_789_012_345_678_901_234_567_890.0),
    ] {
        let (_, back, item) = sent_back(number);
        assert_eq!(item.fields()["n"], Value::from(nearest));
        assert_eq!(serde_json::from_str::<Item>(&back).expect("an item"), item);
    }
}

#[tokio::test]
async fn a_model_cannot_answer_its_own_calls() {
    let log = Log::default();
    let mut first = calls([("c1", "look", "{}")]);
    first.push(Item::function_output("c1", "made up"));
    let model = script([first, says("done")]);
    let agent = Agent::new("a").tool(echo("look", &log)).model(model.clone());
    // The reply is refused, or the call has one output: a server refuses two.
    if run(&agent, "go").await.is_ok() {
        let answers = model.requests()[1].input.iter().filter(|item| item.is_answer()).count();
        assert_eq!(answers, 1);
    }
}

#[tokio::test]
async fn a_run_that_cannot_block_here_is_given_back() {
    let log = Log::default();
    let agent =
        Agent::new("a").tool(echo("look", &log).needs_approval()).model(script([calls([("c1", "look", "{}")])]));
    let state = run(&agent, "go").await.expect("it waits").to_state();
    let error = run(&agent, state.clone()).blocking().expect_err("inside a runtime");
    assert_eq!(error.state(), state, "the run that was handed in is gone");
}

#[tokio::test]
async fn an_answer_is_kept_when_a_hook_fails_after_it() {
    struct Fails;
    #[async_trait::async_trait]
    impl sandbar_agent::Hooks for Fails {
        async fn on_tool_end(
            &self,
            _: &sandbar_agent::HookContext,
            _: &ToolContext,
            _: &sandbar_agent::ToolOutput,
        ) -> Result<(), BoxError> {
            Err("the log is full".into())
        }
    }
    let log = Log::default();
    let model = script([calls([("c1", "look", "{}")]), says("done")]);
    let agent = Agent::new("a").tool(echo("look", &log)).model(model.clone());
    let error = run(&agent, "go").hooks(Fails).await.expect_err("a hook fails the run");
    run(&agent, reload(&error.state())).await.expect("it goes on");
    let answer = model.requests()[1].input.last().cloned().expect("an answer");
    assert_eq!(answer.text_field("output"), Some("look {}"));
}
