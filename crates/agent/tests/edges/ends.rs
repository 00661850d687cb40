//! Nested runs and unusual ends: no call is repeated, all usage is counted, every environment is left.

use std::{num::NonZeroUsize, sync::Arc, time::Duration};

use async_trait::async_trait;
use sandbar_agent::{
    Agent, BoxError, Budget, Canceller, FunctionTool, Handoff, HookContext, Hooks, Item, Kit, ModelError,
    ModelSettings, OnFailure, OnTimeout, Price, Prices, Retry, RunConfig, RunEnvironment, ScriptedModel, Stop, Tool,
    ToolContext, ToolExt as _, Turn,
    environment::{Ending, Entering, EnvironmentSession},
    guardrail::{
        Finding, InputGuardrail, OutputCheck, OutputGuardrail, ToolInputGuardrail, ToolOutputGuardrail, ToolVerdict,
    },
    run,
};
use serde_json::{Value, json};

use crate::scene::{Log, calls, costly, echo, open_schema, reload, says, script};

const ASK: &str = r#"{"input":"x"}"#;

fn nap(seconds: u64) -> impl Tool + Clone + 'static {
    FunctionTool::raw("nap", "Sleeps.", open_schema(), move |_: ToolContext, _: Value| async move {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        Ok::<_, BoxError>("slept")
    })
    .lenient()
}

fn fails_once_after_sending() -> ScriptedModel {
    ScriptedModel::new([
        Turn::Items(calls([("i1", "send", "{}")])),
        Turn::Error(ModelError::Malformed("no answer".to_owned())),
        Turn::Items(says("fine")),
        Turn::Items(says("fine")),
    ])
}

#[tokio::test]
async fn what_a_person_approved_is_not_done_again_when_the_nested_run_fails_afterwards() {
    let log = Log::default();
    let worker = Agent::new("worker").tool(echo("send", &log).needs_approval()).model(fails_once_after_sending());
    let helper = worker.as_tool("helper", "Helps.").on_failure(OnFailure::Raise);
    let boss = Agent::new("boss").tool(helper).model(script([calls([("o1", "helper", ASK)]), says("ok")]));
    let mut state = reload(&run(&boss, "go").await.expect("it waits").to_state());
    let call = state.interruptions().remove(0);
    state.approve(&call).expect("waits");
    let error = run(&boss, state).await.expect_err("the nested model fails");
    assert_eq!(log.lines().len(), 1);
    run(&boss, reload(&error.state())).await.expect("it goes on");
    assert_eq!(log.lines(), ["send {}"], "sent once");
}

#[tokio::test]
async fn a_nested_run_that_failed_the_outer_one_goes_on_where_it_was() {
    let log = Log::default();
    let model = ScriptedModel::new([
        Turn::Items(calls([("i1", "send", "{}")])),
        Turn::Error(ModelError::Malformed("no answer".to_owned())),
        Turn::Items(calls([("i1", "send", "{}")])),
        Turn::Items(says("fine")),
    ]);
    let worker = Agent::new("worker").tool(echo("send", &log)).model(model);
    let helper = worker.as_tool("helper", "Helps.").on_failure(OnFailure::Raise);
    let boss = Agent::new("boss").tool(helper).model(script([calls([("o1", "helper", ASK)]), says("ok")]));
    let error = run(&boss, "go").await.expect_err("the nested model fails");
    run(&boss, reload(&error.state())).await.expect("it goes on");
    assert_eq!(log.lines(), ["send {}"], "sent once");
}

#[tokio::test(start_paused = true)]
async fn what_a_person_approved_is_not_done_again_when_the_answer_was_still_being_looked_at() {
    // The nested run has ended; the outer run is cancelled while a guardrail checks its output.
    let log = Log::default();
    let model = script([calls([("i1", "send", "{}")]), says("fine"), says("fine")]);
    let worker = Agent::new("worker").tool(echo("send", &log).needs_approval()).model(model);
    let slow = ToolOutputGuardrail::new("slow", |_, _| async {
        tokio::time::sleep(Duration::from_secs(10)).await;
        Ok(ToolVerdict::Allow)
    });
    let helper = worker.as_tool("helper", "Helps.").output_guardrail(slow);
    let boss = Agent::new("boss").tool(helper).model(script([calls([("o1", "helper", ASK)]), says("ok")]));
    let mut state = reload(&run(&boss, "go").await.expect("it waits").to_state());
    let call = state.interruptions().remove(0);
    state.approve(&call).expect("waits");
    let mut stream = run(&boss, state).stream();
    while let Ok(Some(_)) = tokio::time::timeout(Duration::from_secs(1), stream.next()).await {}
    stream.cancel_now();
    let result = stream.result().await.expect("cancelled");
    assert_eq!(result.stop(), &Stop::Cancelled);
    run(&boss, reload(&result.to_state())).await.expect("it goes on");
    assert_eq!(log.lines(), ["send {}"], "sent once");
}

