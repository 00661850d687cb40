//! Three kinds of tools: from a function with `#[tool]`, from a closure, and a freeform tool with text instead of JSON.
//!
//! Run with `cargo run -p sandbar --example tools`. It prints:
//!
//! ```text
//! clock    "It is noon in Oslo."
//! divide   "An error occurred while running the tool. Please try again. Error: division by zero"
//! reverse  "raboof"
//! Noon, impossible, and raboof.
//! ```

#![allow(clippy::print_stdout, reason = "an example prints")]

use std::time::Duration;

use sandbar::{
    agent::Grammar,
    mock::{MockServer, Script, item},
    prelude::*,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

/// Says what time it is.
///
/// The doc comment is what the model reads, and so are those of the arguments. What the run was given along comes in by the
/// context, which the model never sees.
#[tool(timeout = "5s")]
async fn clock(
    call: &ToolContext,
    /// Where; the caller's own town if nothing is said.
    city: Option<String>,
) -> String {
    let home = call.app::<Home>().map_or("nowhere", |home| home.0);
    format!("It is noon in {}.", city.as_deref().unwrap_or(home))
}

struct Home(&'static str);

#[derive(Deserialize, JsonSchema)]
struct Division {
    dividend: i64,
    divisor: i64,
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    // The model reads the error of a failed call; `OnFailure` can change that.
    let divide = FunctionTool::new("divide", "Divides whole numbers.", |_call, it: Division| async move {
        it.dividend.checked_div(it.divisor).ok_or("division by zero")
    });
    let reverse = CustomTool::new("reverse", "Turns a word around.", |_call, word: String| async move {
        word.chars().rev().collect::<String>()
    })
    .grammar(Grammar::regex("[a-z]+"));

    // The calls of one reply run concurrently; the outputs are in the order of the calls.
    let server = MockServer::start(
        Script::new()
            .turn([
                item::function_call("clock", json!({ "city": null })),
                item::function_call("divide", json!({ "dividend": 1, "divisor": 0 })),
                item::custom_tool_call("reverse", "foobar"),
            ])
            .turn(item::text("Noon, impossible, and raboof.")),
    )?;
    let agent = Agent::new("handyman")
        .model(Responses::new("gpt-5.5").base_url(server.base_url()))
        .tool(clock)
        .tool(divide.timeout(Duration::from_secs(1)))
        .tool(reverse);

    let result = run(&agent, "Time, 1/0, and foobar backwards?").app(App::new(Home("Oslo"))).await?;
    let names = ["clock", "divide", "reverse"];
    let answers = result.new_items().iter().filter(|item| item.kind == RunItemKind::ToolOutput);
    for (name, answer) in names.into_iter().zip(answers) {
        println!("{name:8} {}", answer.raw.fields()["output"]);
    }
    println!("{}", result.final_output());
    Ok(())
}
