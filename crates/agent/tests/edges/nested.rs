//! Agents as tools: their usage counts, their environments are left, and their settings apply.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use sandbar_agent::{
    Agent, BoxError, Budget, FunctionTool, Kit, OnFailure, RunConfig, RunEnvironment, Stop, ToolContext, ToolExt as _,
    environment::{Ending, Entering, EnvironmentSession},
    run,
};
use serde_json::Value;

use crate::scene::{Log, calls, costly, echo, open_schema, reload, says, script};

const ASK: &str = r#"{"input":"x"}"#;

#[tokio::test]
async fn a_budget_of_its_own_holds_for_a_nested_run() {
    let log = Log::default();
    let inner = costly([(500, calls([("i1", "look", "{}")])), (500, calls([("i2", "look", "{}")])), (1, says("all"))]);
    let worker = Agent::new("worker").tool(echo("look", &log)).model(inner.clone());
    let helper = worker.as_tool("helper", "Helps.").config(RunConfig::new().budget(Budget::new().tokens(100)));
    let boss = Agent::new("boss").tool(helper).model(script([calls([("o1", "helper", ASK)]), says("ok")]));
    run(&boss, "go").await.expect("it runs");
    assert_eq!(inner.requests().len(), 1, "500 tokens of 100 were spent in the first turn");
}

#[tokio::test]
async fn what_a_nested_run_used_counts_also_when_it_fails_the_outer_one() {
    let inner = costly([(500, calls([("i1", "nothing_like_this", "{}")]))]);
    let helper = Agent::new("worker").model(inner).as_tool("helper", "Helps.").on_failure(OnFailure::Raise);
    let boss = Agent::new("boss").tool(helper).model(script([calls([("o1", "helper", ASK)])]));
    let error = run(&boss, "go").await.expect_err("raised");
    assert_eq!(error.run().usage().total_tokens, 500);
}

fn sleeper() -> impl sandbar_agent::Tool + Clone + 'static {
    FunctionTool::raw("sleep", "Sleeps.", open_schema(), |_: ToolContext, _: Value| async {
        tokio::time::sleep(Duration::from_secs(3600)).await;
        Ok::<_, BoxError>("slept")
    })
    .lenient()
}

#[tokio::test(start_paused = true)]
async fn what_a_nested_run_used_counts_also_when_it_takes_too_long() {
    let inner = costly([(500, calls([("i1", "sleep", "{}")]))]);
    let helper = Agent::new("worker").tool(sleeper()).model(inner).as_tool("helper", "Helps.");
    let helper = helper.timeout(Duration::from_secs(5));
    let boss = Agent::new("boss").tool(helper).model(script([calls([("o1", "helper", ASK)]), says("ok")]));
    let result = run(&boss, "go").await.expect("it runs");
    assert_eq!(result.usage().total_tokens, 500);
}

/// An environment that logs when agents enter and runs leave.
#[derive(Clone)]
struct LoggedEnvironment(Log);

impl std::fmt::Debug for LoggedEnvironment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LoggedEnvironment")
    }
}

struct Visit(Log, String);

#[async_trait]
impl RunEnvironment for LoggedEnvironment {
    async fn open(&self, run: &str, _saved: Option<Value>) -> Result<Box<dyn EnvironmentSession>, BoxError> {
        self.0.line(format!("open {run}"));
        Ok(Box::new(Visit(self.0.clone(), run.to_owned())))
    }
}

#[async_trait]
impl EnvironmentSession for Visit {
    async fn enter(&mut self, _entering: Entering<'_>) -> Result<Kit, BoxError> {
        Ok(Kit::default())
    }

    async fn leave(self: Box<Self>, _ending: Ending) -> Result<Option<Value>, BoxError> {
        self.0.line(format!("leave {}", self.1));
        Ok(None)
    }
}

fn placed(log: &Log) -> (Agent, RunConfig) {
    let worker = Agent::new("worker").tool(sleeper()).model(script([calls([("i1", "sleep", "{}")])]));
    let helper = worker.as_tool("helper", "Helps.").timeout(Duration::from_secs(60));
    let boss = Agent::new("boss").tool(helper).model(script([calls([("o1", "helper", ASK)]), says("ok")]));
    (boss, RunConfig::new().environment(Arc::new(LoggedEnvironment(log.clone()))))
}

#[tokio::test(start_paused = true)]
async fn a_place_that_a_nested_run_opened_is_left_when_the_call_takes_too_long() {
    let log = Log::default();
    let (boss, config) = placed(&log);
    run(&boss, "go").id("r").config(config).await.expect("it runs");
    assert_eq!(log.lines(), ["open r", "open r.2352da7280f1decc", "leave r.2352da7280f1decc", "leave r"]);
}