#[tokio::test(start_paused = true)]
async fn what_a_person_approved_is_not_done_again_when_the_nested_run_takes_too_long() {
    let log = Log::default();
    let model = script([calls([("i1", "send", "{}")]), calls([("i2", "nap", "{}")]), says("fine"), says("fine")]);
    let worker = Agent::new("worker").tool(echo("send", &log).needs_approval()).tool(nap(3600)).model(model);
    let helper = worker.as_tool("helper", "Helps.").timeout(Duration::from_secs(5)).on_timeout(OnTimeout::Raise);
    let boss = Agent::new("boss").tool(helper).model(script([calls([("o1", "helper", ASK)]), says("ok")]));
    let mut state = reload(&run(&boss, "go").await.expect("it waits").to_state());
    let call = state.interruptions().remove(0);
    state.approve(&call).expect("waits");
    let error = run(&boss, state).await.expect_err("too long");
    run(&boss, reload(&error.state())).await.expect("it goes on");
    assert_eq!(log.lines(), ["send {}"], "sent once");
}

#[tokio::test(start_paused = true)]
async fn an_answer_counts_also_when_a_guardrail_trips_after_it_came() {
    let late = InputGuardrail::new("late", |_| async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        Ok(Finding::trip("no"))
    });
    let agent = Agent::new("a").input_guardrail(late).model(costly([(500, says("hello"))]));
    let error = run(&agent, "go").await.expect_err("tripped");
    assert_eq!(error.run().usage().total_tokens, 500);
}

#[tokio::test(start_paused = true)]
async fn nested_runs_one_after_the_other_share_the_time_that_is_left() {
    let model = || script([calls([("i1", "nap", "{}")]), calls([("i2", "nap", "{}")]), says("fine")]);
    let (first, second) = (model(), model());
    let one = Agent::new("one").tool(nap(8)).model(first).as_tool("one", "Helps.");
    let two = Agent::new("two").tool(nap(8)).model(second.clone()).as_tool("two", "Helps.");
    let boss = Agent::new("boss").tool(one).tool(two);
    let boss = boss.model(script([calls([("o1", "one", ASK), ("o2", "two", ASK)]), says("ok")]));
    let config =
        RunConfig::new().tool_concurrency(NonZeroUsize::MIN).budget(Budget::new().time(Duration::from_secs(10)));
    run(&boss, "go").config(config).await.expect("it stops softly");
    assert_eq!(second.requests().len(), 0, "the first one has taken 16 seconds of 10");
}

#[tokio::test(start_paused = true)]
async fn a_nested_run_that_waits_for_its_turn_is_not_out_of_time() {
    let model = || script([calls([("i1", "nap", "{}")]), says("fine")]);
    let tool = |name: &str| {
        let worker = Agent::new(name).tool(nap(6)).model(model());
        worker.as_tool(name, "Helps.").timeout(Duration::from_secs(10))
    };
    let outer = script([calls([("o1", "one", ASK), ("o2", "two", ASK)]), says("ok")]);
    let boss = Agent::new("boss").tool(tool("one")).tool(tool("two")).model(outer.clone());
    run(&boss, "go").budget(Budget::new().tokens(1_000_000)).await.expect("it runs");
    let input = outer.requests()[1].input.clone();
    let answers: Vec<_> = input.iter().filter_map(|item| item.text_field("output").map(str::to_owned)).collect();
    assert_eq!(answers, ["fine", "fine"], "each takes six seconds of its ten");
}

#[tokio::test]
async fn a_nested_run_counts_its_own_dollars_by_its_own_prices() {
    let log = Log::default();
    let look = |id: &'static str| (1_000_000, calls([(id, "look", "{}")]));
    let inner = costly([look("i1"), look("i2"), look("i3"), (1, says("all"))]).named("house");
    let worker = Agent::new("worker").tool(echo("look", &log)).model(inner.clone());
    let prices = Prices::default().with("house", Price { input: 1.0, cached: 1.0, output: 1.0 });
    let own = RunConfig::new().budget(Budget::new().dollars(0.5).prices(prices));
    let helper = worker.as_tool("helper", "Helps.").config(own);
    let boss = Agent::new("boss").tool(helper).model(script([calls([("o1", "helper", ASK)]), says("ok")]));
    run(&boss, "go").await.expect("it runs");
    assert_eq!(inner.requests().len(), 1, "a dollar of half a dollar was spent in the first turn");
}

