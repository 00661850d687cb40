//! An agent without a machine hands over to an agent with a machine.
//!
//! Run with `cargo run -p sandbar --example sandbox_handoff`. It prints:
//!
//! ```text
//! at work: bookkeeper
//! 3 invoices.csv
//! bookkeeper: There are two invoices, and a line of titles.
//! ```

#![allow(clippy::print_stdout, reason = "an example prints")]

use sandbar::{
    client::UnixLocal,
    mock::{Conversation, MockServer, Script, When, item},
    prelude::*,
};
use serde_json::json;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    // One server for both agents: the instructions decide which script answers.
    let taking_in = Conversation::new()
        .when(When::any().instructions("You take in wishes."))
        .turn(item::function_call("transfer_to_bookkeeper", json!({})));
    let counting = Conversation::new()
        .turn(item::function_call("exec_command", json!({ "cmd": "wc -l invoices.csv" })))
        .turn(item::text("There are two invoices, and a line of titles."));
    let server = MockServer::start(Script::new().conversation(taking_in).conversation(counting))?;

    let bookkeeper = SandboxAgent::new("bookkeeper")
        .instructions("Answer from the files of the workspace.")
        .manifest(Manifest::new().file("invoices.csv", "number,euros\n17,200\n18,350\n"));
    let intake = Agent::new("intake").instructions("You take in wishes.").handoff(bookkeeper);

    // The machine is created only when the bookkeeper takes over.
    let model = Responses::new("gpt-5.5").base_url(server.base_url());
    let mut stream = run(&intake, "How many invoices are there?").model(model).sandbox(UnixLocal::new()).stream();
    while let Some(event) = stream.next().await {
        match event {
            RunEvent::Agent(name) => println!("at work: {name}"),
            RunEvent::Progress { text, .. } => print!("{text}"),
            _ => {}
        }
    }
    let result = stream.result().await?;
    println!("{}: {}", result.last_agent(), result.final_output());
    Ok(())
}