#[tokio::test(start_paused = true)]
async fn a_place_that_a_nested_run_opened_is_left_when_the_run_is_cancelled() {
    let log = Log::default();
    let (boss, config) = placed(&log);
    let mut stream = run(&boss, "go").id("r").config(config).stream();
    // Until the event of the call, and a little longer.
    while let Ok(Some(_)) = tokio::time::timeout(Duration::from_secs(1), stream.next()).await {}
    stream.cancel_now();
    let result = stream.result().await.expect("cancelled");
    assert_eq!(result.stop(), &Stop::Cancelled);
    assert_eq!(log.lines(), ["open r", "open r.2352da7280f1decc", "leave r.2352da7280f1decc", "leave r"]);
}

#[tokio::test]
async fn a_call_of_an_agent_without_arguments_is_one_with_an_empty_object() {
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct Nothing {}
    let worker = Agent::new("worker").model(script([says("fine")]));
    let helper = worker.as_tool("helper", "Helps.").parameters(|_: Nothing| vec!["hello".into()]);
    let outer = script([calls([("o1", "helper", "")]), says("ok")]);
    let boss = Agent::new("boss").tool(helper).model(outer.clone());
    run(&boss, "go").await.expect("it runs");
    let answer = outer.requests()[1].input.last().cloned().expect("an answer");
    assert_eq!(answer.text_field("output"), Some("fine"));
}

#[tokio::test(start_paused = true)]
async fn a_nested_run_that_waited_for_a_person_and_was_stopped_in_the_middle_keeps_what_it_did() {
    // The nested run has made one call and waits for a second one, which is approved; the run is cancelled during that call.
    let log = Log::default();
    let inner = script([calls([("i1", "look", "{}")]), calls([("i2", "sleep", "{}")]), says("fine")]);
    let worker = Agent::new("worker").tool(echo("look", &log)).tool(sleeper().needs_approval()).model(inner);
    let outer = script([calls([("o1", "helper", ASK)]), says("ok")]);
    let boss = Agent::new("boss").tool(worker.as_tool("helper", "Helps.")).model(outer.clone());
    let paused = run(&boss, "go").await.expect("it waits");
    let mut state = reload(&paused.to_state());
    let call = state.interruptions().remove(0);
    state.approve(&call).expect("waits");
    let mut stream = run(&boss, state).stream();
    while let Ok(Some(_)) = tokio::time::timeout(Duration::from_secs(1), stream.next()).await {}
    stream.cancel_now();
    let result = stream.result().await.expect("cancelled");
    assert_eq!(result.stop(), &Stop::Cancelled);
    let end = run(&boss, reload(&result.to_state())).await.expect("it goes on");
    assert_eq!(end.final_output(), "ok");
    let answer = outer.requests()[1].input.last().cloned().expect("an answer");
    assert_eq!(answer.text_field("output"), Some("fine"), "the nested run could have gone on by itself");
}

#[tokio::test]
async fn nested_runs_at_the_same_time_share_what_is_left_of_the_budget() {
    let log = Log::default();
    let look = |id: &'static str| (400, calls([(id, "look", "{}")]));
    let helpers = ["h0", "h1", "h2", "h3", "h4"];
    let mut boss = Agent::new("boss");
    for name in helpers {
        let inner = costly([look("i1"), look("i2"), look("i3"), (1, says("all"))]);
        let worker = Agent::new(name).tool(echo("look", &log)).model(inner);
        boss = boss.tool(worker.as_tool(name, "Helps."));
    }
    let outer = calls(helpers.map(|name| (name, name, ASK)));
    let boss = boss.model(script([outer, says("ok")]));
    let result = run(&boss, "go").budget(Budget::new().tokens(1000)).await.expect("it stops softly");
    // Each run may exceed the budget by its current request.
    let spent = result.usage().total_tokens;
    assert!(spent <= 1000 + 5 * 400, "{spent} tokens of 1000");
}

#[tokio::test(start_paused = true)]
async fn what_calls_at_the_same_time_used_is_listed_in_the_order_of_the_model() {
    // The first takes longer than the second.
    let nap = |seconds| {
        FunctionTool::raw("nap", "Sleeps.", open_schema(), move |_: ToolContext, _: Value| async move {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            "slept"
        })
        .lenient()
    };
    let worker = |name: &str, seconds, tokens| {
        let model = costly([(tokens, calls([("i1", "nap", "{}")])), (tokens, says("fine"))]);
        Agent::new(name).tool(nap(seconds)).model(model).as_tool(name, "Helps.")
    };
    let boss = Agent::new("boss").tool(worker("slow", 9, 1)).tool(worker("fast", 1, 2));
    let boss = boss.model(script([calls([("o1", "slow", ASK), ("o2", "fast", ASK)]), says("ok")]));
    let result = run(&boss, "go").await.expect("it runs");
    let listed: Vec<u64> = result.usage().entries.iter().map(|entry| entry.output_tokens).collect();
    assert_eq!(listed, [1, 1, 2, 2]);
}
