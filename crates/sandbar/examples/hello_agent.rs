//! One question to one agent, over real HTTP to a scripted model server.
//!
//! Run with `cargo run -p sandbar --example hello_agent`. It prints:
//!
//! ```text
//! Paris.
//! ```

#![allow(clippy::print_stdout, reason = "an example prints")]

use sandbar::{
    mock::{MockServer, Script, item},
    prelude::*,
};

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let server = MockServer::start(Script::new().turn(item::text("Paris.")))?;

    // With a key, `.model("gpt-5.5")` is enough.
    let model = Responses::new("gpt-5.5").base_url(server.base_url());
    let agent = Agent::new("geographer").instructions("Answer with one word.").model(model);

    let result = run(&agent, "What is the capital of France?").await?;
    println!("{}", result.final_output());
    Ok(())
}
