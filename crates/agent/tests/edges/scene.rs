//! Parts of the scenes of these tests.

use std::sync::Arc;

use parking_lot::Mutex;
use sandbar_agent::{
    BoxError, FunctionTool, Item, ModelReply, RunState, ScriptedModel, Tool, ToolContext, Turn, Usage,
};
use serde_json::{Value, json};

#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    pub(crate) fn line(&self, text: impl Into<String>) {
        self.0.lock().push(text.into());
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.0.lock().clone()
    }
}

pub(crate) fn says(text: &str) -> Vec<Item> {
    vec![Item::assistant(text)]
}

pub(crate) fn calls<const N: usize>(calls: [(&str, &str, &str); N]) -> Vec<Item> {
    calls.into_iter().map(|(id, name, arguments)| Item::function_call(id, name, arguments)).collect()
}

pub(crate) fn script<const N: usize>(turns: [Vec<Item>; N]) -> ScriptedModel {
    ScriptedModel::new(turns)
}

/// A model whose turns use tokens.
pub(crate) fn costly<const N: usize>(turns: [(u64, Vec<Item>); N]) -> ScriptedModel {
    ScriptedModel::new(turns.map(|(tokens, output)| {
        let usage = Usage { requests: 1, output_tokens: tokens, total_tokens: tokens, ..Usage::default() };
        Turn::Reply(ModelReply { output, usage, ..ModelReply::default() })
    }))
}

pub(crate) fn open_schema() -> Value {
    json!({ "type": "object", "properties": {}, "additionalProperties": true })
}

/// A tool that logs its calls and returns its name and arguments.
pub(crate) fn echo(name: &str, log: &Log) -> impl Tool + Clone + 'static {
    let (log, known) = (log.clone(), name.to_owned());
    FunctionTool::raw(name, "Repeats.", open_schema(), move |_: ToolContext, arguments: Value| {
        let (log, known) = (log.clone(), known.clone());
        async move {
            log.line(format!("{known} {arguments}"));
            Ok::<_, BoxError>(format!("{known} {arguments}"))
        }
    })
    .lenient()
}

pub(crate) fn reload(state: &RunState) -> RunState {
    RunState::from_json(&state.to_json().expect("saved")).expect("loaded")
}

/// A state after a change of its JSON.
pub(crate) fn tampered(state: &RunState, change: impl FnOnce(&mut Value)) -> sandbar_agent::Result<RunState> {
    let mut value: Value = serde_json::from_str(&state.to_json().expect("saved")).expect("json");
    change(&mut value);
    RunState::from_json(&value.to_string())
}
