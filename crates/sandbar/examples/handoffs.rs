//! One agent finds out what the user wants and hands the conversation over to another agent, which answers.
//!
//! Run with `cargo run -p sandbar --example handoffs`. It prints:
//!
//! ```text
//! because "The lamp does not shine."
//! returns: Send it back, the stamp is on us.
//! ```

#![allow(clippy::print_stdout, reason = "an example prints")]

use sandbar::{
    agent::handoff::InputFilter,
    mock::{Conversation, MockServer, Script, When, item},
    prelude::*,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

/// Arguments of the handoff.
#[derive(Deserialize, JsonSchema)]
struct Reason {
    reason: String,
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let wish = item::function_call("transfer_to_returns", json!({ "reason": "The lamp does not shine." }));
    let finding_out = Conversation::new().when(When::any().instructions("Find out")).turn(wish);
    let taking_back = Conversation::new().turn(item::text("Send it back, the stamp is on us."));
    let server = MockServer::start(Script::new().conversation(finding_out).conversation(taking_back))?;

    let orders = Agent::new("orders").handoff_description("Takes new orders.");
    let returns = Agent::new("returns").instructions("You take things back.");
    let to_returns = Handoff::to(returns)
        .with_input(|_app, arguments: Reason| async move {
            println!("because {:?}", arguments.reason);
            Ok(())
        })
        // The history that the next agent sees: here, without calls and their outputs.
        .filter(InputFilter::without_tools());
    let triage = Agent::new("triage")
        .instructions("Find out what the person wants, then hand over.")
        .handoff(orders)
        .handoff(to_returns);

    // The model of the run serves all its agents.
    let model = Responses::new("gpt-5.5").base_url(server.base_url());
    let result = run(&triage, "My new lamp stays dark.").model(model).await?;
    println!("{}: {}", result.last_agent(), result.final_output());
    Ok(())
}
