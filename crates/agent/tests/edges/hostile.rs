//! Saved runs in which one part is replaced by another: they are refused or end, and never panic.

use std::panic::{AssertUnwindSafe, catch_unwind};

use sandbar_agent::{Agent, Item, RunState, ScriptedModel, Stop, ToolExt as _, run};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::scene::{Log, echo, says};

/// One in this many replacements is tested; a prime, so that each state and each value has different positions.
const SAMPLED: usize = 17;

fn calls<const N: usize>(calls: [(&str, &str); N]) -> Vec<Item> {
    calls.map(|(id, name)| Item::function_call(id, name, r#"{"input":"x"}"#)).into()
}

fn agent(log: &Log) -> Agent {
    let inner = ScriptedModel::new([calls([("i1", "gate"), ("i2", "look")]), says("inner")]);
    let helper = Agent::new("helper").tool(echo("gate", log).needs_approval()).tool(echo("look", log)).model(inner);
    let second = Agent::new("b").tool(echo("look", log)).model(ScriptedModel::new([says("done")]));
    let outer = ScriptedModel::new([
        calls([("c1", "look"), ("c2", "gate"), ("c3", "helper")]),
        calls([("c4", "transfer_to_b"), ("c5", "look")]),
    ]);
    Agent::new("a")
        .model(outer)
        .tool(echo("look", log))
        .tool(echo("gate", log).needs_approval())
        .tool(helper.as_tool("helper", ""))
        .handoff(second)
}

async fn saved() -> Vec<Value> {
    let agent = agent(&Log::default());
    let mut all = Vec::new();
    let mut next = run(&agent, "go").max_turns(u32::MAX);
    while let Ok(result) = next.steps(1).await {
        let mut state = result.to_state();
        all.push(Value::from(state.clone()));
        if *result.stop() == Stop::Finished {
            break;
        }
        for call in state.interruptions() {
            state.approve(&call).expect("it waits");
        }
        next = run(&agent, state);
    }
    all
}

/// JSON pointers of all parts of a value.
fn places(value: &Value, at: &str, all: &mut Vec<String>) {
    all.push(at.to_owned());
    match value {
        Value::Array(list) => list.iter().enumerate().for_each(|(n, child)| places(child, &format!("{at}/{n}"), all)),
        Value::Object(fields) => fields.iter().for_each(|(name, child)| {
            places(child, &format!("{at}/{}", name.replace('~', "~0").replace('/', "~1")), all);
        }),
        _ => {}
    }
}

/// Whether a part belongs to the state of a call; there, every replacement is tested.
fn is_about_calls(place: &str) -> bool {
    place.starts_with("/phase") && place.matches('/').count() <= 4
}

fn drive(runtime: &Runtime, text: &str) -> Result<usize, String> {
    let Ok(mut state) = RunState::from_json(text) else { return Ok(0) };
    let log = Log::default();
    let played = catch_unwind(AssertUnwindSafe(|| {
        let _looked_at = (state.run().next(), state.run().replies().count(), state.run().input_list());
        for (place, call) in state.interruptions().iter().enumerate() {
            let _nameless = if place == 0 { state.approve(call) } else { state.reject_always(call, None) };
        }
        let agent = agent(&log);
        let outcome = runtime.block_on(async { run(&agent, state).steps(30).await });
        let left = outcome.map_or_else(|error| error.state(), |result| result.to_state());
        let text = left.to_json().expect("saved");
        RunState::from_json(&text).expect("loaded again");
    }));
    played.map_err(|panic| panic.downcast_ref::<String>().cloned().unwrap_or_else(|| "a panic".to_owned()))?;
    Ok(log.lines().len())
}

#[test]
fn a_saved_run_with_any_part_exchanged_is_refused_or_driven_and_makes_no_call_without_end() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let by = [
        Value::Null,
        json!(-1),
        json!(0),
        json!(1),
        json!(u64::MAX),
        json!(u32::MAX),
        json!(1e308),
        json!(""),
        json!("c1"),
        json!("c2"),
        json!("open"),
        json!("begun"),
        json!("held"),
        json!("answered"),
        json!("unknown"),
        json!({ "handoff": "b" }),
        json!([]),
        json!({}),
    ];
    let mut wrong = std::collections::BTreeMap::new();
    let mut turn = 0;
    for saved in runtime.block_on(saved()) {
        let mut all = Vec::new();
        places(&saved, "", &mut all);
        for (by, place) in by.iter().flat_map(|by| all.iter().map(move |place| (by, place))) {
            turn += 1;
            if turn % SAMPLED != 0 && !is_about_calls(place) {
                continue;
            }
            let mut value = saved.clone();
            *value.pointer_mut(place).expect("a place") = by.clone();
            let trouble = match drive(&runtime, &value.to_string()) {
                Ok(0..=12) => continue,
                Ok(many) => format!("{many} calls"),
                Err(panic) => panic,
            };
            wrong.entry(trouble).or_insert_with(|| format!("{place} = {by}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
