//! Runs with a budget.

use std::time::Duration;

use sandbar_agent::{
    Agent, BoxError, Budget, FunctionTool, Item, ModelReply, Price, Prices, RunConfig, ScriptedModel, ToolContext,
    Turn, Usage,
};
use serde_json::{Value, json};

use crate::play::{Log, Scene, calls, check, echo, says};

fn costly<const N: usize>(turns: [(u64, Vec<Item>); N]) -> ScriptedModel {
    ScriptedModel::new(turns.map(|(tokens, output)| {
        let usage = Usage { requests: 1, output_tokens: tokens, total_tokens: tokens, ..Usage::default() };
        Turn::Reply(ModelReply { output, usage, ..ModelReply::default() })
    }))
}

#[tokio::test(start_paused = true)]
async fn a_run_pauses_when_its_tokens_are_spent_and_continues_with_a_larger_budget() {
    check("budget_of_tokens", || {
        let log = Log::default();
        let mut talk = says("So far, so good.");
        talk.extend(calls([("c1", "look", "{}")]));
        let model = costly([(80, talk), (80, calls([("c2", "look", "{}")])), (1, says("never"))]);
        Scene::new(Agent::new("a").tool(echo("look", &log)).model(model.clone()), model)
            .config(RunConfig::new().budget(Budget::new().tokens(100)))
            .log(log)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn dollars_are_computed_from_prices() {
    check("budget_of_money", || {
        let log = Log::default();
        let model = costly([(1000, calls([("c1", "look", "{}")])), (1, says("never"))]);
        let prices = Prices::default().with("scripted", Price { input: 1.0, cached: 0.1, output: 500.0 });
        Scene::new(Agent::new("a").tool(echo("look", &log)).model(model.clone()), model)
            .config(RunConfig::new().budget(Budget::new().dollars(0.5).prices(prices)))
            .log(log)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn time_counts_while_the_run_executes() {
    let slow = || {
        let schema = json!({ "type": "object", "properties": {}, "additionalProperties": true });
        FunctionTool::raw("sleep", "Sleeps.", schema, |_: ToolContext, _: Value| async {
            tokio::time::sleep(Duration::from_secs(5)).await;
            Ok::<_, BoxError>("slept")
        })
        .lenient()
    };
    let scene = || {
        let model =
            costly([(1, calls([("c1", "sleep", "{}")])), (1, calls([("c2", "sleep", "{}")])), (1, says("never"))]);
        (Agent::new("a").tool(slow()).model(model.clone()), model)
    };
    let (agent, model) = scene();
    let budget = Budget::new().time(Duration::from_secs(8));
    let result = sandbar_agent::run(&agent, "go").budget(budget).await.expect("a soft stop");
    assert!(
        matches!(result.stop(), sandbar_agent::Stop::Budget(sandbar_agent::Spent::Time { .. })),
        "{:?}",
        result.stop()
    );
    assert_eq!((model.left(), result.final_output()), (1, "slept".to_owned()));

    // The usage so far still counts after the run is resumed; a larger budget lets the run finish.
    let mut state = result.to_state();
    assert!(matches!(
        sandbar_agent::run(&agent, state.clone()).await.expect("soft").stop(),
        sandbar_agent::Stop::Budget(_)
    ));
    state.set_budget(Budget::new().time(Duration::from_secs(60)));
    assert_eq!(sandbar_agent::run(&agent, state).await.expect("it goes on").final_output(), "never");
}
