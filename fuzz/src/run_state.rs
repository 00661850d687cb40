//! A saved run, as text from anywhere or as one of ours with parts exchanged: it is refused, or can be looked at and driven.

use std::sync::LazyLock;

use sandbar_agent::{
    Agent, BoxError, FunctionTool, Item, RunState, ScriptedModel, Stop, Tool, ToolContext, ToolExt as _, run,
};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

/// More steps than any honest run here takes, and few enough for a run that goes round in circles.
const STEPS: usize = 12;

static RUNTIME: LazyLock<Runtime> =
    LazyLock::new(|| tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime"));

/// Runs of ours, stopped after each of their steps.
static SAVED: LazyLock<Vec<Value>> = LazyLock::new(saved);

/// Whether the bytes were read to the end.
pub fn accepts(bytes: &[u8]) -> bool {
    let text = match bytes.split_first() {
        Some((b'{', _)) => String::from_utf8_lossy(bytes).into_owned(),
        Some((first, rest)) => exchanged(&SAVED[usize::from(*first) % SAVED.len()], rest),
        None => return false,
    };
    let Ok(mut state) = RunState::from_json(&text) else { return false };
    let _looked_at = (state.run().next(), state.run().replies().count(), state.run().input_list());
    let written = state.to_json().expect("what was loaded can be saved");
    let again = RunState::from_json(&written).expect("what was saved can be loaded");
    assert_eq!(again.to_json().expect("saved again"), written);
    for (place, call) in state.interruptions().iter().enumerate() {
        let decided = if place % 2 == 0 { state.approve(call) } else { state.reject_always(call, None) };
        let _nameless_calls_cannot_be_decided = decided;
    }
    let outcome = RUNTIME.block_on(run(agent(), state).steps(STEPS).into_future());
    let left = outcome.map_or_else(|error| error.state(), |result| result.to_state());
    RunState::from_json(&left.to_json().expect("saved")).expect("what a run leaves can be loaded");
    true
}

/// The same with some parts replaced by others: of each pair of bytes, the first says which part, the second by what.
fn exchanged(saved: &Value, bytes: &[u8]) -> String {
    let mut value = saved.clone();
    for pair in bytes.chunks_exact(2).take(8) {
        let nodes = count(&value);
        let mut place = usize::from(pair[0]) * nodes / 256;
        let by = replacement(saved, pair[1]);
        replace(&mut value, &mut place, &by);
    }
    value.to_string()
}

fn replacement(saved: &Value, byte: u8) -> Value {
    match byte {
        0 => Value::Null,
        1 => json!(-1),
        2 => json!(u64::MAX),
        3 => json!(u32::MAX),
        4 => json!(1e308),
        5 => json!(""),
        6 => json!([]),
        7 => json!({}),
        8 => json!(0),
        9 => json!("open"),
        10 => json!("begun"),
        11 => json!("held"),
        12 => json!("c1"),
        13 => json!("unknown"),
        14 => json!({ "handoff": "b" }),
        15 => json!({ "at": "ready" }),
        _ => {
            let mut place = usize::from(byte) * count(saved) / 256;
            part(saved, &mut place).cloned().unwrap_or_default()
        }
    }
}

fn children(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(list) => list.iter().collect(),
        Value::Object(fields) => fields.values().collect(),
        _ => Vec::new(),
    }
}

fn count(value: &Value) -> usize {
    1 + children(value).into_iter().map(count).sum::<usize>()
}

fn part<'a>(value: &'a Value, place: &mut usize) -> Option<&'a Value> {
    if *place == 0 {
        return Some(value);
    }
    *place -= 1;
    children(value).into_iter().find_map(|child| part(child, place))
}

fn replace(value: &mut Value, place: &mut usize, by: &Value) -> bool {
    if *place == 0 {
        *value = by.clone();
        return true;
    }
    *place -= 1;
    match value {
        Value::Array(list) => list.iter_mut().any(|child| replace(child, place, by)),
        Value::Object(fields) => fields.values_mut().any(|child| replace(child, place, by)),
        _ => false,
    }
}

fn tool(name: &str) -> impl Tool + 'static {
    let schema = json!({ "type": "object", "properties": {}, "additionalProperties": true });
    FunctionTool::raw(name, "", schema, |_: ToolContext, _: Value| async { Ok::<_, BoxError>("ok") }).lenient()
}

fn calls<const N: usize>(calls: [(&str, &str); N]) -> Vec<Item> {
    calls.map(|(id, name)| Item::function_call(id, name, r#"{"input":"x"}"#)).into()
}

fn agent() -> Agent {
    let inner = ScriptedModel::new([calls([("i1", "gate"), ("i2", "look")]), vec![Item::assistant("inner")]]);
    let helper = Agent::new("helper").tool(tool("gate").needs_approval()).tool(tool("look")).model(inner);
    let second = Agent::new("b").tool(tool("look")).model(ScriptedModel::new([vec![Item::assistant("done")]]));
    let outer = ScriptedModel::new([
        calls([("c1", "look"), ("c2", "gate"), ("c3", "helper")]),
        calls([("c4", "transfer_to_b"), ("c5", "look")]),
    ]);
    Agent::new("a")
        .model(outer)
        .tool(tool("look"))
        .tool(tool("gate").needs_approval())
        .tool(helper.as_tool("helper", ""))
        .handoff(second)
}

fn saved() -> Vec<Value> {
    let mut all = Vec::new();
    RUNTIME.block_on(async {
        let agent = agent();
        let mut next = run(&agent, "go");
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
    });
    assert!(all.len() > 8, "only {} steps", all.len());
    all
}
