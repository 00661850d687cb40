//! Hooks, which are called during a run, and a file of traces.
//!
//! Run with `cargo run -p sandbar --example hooks_and_traces`. It prints:
//!
//! ```text
//! librarian asks with 1 items
//! librarian calls look_up: {"title":"Dune"}
//! librarian asks with 3 items
//! On the third floor.
//! Library
//!   task
//!     agent librarian
//!       turn 1
//!         response resp_0_0
//!         function look_up
//!       turn 2
//!         response resp_0_1
//! 8 lines, the first a trace
//! ```

#![allow(clippy::print_stdout, reason = "an example prints")]

use std::{env::temp_dir, fs, process, time::Duration};

use sandbar::{
    agent::{
        hooks::Told,
        trace::{Batched, MemoryTraces, Tracer},
    },
    mock::{MockServer, Script, item},
    prelude::*,
};
use serde_json::{Value, json};

/// Finds a book.
#[tool]
async fn look_up(title: String) -> String {
    format!("{title} is on the third floor.")
}

/// Hooks that print; every method has a default, and an error ends the run.
struct Narrator;

#[async_trait]
impl Hooks for Narrator {
    async fn on_llm_start(&self, at: &HookContext, _instructions: Option<&str>, input: &[Item]) -> Told {
        println!("{} asks with {} items", at.agent, input.len());
        Ok(())
    }

    async fn on_tool_start(&self, at: &HookContext, call: &ToolContext) -> Told {
        println!("{} calls {}: {}", at.agent, call.tool(), call.arguments());
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let server = MockServer::start(
        Script::new()
            .turn(item::function_call("look_up", json!({ "title": "Dune" })))
            .turn(item::text("On the third floor.")),
    )?;
    let model = Responses::new("gpt-5.5").base_url(server.base_url());
    let agent = Agent::new("librarian").model(model).tool(look_up);

    // A separate thread writes the file: a slow or full disk neither delays nor fails a run.
    let file = temp_dir().join(format!("sandbar-traces-{}.jsonl", process::id()));
    let seen = MemoryTraces::default();
    let tracer = Tracer::new(Batched::jsonl(&file)?).and(seen.clone());
    let config = RunConfig::new().tracer(tracer.clone()).workflow("Library");

    let result = run(&agent, "Where is Dune?").config(config).hooks(Narrator).await?;
    println!("{}", result.final_output());

    tracer.flush(Duration::from_secs(10));
    print!("{}", seen.tree());
    let lines: Vec<Value> = fs::read_to_string(&file)?.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    println!("{} lines, the first a {}", lines.len(), lines[0]["object"].as_str().unwrap_or_default());
    fs::remove_file(&file)?;
    Ok(())
}
