//! Budgets in dollars: what nested runs may spend of them, alone, at the same time and after a pause.
#![allow(clippy::expect_used, reason = "a test")]

use std::{sync::Arc, time::Duration};

use sandbar_agent::{
    Agent, BoxError, Budget, FunctionTool, Item, ModelReply, Price, Prices, RunConfig, ScriptedModel, Spent, Stop,
    ToolContext, ToolExt as _, Turn, Usage, run,
};
use serde_json::{Value, json};
use tokio::sync::Barrier;

/// A dollar for a thousand tokens.
fn dollars(most: f64) -> Budget {
    let price = Price { input: 0.0, cached: 0.0, output: 1000.0 };
    Budget::new().dollars(most).prices(Prices::default().with("scripted", price))
}

/// Replies, each with the tokens that it costs.
fn costly<const N: usize>(turns: [(u64, Vec<Item>); N]) -> ScriptedModel {
    ScriptedModel::new(turns.map(|(tokens, output)| {
        let usage = Usage { requests: 1, output_tokens: tokens, total_tokens: tokens, ..Usage::default() };
        Turn::Reply(ModelReply { output, usage, ..ModelReply::default() })
    }))
}

fn call(id: &str, name: &str) -> Vec<Item> {
    vec![Item::function_call(id, name, r#"{"input":"x"}"#)]
}

fn says(text: &str) -> Vec<Item> {
    vec![Item::assistant(text)]
}

fn look() -> FunctionTool {
    let schema = json!({ "type": "object", "properties": {}, "additionalProperties": true });
    FunctionTool::raw("look", "Looks.", schema, |_: ToolContext, _: Value| async { Ok::<_, BoxError>("seen") })
        .lenient()
}

#[tokio::test(start_paused = true)]
async fn a_nested_run_may_spend_what_the_outer_run_has_left() {
    let inner = costly([(500, call("i1", "look")), (500, call("i2", "look")), (1, says("never"))]);
    let worker = Agent::new("worker").tool(look()).model(inner.clone());
    let outer = costly([(600, call("o1", "helper")), (1, says("never"))]);
    let boss = Agent::new("boss").tool(worker.as_tool("helper", "Helps.")).model(outer);
    let result = run(&boss, "go").budget(dollars(1.0)).await.expect("it stops softly");
    // 0.40 dollars are left, and the first call of the nested run costs 0.50.
    assert_eq!(inner.requests().len(), 1);
    let Stop::Budget(Spent::Dollars { spent, of }) = *result.stop() else { panic!("{:?}", result.stop()) };
    assert!((spent - 1.1).abs() < 1e-9 && (of - 1.0).abs() < 1e-9, "{spent} of {of}");
}

#[tokio::test(start_paused = true)]
async fn of_two_budgets_the_smaller_one_holds_for_a_nested_run() {
    for (own, outer) in [(0.5, 10.0), (10.0, 0.5), (0.5, 0.5)] {
        let inner = costly([(600, call("i1", "look")), (1, says("never"))]);
        let worker = Agent::new("worker").tool(look()).model(inner.clone());
        let helper = worker.as_tool("helper", "Helps.").config(RunConfig::new().budget(dollars(own)));
        let model = costly([(0, call("o1", "helper")), (1, says("done"))]);
        run(Agent::new("boss").tool(helper).model(model), "go").budget(dollars(outer)).await.expect("it stops softly");
        assert_eq!(inner.requests().len(), 1, "{own} and {outer}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_nested_run_that_continues_has_paid_for_its_beginning_once() {
    let inner = costly([(300, call("i1", "look")), (300, call("i2", "seen")), (100, says("helped"))]);
    let seen = FunctionTool::raw(
        "seen",
        "Says what was seen.",
        json!({ "type": "object", "properties": {}, "additionalProperties": true }),
        |_: ToolContext, _: Value| async { Ok::<_, BoxError>("this") },
    );
    let worker = Agent::new("worker").tool(look().needs_approval()).tool(seen.lenient()).model(inner.clone());
    let outer = costly([(200, call("o1", "helper")), (1, says("done"))]);
    let boss = Agent::new("boss").tool(worker.as_tool("helper", "Helps.")).model(outer);
    let asked = run(&boss, "go").budget(dollars(1.0)).await.expect("it asks");
    assert_eq!(*asked.stop(), Stop::Interrupted);
    let mut state = asked.to_state();
    for wanted in asked.interruptions() {
        state.approve(&wanted).expect("it waits");
    }
    // 0.50 are spent. The nested run goes on with the other 0.50, and not with what these leave of its own 0.30.
    let result = run(&boss, state).await.expect("it goes on");
    assert_eq!(result.final_output(), "done");
    assert_eq!(inner.left(), 0);
}

#[tokio::test(start_paused = true)]
async fn nested_runs_take_turns_only_if_models_are_limited() {
    let both = Arc::new(Barrier::new(2));
    let meet = || {
        let both = Arc::clone(&both);
        let schema = json!({ "type": "object", "properties": {}, "additionalProperties": true });
        let meet = move |_: ToolContext, _: Value| {
            let both = Arc::clone(&both);
            async move {
                let met = tokio::time::timeout(Duration::from_secs(60), both.wait()).await;
                Ok::<_, BoxError>(if met.is_ok() { "met" } else { "alone" })
            }
        };
        FunctionTool::raw("meet", "Waits for the other.", schema, meet).lenient()
    };
    let pair = || {
        let worker = |name: &str| {
            let model = costly([(1, call("m1", "meet")), (1, says("back"))]);
            (model.clone(), Agent::new(name).tool(meet()).model(model).as_tool(name, "Helps."))
        };
        let ((one, first), (_, second)) = (worker("first"), worker("second"));
        let calls = [call("o1", "first"), call("o2", "second")].concat();
        let boss = Agent::new("boss").tool(first).tool(second).model(costly([(1, calls), (1, says("done"))]));
        (boss, one)
    };
    let met = |model: &ScriptedModel| {
        let answered = model.requests().pop().expect("a request");
        format!("{:?}", answered.input).contains("\"met\"")
    };
    let (boss, one) = pair();
    run(&boss, "go").budget(Budget::new().time(Duration::from_secs(600))).await.expect("it runs");
    assert!(met(&one), "a limit of time alone needs no turns");
    let (boss, one) = pair();
    run(&boss, "go").budget(dollars(100.0)).await.expect("it runs");
    assert!(!met(&one), "with a limit of dollars, one run knows what the other has left");
}

#[test]
fn nothing_costs_nothing_and_not_less() {
    let cost = Prices::default().cost(&Usage::default());
    assert!(cost == 0.0 && cost.is_sign_positive(), "{cost:?}");
}
