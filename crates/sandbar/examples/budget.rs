//! A run that stops when its budget is spent, and continues with a larger budget.
//!
//! Run with `cargo run -p sandbar --example budget`. It prints:
//!
//! ```text
//! Budget(Tokens { spent: 1000, of: 900 })
//! so far: page 2
//! finished: Three pages, read.
//! 1500 tokens, 0.0075 dollars
//! ```

#![allow(clippy::print_stdout, reason = "an example prints")]

use sandbar::{
    agent::{Price, Prices},
    mock::{MockServer, Script, Turn, item},
    prelude::*,
};
use serde_json::json;

/// Reads a page.
#[tool]
async fn read(page: u32) -> String {
    format!("page {page}")
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let page = |page| Turn::new([item::function_call("read", json!({ "page": page }))]).tokens(400, 100);
    let end = Turn::new([item::text("Three pages, read.")]).tokens(400, 100);
    let server = MockServer::start(Script::new().turn(page(1)).turn(page(2)).turn(end))?;
    let agent = Agent::new("reader").model(Responses::new("house-model").base_url(server.base_url())).tool(read);

    // Prices of known models are built in, but can be outdated; your own prices take precedence. Time can be limited too.
    let prices = Prices::default().with("house-", Price { input: 2.5, cached: 0.25, output: 15.0 });
    let budget = Budget::new().tokens(900).dollars(1.0).prices(prices.clone());

    let stopped = run(&agent, "Read everything.").budget(budget.clone()).await?;
    println!("{:?}", stopped.stop());
    println!("so far: {}", stopped.final_output());

    // The usage so far still counts, also after the run was saved and loaded.
    let mut state = stopped.to_state();
    state.set_budget(budget.tokens(2_000));
    let result = run(&agent, state).await?;
    println!("finished: {}", result.final_output());
    println!("{} tokens, {} dollars", result.usage().total_tokens, prices.cost(result.usage()));
    Ok(())
}
