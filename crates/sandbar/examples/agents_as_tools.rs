//! An agent as a tool of another agent: each call is a nested run, whose usage counts for the outer run.
//!
//! Run with `cargo run -p sandbar --example agents_as_tools`. It prints:
//!
//! ```text
//! [translator] message_output_created
//! In Norwegian: God morgen.
//! asked 3 times, for 330 tokens
//! ```

#![allow(clippy::print_stdout, reason = "an example prints")]

use sandbar::{
    mock::{Conversation, MockServer, Script, When, item},
    prelude::*,
};
use serde_json::json;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    // One server for both agents: the instructions decide which script answers.
    let translating = Conversation::new().when(When::any().instructions("translate")).turn(item::text("God morgen."));
    let presenting = Conversation::new()
        .turn(item::function_call("to_norwegian", json!({ "input": "Good morning." })))
        .turn(item::text("In Norwegian: God morgen."));
    let server = MockServer::start(Script::new().conversation(translating).conversation(presenting))?;

    let translator = Agent::new("translator").instructions("You translate to Norwegian.");
    let tool = translator.as_tool("to_norwegian", "Translates to Norwegian.").on_event(|nested| {
        if let RunEvent::Item { name, .. } = nested.event {
            println!("[{}] {name}", nested.agent);
        }
    });
    // The conversation stays with the presenter; a handoff would move it.
    let presenter = Agent::new("presenter").instructions("You present what others say.").tool(tool);

    let model = Responses::new("gpt-5.5").base_url(server.base_url());
    let result = run(&presenter, "Greet me in Norwegian.").model(model).await?;
    println!("{}", result.final_output());
    println!("asked {} times, for {} tokens", result.usage().requests, result.usage().total_tokens);
    Ok(())
}
