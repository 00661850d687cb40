//! The events of a run: pieces of text, calls, and their outputs.
//!
//! Run with `cargo run -p sandbar --example streaming`. It prints:
//!
//! ```text
//! [tool_called] roll
//! [tool_output] 4
//! You roll|ed a 4, |chosen b|y fair d|ice.|
//! [message_output_created] done
//! Finished
//! ```

#![allow(clippy::print_stdout, reason = "an example prints")]

use sandbar::{
    mock::{MockServer, Script, item},
    prelude::*,
};
use serde_json::json;

/// Rolls a die.
#[tool]
async fn roll() -> u32 {
    4
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let script = Script::new()
        .turn(item::function_call("roll", json!({})))
        .turn(item::text("You rolled a 4, chosen by fair dice."));
    let server = MockServer::start(script)?;
    let agent = Agent::new("croupier").model(Responses::new("gpt-5.5").base_url(server.base_url())).tool(roll);

    // The run makes progress only while the stream is read; a drop or `cancel_now` stops the run.
    let mut stream = run(&agent, "Roll for me.").stream();
    let mut in_text = false;
    while let Some(event) = stream.next().await {
        if let Some(text) = event.text_delta() {
            print!("{text}|");
            in_text = true;
        } else if let RunEvent::Item { name, item } = event {
            let what = item.raw.text_field("name").or(item.raw.text_field("output")).unwrap_or("done");
            println!("{}[{name}] {what}", if in_text { "\n" } else { "" });
            in_text = false;
        }
    }
    println!("{:?}", stream.result().await?.stop());
    Ok(())
}
