//! The workloads: turns in memory, turns over HTTP, deltas, many concurrent runs.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use futures::{StreamExt as _, stream};
use sandbar_agent::{
    Agent, FunctionTool, Item, Model, ModelError, ModelEvent, ModelReply, ModelRequest, ModelStream, NoArguments,
    Responses, ToolContext, run,
};
use sandbar_mock::{MockServer, Script, item};
use serde_json::json;

/// Answers with a call each turn, and a word after the last; remembers nothing.
#[derive(Debug)]
struct Bare {
    turns: usize,
    done: AtomicUsize,
}

#[async_trait]
impl Model for Bare {
    fn name(&self) -> &'static str {
        "bare"
    }

    async fn stream(&self, request: ModelRequest) -> Result<ModelStream, ModelError> {
        drop(request);
        let done = self.done.fetch_add(1, Ordering::Relaxed);
        let output = if done < self.turns {
            vec![Item::function_call(format!("c{done}"), "noop", "{}")]
        } else {
            vec![Item::assistant("done")]
        };
        Ok(stream::iter([Ok(ModelEvent::Done(ModelReply { output, ..ModelReply::default() }))]).boxed())
    }
}

fn noop() -> FunctionTool {
    FunctionTool::new("noop", "Does nothing.", |_: ToolContext, _: NoArguments| async { "ok" })
}

/// Turns with one tool, model in memory.
pub(crate) async fn turns(turns: usize) -> Duration {
    let agent = Agent::new("x").model(Bare { turns, done: AtomicUsize::new(0) }).tool(noop());
    let begun = Instant::now();
    let result = run(&agent, "go").max_turns(turns as u32 + 5).await.unwrap();
    assert_eq!(result.final_output(), "done");
    begun.elapsed()
}

/// A server with this many turns of one call each, then a word.
pub(crate) fn calling_server(turns: usize) -> MockServer {
    let script = (0..turns).fold(Script::new(), |script, _| script.turn(item::function_call("noop", json!({}))));
    MockServer::start(script.turn(item::text("done")).log_entries(1)).unwrap()
}

/// A server that says one long thing in this many deltas.
pub(crate) fn talking_server(deltas: usize) -> MockServer {
    let script = Script::new().turn(item::text(" word".repeat(deltas))).delta_chars(5).log_entries(1);
    MockServer::start(script).unwrap()
}

fn model(url: &str) -> Responses {
    Responses::new("bench").base_url(url).api_key("x")
}

pub(crate) async fn http_turns(url: &str, turns: usize) -> Duration {
    let agent = Agent::new("x").model(model(url)).tool(noop());
    let begun = Instant::now();
    let mut stream = run(&agent, "go").max_turns(turns as u32 + 5).stream();
    while stream.next().await.is_some() {}
    assert_eq!(stream.result().await.unwrap().final_output(), "done");
    begun.elapsed()
}

pub(crate) async fn deltas(url: &str, expected: usize) -> Duration {
    let agent = Agent::new("x").model(model(url));
    let begun = Instant::now();
    let mut stream = run(&agent, "go").stream();
    let mut seen = 0;
    while let Some(event) = stream.next().await {
        seen += usize::from(event.text_delta().is_some());
    }
    assert_eq!(seen, expected);
    begun.elapsed()
}

/// Many runs at once, each of a few turns over HTTP.
pub(crate) async fn many(url: &str, runs: usize) -> Duration {
    let agent = Agent::new("x").model(model(url)).tool(noop());
    let begun = Instant::now();
    let all = (0..runs).map(|_| {
        let agent = agent.clone();
        tokio::spawn(async move {
            let mut stream = run(&agent, "go").stream();
            while stream.next().await.is_some() {}
            assert_eq!(stream.result().await.unwrap().final_output(), "done");
        })
    });
    for run in Vec::from_iter(all) {
        run.await.unwrap();
    }
    begun.elapsed()
}

/// For a process of its own, so that its memory is that of the runs alone.
pub(crate) async fn many_and_report(url: &str, rounds: usize) {
    many(url, 1).await;
    let mut seconds = Vec::new();
    for _ in 0..rounds {
        seconds.push(many(url, 200).await.as_secs_f64());
    }
    println!("{}", json!({ "name": "many", "seconds": seconds, "peak_mb": peak_mb() }));
}

fn peak_mb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    line.trim().trim_end_matches("kB").trim().parse::<f64>().unwrap_or(0.0) / 1024.0
}
