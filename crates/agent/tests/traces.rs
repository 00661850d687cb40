//! Traces of runs: the tree of spans, the spans of a resumed run, and omitted inputs and outputs.

#![allow(clippy::expect_used, reason = "a test")]

use sandbar_agent::{
    Agent, BoxError, FunctionTool, Item, RunConfig, RunState, ScriptedModel, ToolContext, ToolExt as _,
    guardrail::{Finding, InputGuardrail},
    run,
    trace::{MemoryTraces, Sensitive, TraceEvent, Tracer},
};
use serde_json::{Value, json};

fn tool(name: &str) -> FunctionTool {
    let schema = json!({ "type": "object", "properties": {}, "additionalProperties": true });
    FunctionTool::raw(name, "Works.", schema, |call: ToolContext, _: Value| async move {
        if call.tool() == "fail" {
            return Err::<String, BoxError>("broken".into());
        }
        Ok(format!("{} is fine", call.tool()))
    })
    .lenient()
}

fn call(id: &str, name: &str, arguments: &str) -> Item {
    Item::function_call(id, name, arguments)
}

fn traced(seen: &MemoryTraces) -> RunConfig {
    RunConfig::new().tracer(Tracer::new(seen.clone())).workflow("Test").group("group_1").trace_metadata("ticket", 7)
}

#[tokio::test]
async fn a_run_is_a_tree_of_spans() {
    let seen = MemoryTraces::default();
    let inner = ScriptedModel::new([vec![call("i1", "look", "{}")], vec![Item::assistant("seen")]]);
    let outer = ScriptedModel::new([
        vec![call("c1", "look", "{}"), call("c2", "ask", r#"{"input":"x"}"#)],
        vec![call("c3", "transfer_to_closer", "{}")],
        vec![Item::assistant("bye")],
    ]);
    let helper = Agent::new("helper").tool(tool("look")).model(inner);
    let closer = Agent::new("closer").model(outer.clone());
    let agent = Agent::new("opener")
        .tool(tool("look"))
        .tool(helper.as_tool("ask", "Asks."))
        .handoff(closer)
        .input_guardrail(InputGuardrail::new("polite", |_| async { Ok(Finding::pass()) }))
        .model(outer);
    let result = run(&agent, "go").config(traced(&seen)).await.expect("it runs");
    let expected = "\
Test
  task
    agent opener
      turn 1
        response
        guardrail polite
        function look
        function ask
          task
            agent helper
              turn 1
                response
                function look
              turn 2
                response
      turn 2
        response
        handoff opener -> closer
    agent closer
      turn 3
        response
";
    assert_eq!(shape(&seen.tree()), shape(expected), "{}", seen.tree());
    let info = result.to_state().run().trace().cloned().expect("a trace");
    assert_eq!((Some(info.id), info.group_id.as_deref()), (result.trace_id(), Some("group_1")));
}

/// Depth and kind of each line; the names differ between the two forms.
fn shape(tree: &str) -> Vec<(usize, String)> {
    let kind = |line: &str| line.split_whitespace().next().unwrap_or_default().to_owned();
    tree.lines().map(|line| (line.len() - line.trim_start().len(), kind(line))).collect()
}

#[tokio::test]
async fn a_run_that_is_taken_up_goes_on_in_the_same_trace() {
    let seen = MemoryTraces::default();
    let model = ScriptedModel::new([vec![call("c1", "look", "{}")], vec![Item::assistant("done")]]);
    let agent = Agent::new("a").tool(tool("look").needs_approval()).model(model);
    let paused = run(&agent, "go").config(traced(&seen)).await.expect("it waits");
    let mut state = RunState::from_json(&paused.to_state().to_json().expect("saved")).expect("loaded");
    state.approve(&state.interruptions()[0].clone()).expect("it waits");
    let result = run(&agent, state).config(traced(&seen)).await.expect("it finishes");
    assert_eq!(result.trace_id(), paused.trace_id());
    let starts = seen.events().iter().filter(|event| matches!(event, TraceEvent::TraceStart(_))).count();
    assert_eq!(starts, 1, "the trace starts once");
}

#[tokio::test]
async fn what_is_sensitive_can_be_left_out() {
    for (sensitive, shown) in [(Sensitive::Include, true), (Sensitive::LeaveOut, false)] {
        let seen = MemoryTraces::default();
        let model = ScriptedModel::new([vec![call("c1", "look", r#"{"key":"hunter2"}"#)], vec![Item::assistant("ok")]]);
        let agent = Agent::new("a").tool(tool("look")).model(model);
        let config = RunConfig::new().tracer(Tracer::new(seen.clone()).sensitive(sensitive));
        run(&agent, "go").config(config).await.expect("it runs");
        let spans = format!("{:?}", seen.spans());
        assert_eq!(spans.contains("hunter2"), shown, "{spans}");
    }
}

#[tokio::test]
async fn a_run_that_fails_says_so_in_its_spans() {
    let seen = MemoryTraces::default();
    let model = ScriptedModel::new([vec![call("c1", "fail", "{}")]]);
    let agent = Agent::new("a").tool(tool("fail").on_failure(sandbar_agent::OnFailure::Raise)).model(model);
    run(&agent, "go").config(traced(&seen)).await.expect_err("it fails");
    let failed = seen.spans().iter().filter(|span| span.error.is_some()).count();
    assert_eq!(failed, 4, "function, turn, agent, task: {}", seen.tree());
}
