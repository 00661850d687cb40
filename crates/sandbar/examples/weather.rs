//! An agent with a tool, with a model server from environment variables.
//!
//! Run with `cargo run -p sandbar --example weather` and `OPENAI_API_KEY` set. Without a key, a scripted server can be the
//! model: `cargo run -p sandbar-mock --example serve -- crates/sandbar/examples/weather.json 8080` in one terminal, and
//! `OPENAI_BASE_URL=http://127.0.0.1:8080/v1` in the other. It prints:
//!
//! ```text
//! Take a raincoat: it rains in Oslo, at 8 degrees.
//! guide asked 2 times, for 245 tokens
//! ```

#![allow(clippy::print_stdout, reason = "an example prints")]

use sandbar::prelude::*;

/// Says what the weather is like.
#[tool]
async fn weather(
    /// The city's name, in English.
    city: String,
) -> String {
    format!("Rain in {city}, 8 degrees.")
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let agent = Agent::new("guide").model("gpt-5.5").instructions("Answer in one sentence.").tool(weather);
    let result = run(&agent, "What should I wear in Oslo?").await?;
    println!("{}", result.final_output());

    let usage = result.usage();
    println!("{} asked {} times, for {} tokens", result.last_agent(), usage.requests, usage.total_tokens);
    Ok(())
}
