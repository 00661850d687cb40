//! Scripts of models, and results of runs.

use std::{fs, path::PathBuf, process::Child};

use serde_json::{Value, json};

use super::rig::{Run, Sandbar, finish};

/// What the model says.
pub(crate) fn say(text: &str) -> Value {
    let content = json!([{"type": "output_text", "text": text, "annotations": []}]);
    json!({"type": "message", "role": "assistant", "status": "completed", "content": content})
}

/// A command that the model wants to be run, and waits for.
pub(crate) fn shell(command: &str) -> Value {
    call("exec_command", &json!({"cmd": command, "yield_time_ms": 30_000}))
}

pub(crate) fn call(tool: &str, arguments: &Value) -> Value {
    let id = uuid::Uuid::now_v7().simple();
    let id = format!("call_{id}");
    json!({"type": "function_call", "call_id": id, "name": tool, "arguments": arguments.to_string()})
}

pub(crate) fn patch(text: &str) -> Value {
    let id = format!("call_{}", uuid::Uuid::now_v7().simple());
    json!({"type": "custom_tool_call", "call_id": id, "name": "apply_patch", "input": text})
}

/// A file with these turns, as the value of `--model`.
pub(crate) fn script<const N: usize>(sandbar: &Sandbar, name: &str, turns: [Vec<Value>; N]) -> String {
    let usage = json!({"input_tokens": 100, "output_tokens": 10, "total_tokens": 110});
    let turns: Vec<Value> = turns.iter().map(|output| json!({"output": output, "usage": usage})).collect();
    let file = sandbar.make_file(name, json!({"turns": turns}).to_string());
    format!("script:{}", file.display())
}

/// Runs an agent with `--json`.
pub(crate) fn run(sandbar: &Sandbar, words: &[&str]) -> JsonRun {
    let words: Vec<&str> = ["run", "do it", "--json"].iter().chain(words).copied().collect();
    told(sandbar.command(&words).spawn().expect("spawn"))
}

/// Waits for a run with `--json`.
pub(crate) fn told(child: Child) -> JsonRun {
    let run = finish(child);
    let lines = run.stdout.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect();
    JsonRun { run, lines }
}

/// What a run said with `--json`.
#[derive(Debug)]
pub(crate) struct JsonRun {
    pub(crate) run: Run,
    pub(crate) lines: Vec<Value>,
}

impl JsonRun {
    /// The last line, which says how it ended.
    pub(crate) fn end(&self) -> &Value {
        let last = self.lines.last().unwrap_or_else(|| panic!("no line at all: {:?}", self.run));
        assert_eq!(last["type"], "run_finished", "{last}");
        last
    }

    pub(crate) fn status(&self) -> &str {
        self.end()["status"].as_str().expect("a status")
    }

    pub(crate) fn id(&self) -> &str {
        self.end()["id"].as_str().expect("an id")
    }

    pub(crate) fn message(&self) -> &str {
        self.end()["message"].as_str().unwrap_or_default()
    }

    pub(crate) fn of(&self, kind: &str) -> Vec<&Value> {
        self.lines.iter().filter(|line| line["type"] == kind).collect()
    }

    /// Everything that tools answered.
    pub(crate) fn outputs(&self) -> String {
        let outputs = self.of("tool_output");
        outputs.iter().map(|line| line["output"].as_str().unwrap_or_default()).collect::<Vec<_>>().join("\n")
    }
}

/// The directory of a run.
pub(crate) fn kept(sandbar: &Sandbar, id: &str) -> PathBuf {
    runs(sandbar).join(id)
}

pub(crate) fn runs(sandbar: &Sandbar) -> PathBuf {
    sandbar.dir().join("state/sandbar/runs")
}

/// How many runs are kept.
pub(crate) fn count(sandbar: &Sandbar) -> usize {
    fs::read_dir(runs(sandbar)).map_or(0, Iterator::count)
}

/// How a run is listed.
pub(crate) fn listed(sandbar: &Sandbar, id: &str) -> String {
    let list = sandbar.run(&["runs", "ls", "--json"]);
    let list: Value = serde_json::from_str(&list.stdout).unwrap_or_else(|error| panic!("{error}: {list:?}"));
    let all = list["runs"].as_array().or(list.as_array()).unwrap_or_else(|| panic!("a list: {list}"));
    let found = all.iter().find(|run| run["id"] == id).unwrap_or_else(|| panic!("{id} in {list}"));
    found["status"].as_str().expect("a status").to_owned()
}