#[tokio::test]
async fn a_nested_run_keeps_to_the_turns_of_its_own_configuration() {
    let log = Log::default();
    let look = |id: &'static str| calls([(id, "look", "{}")]);
    let inner = script([look("i1"), look("i2"), look("i3"), says("all")]);
    let worker = Agent::new("worker").tool(echo("look", &log)).model(inner.clone());
    let helper = worker.as_tool("helper", "Helps.").config(RunConfig::new().max_turns(Some(1)));
    let boss = Agent::new("boss").tool(helper).model(script([calls([("o1", "helper", ASK)]), says("ok")]));
    run(&boss, "go").await.expect("it runs");
    assert_eq!(inner.requests().len(), 1);
}

/// An environment that takes a second to leave.
#[derive(Clone)]
struct LoggedEnvironment(Log);

impl std::fmt::Debug for LoggedEnvironment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LoggedEnvironment")
    }
}

struct Visit(Log, &'static str);

#[async_trait]
impl RunEnvironment for LoggedEnvironment {
    async fn open(&self, run: &str, _saved: Option<Value>) -> Result<Box<dyn EnvironmentSession>, BoxError> {
        let who = if run.contains('.') { "inner" } else { "outer" };
        self.0.line(format!("open {who}"));
        Ok(Box::new(Visit(self.0.clone(), who)))
    }
}

#[async_trait]
impl EnvironmentSession for Visit {
    async fn enter(&mut self, _entering: Entering<'_>) -> Result<Kit, BoxError> {
        Ok(Kit::default())
    }

    async fn leave(self: Box<Self>, ending: Ending) -> Result<Option<Value>, BoxError> {
        tokio::time::sleep(Duration::from_secs(10)).await;
        self.0.line(format!("left {} {ending:?}", self.1));
        Ok(Some(Value::from("saved")))
    }
}

#[tokio::test(start_paused = true)]
async fn a_place_that_a_nested_run_is_just_leaving_is_left_also_when_the_run_is_cancelled() {
    let log = Log::default();
    let helper = Agent::new("worker").model(script([says("fine")])).as_tool("helper", "Helps.");
    let boss = Agent::new("boss").tool(helper).model(script([calls([("o1", "helper", ASK)]), says("ok")]));
    let config = RunConfig::new().environment(Arc::new(LoggedEnvironment(log.clone())));
    let mut stream = run(&boss, "go").config(config).stream();
    while let Ok(Some(_)) = tokio::time::timeout(Duration::from_secs(1), stream.next()).await {}
    stream.cancel_now();
    stream.result().await.expect("cancelled");
    assert_eq!(log.lines(), ["open outer", "open inner", "left inner Finished", "left outer Paused"]);
}

#[tokio::test(start_paused = true)]
async fn a_place_that_is_left_because_a_call_took_too_long_is_left_also_when_the_run_is_cancelled() {
    let log = Log::default();
    let worker = Agent::new("worker").tool(nap(3600)).model(script([calls([("i1", "nap", "{}")])]));
    let helper = worker.as_tool("helper", "Helps.").timeout(Duration::from_secs(5));
    let boss = Agent::new("boss").tool(helper).model(script([calls([("o1", "helper", ASK)]), says("ok")]));
    let config = RunConfig::new().environment(Arc::new(LoggedEnvironment(log.clone())));
    let mut stream = run(&boss, "go").config(config).stream();
    while let Ok(Some(_)) = tokio::time::timeout(Duration::from_secs(7), stream.next()).await {}
    stream.cancel_now();
    stream.result().await.expect("cancelled");
    assert_eq!(log.lines(), ["open outer", "open inner", "left inner Failed", "left outer Paused"]);
}

#[tokio::test(start_paused = true)]
async fn a_nested_run_that_will_not_come_back_does_not_leave_as_if_it_would() {
    let log = Log::default();
    let inner = costly([(500, calls([("i1", "look", "{}")])), (1, says("all"))]);
    let worker = Agent::new("worker").tool(echo("look", &Log::default())).model(inner);
    let place = Arc::new(LoggedEnvironment(log.clone()));
    let own = RunConfig::new().budget(Budget::new().tokens(100)).environment(place);
    let helper = worker.as_tool("helper", "Helps.").config(own);
    let boss = Agent::new("boss").tool(helper).model(script([calls([("o1", "helper", ASK)]), says("ok")]));
    run(&boss, "go").await.expect("it runs");
    let lines = log.lines();
    assert_ne!(lines.last().map(String::as_str), Some("left inner Paused"), "what it saved is thrown away: {lines:?}");
}

#[derive(Clone, Default)]
struct CancelsAtTheEnd(Arc<std::sync::Mutex<Option<Canceller>>>);

#[async_trait]
impl Hooks for CancelsAtTheEnd {
    async fn on_agent_end(&self, _at: &HookContext, _output: &Value) -> Result<(), BoxError> {
        if let Some(canceller) = &*self.0.lock().unwrap() {
            canceller.now();
        }
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_has_its_final_output_is_finished_and_leaves_so() {
    let log = Log::default();
    let hooks = CancelsAtTheEnd::default();
    let agent = Agent::new("a").model(script([says("done")]));
    let config = RunConfig::new().environment(Arc::new(LoggedEnvironment(log.clone())));
    let stream = run(&agent, "go").config(config).hooks(hooks.clone()).stream();
    *hooks.0.lock().unwrap() = Some(stream.canceller());
    let result = stream.result().await.expect("over");
    let over = result.output().is_some();
    assert_eq!((over, result.stop() == &Stop::Finished), (over, over), "{:?}", log.lines());
}

#[tokio::test(start_paused = true)]
async fn what_a_guardrail_found_about_a_call_is_kept_when_the_nested_run_is_stopped_in_the_middle() {
    let worker = Agent::new("worker").tool(nap(60)).model(script([calls([("i1", "nap", "{}")]), says("fine")]));
    let looks = ToolInputGuardrail::new("looks", |_| async { Ok(ToolVerdict::Allow) });
    let helper = worker.as_tool("helper", "Helps.").input_guardrail(looks);
    let boss = Agent::new("boss").tool(helper).model(script([calls([("o1", "helper", ASK)]), says("ok")]));
    let mut stream = run(&boss, "go").stream();
    while let Ok(Some(_)) = tokio::time::timeout(Duration::from_secs(1), stream.next()).await {}
    stream.cancel_now();
    let result = stream.result().await.expect("cancelled");
    let end = run(&boss, reload(&result.to_state())).await.expect("it goes on");
    assert_eq!(end.tool_input_guardrails().len(), 1);
}

struct Fails;

#[async_trait]
impl Hooks for Fails {
    async fn on_llm_end(&self, _at: &HookContext, _reply: &sandbar_agent::ModelReply) -> Result<(), BoxError> {
        Err("the hook fails".into())
    }
}

#[tokio::test]
async fn what_was_added_to_a_run_is_told_also_when_a_hook_fails() {
    let agent = Agent::new("a").model(script([says("hello")]));
    let mut stream = run(&agent, "go").hooks(Fails).stream();
    let mut told = 0;
    while let Some(event) = stream.next().await {
        told += usize::from(matches!(event, sandbar_agent::RunEvent::Item { .. }));
    }
    let error = stream.result().await.expect_err("the hook fails");
    assert_eq!(told, error.run().items().len());
}

fn thought() -> Item {
    Item::from_value(json!({ "type": "reasoning", "id": "rs_1", "summary": [] })).expect("an item")
}

/// Number of reasoning items that no message or call follows; servers refuse those.
fn orphaned_reasoning(input: &[Item]) -> usize {
    let alone = |place: &usize| {
        let next = input.get(place + 1).map_or("", Item::kind);
        let by_model = input.get(place + 1).is_some_and(|item| item.text_field("role") != Some("user"));
        !(matches!(next, "function_call" | "reasoning") || next == "message" && by_model)
    };
    (0..input.len()).filter(|place| input[*place].kind() == "reasoning").filter(alone).count()
}

#[tokio::test]
async fn a_thought_does_not_stay_behind_when_what_came_of_it_is_withheld() {
    let model = script([vec![thought(), Item::assistant("secret")], says("fine")]);
    let strict = OutputGuardrail::new("strict", |check: OutputCheck| async move {
        Ok(if check.output == "secret" { Finding::trip("no") } else { Finding::pass() })
    });
    let agent = Agent::new("a").output_guardrail(strict).model(model.clone());
    let error = run(&agent, "go").await.expect_err("tripped");
    run(&agent, reload(&error.state())).await.expect("it goes on");
    assert_eq!(orphaned_reasoning(&model.requests()[1].input), 0, "{:?}", model.requests()[1].input);
}

#[tokio::test]
async fn a_thought_does_not_stay_behind_when_the_call_it_led_to_is_a_repeated_one() {
    let log = Log::default();
    let again = vec![thought(), Item::function_call("c1", "look", "{}")];
    let model = script([calls([("c1", "look", "{}")]), again, says("fine")]);
    let agent = Agent::new("a").tool(echo("look", &log)).model(model.clone());
    run(&agent, "go").await.expect("it runs");
    assert_eq!(orphaned_reasoning(&model.requests()[2].input), 0, "{:?}", model.requests()[2].input);
}

#[tokio::test(start_paused = true)]
async fn failed_requests_count_also_when_the_run_is_cancelled_before_the_next_one() {
    let refused = ModelError::Timeout(Duration::from_secs(1));
    let model = ScriptedModel::new([Turn::Error(refused), Turn::Items(says("fine"))]);
    let retry =
        Retry { max_retries: 3, initial: Duration::from_secs(60), max: Duration::from_secs(60), ..Retry::default() };
    let mut settings = ModelSettings::default();
    settings.retry = Some(retry);
    let agent = Agent::new("a").settings(settings).model(model);
    let mut stream = run(&agent, "go").stream();
    while let Ok(Some(_)) = tokio::time::timeout(Duration::from_secs(1), stream.next()).await {}
    stream.cancel_now();
    let result = stream.result().await.expect("cancelled");
    assert_eq!(result.usage().requests, 1);
}

struct FailsOnce(Log);

#[async_trait]
impl Hooks for FailsOnce {
    async fn on_handoff(&self, _at: &HookContext, _from: &str, _to: &str) -> Result<(), BoxError> {
        self.0.line("hook");
        if self.0.lines().len() > 1 { Ok(()) } else { Err("the hook fails".into()) }
    }
}

#[tokio::test]
async fn what_a_handoff_does_is_done_once_also_when_a_hook_fails() {
    let (done, told) = (Log::default(), Log::default());
    let log = done.clone();
    let other = Agent::new("other").model(script([says("fine")]));
    let handoff = Handoff::to(other).on_handoff(move |_| {
        let log = log.clone();
        async move {
            log.line("booked");
            Ok(())
        }
    });
    let agent = Agent::new("a").handoff(handoff).model(script([calls([("c1", "transfer_to_other", "{}")])]));
    let error = run(&agent, "go").hooks(FailsOnce(told.clone())).await.expect_err("the hook fails");
    run(&agent, reload(&error.state())).hooks(FailsOnce(told)).await.expect("it goes on");
    assert_eq!(done.lines(), ["booked"]);
}

#[tokio::test(start_paused = true)]
async fn the_time_a_nested_run_took_counts_also_when_it_is_stopped_in_the_middle() {
    // Seven seconds, a cancellation, and eight more seconds exceed the limit of ten.
    let nap_call = |id: &'static str| calls([(id, "nap", "{}")]);
    let inner = script([nap_call("i1"), nap_call("i2"), says("all")]);
    let worker = Agent::new("worker").tool(nap(8)).model(inner.clone());
    let own = RunConfig::new().budget(Budget::new().time(Duration::from_secs(10)));
    let helper = worker.as_tool("helper", "Helps.").config(own);
    let boss = Agent::new("boss").tool(helper).model(script([calls([("o1", "helper", ASK)]), says("ok")]));
    let mut stream = run(&boss, "go").stream();
    while let Ok(Some(_)) = tokio::time::timeout(Duration::from_secs(7), stream.next()).await {}
    stream.cancel_now();
    let result = stream.result().await.expect("cancelled");
    run(&boss, reload(&result.to_state())).await.expect("it goes on");
    assert_eq!(inner.requests().len(), 2, "the third would be after fifteen seconds of ten");
}

#[tokio::test]
async fn agents_used_as_tools_of_each_other_too_deep_are_told_so() {
    let nested = |levels: usize| {
        let mut agent = Agent::new("deepest").model(script([says("fine")]));
        for _ in 0..levels {
            let helper = agent.as_tool("helper", "Helps.");
            agent = Agent::new("boss").tool(helper).model(script([calls([("o1", "helper", ASK)]), says("ok")]));
        }
        agent
    };
    for levels in [5, 8, 100] {
        let agent = nested(levels);
        assert_eq!(run(&agent, "go").await.expect("it runs").final_output(), "ok", "{levels}");
    }
}
