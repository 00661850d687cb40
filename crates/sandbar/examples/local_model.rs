//! A model on your own computer: any server with the Chat Completions API, such as Ollama, llama.cpp or vLLM.
//!
//! Run with `cargo run -p sandbar --example local_model`. It prints:
//!
//! ```text
//! qwen3:8b via http://127.0.0.1/v1/chat/completions
//! 42.
//! ```

#![allow(clippy::print_stdout, reason = "an example prints")]

use sandbar::{
    agent::ModelEndpoint,
    mock::{MockServer, Script, item},
    prelude::*,
};
use serde_json::json;

/// Multiplies.
#[tool]
async fn multiply(a: i64, b: i64) -> Result<i64, &'static str> {
    a.checked_mul(b).ok_or("too large")
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let script = Script::new().turn(item::function_call("multiply", json!({ "a": 6, "b": 7 }))).turn(item::text("42."));
    let server = MockServer::start(script)?;

    // The prefix of a name selects the server: `ollama/qwen3:8b` is the Ollama of this host by default, `gpu/…` is
    // registered here.
    let models = Models::new().chat("gpu", ModelEndpoint::new(server.base_url()));
    let agent = Agent::new("calculator").model("gpu/qwen3:8b").tool(multiply);

    let result = run(&agent, "What is 6 times 7?").config(RunConfig::new().models(models)).await?;
    let asked = server.requests();
    println!("{} via http://127.0.0.1{}", asked[0].body["model"].as_str().unwrap_or_default(), asked[0].path);
    println!("{}", result.final_output());
    Ok(())
}
