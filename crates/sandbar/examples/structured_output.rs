//! A final output of your own type: the server enforces its schema, and the run returns a value instead of text.
//!
//! Run with `cargo run -p sandbar --example structured_output`. It prints:
//!
//! ```text
//! 2 lamps for 59.80 EUR
//! Recipe { title: "Lamp soup" }
//! ```

#![allow(clippy::print_stdout, reason = "an example prints")]

use sandbar::{
    mock::{MockServer, Script, item},
    prelude::*,
};
use schemars::JsonSchema;
use serde::Deserialize;

/// What an order asks for.
#[derive(Debug, Deserialize, JsonSchema)]
struct Order {
    /// What is ordered, in the plural.
    article: String,
    count: u32,
    /// The whole price, if it is named.
    euros: Option<f64>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[expect(dead_code, reason = "it is printed")]
struct Recipe {
    title: String,
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let server = MockServer::start(
        Script::new()
            .turn(item::text(r#"{"article": "lamps", "count": 2, "euros": 59.8}"#))
            .turn(item::text(r#"{"name": "Lamp soup"}"#)),
    )?;
    let model = Responses::new("gpt-5.5").base_url(server.base_url());
    let clerk = Agent::new("clerk").model(model.clone()).output::<Order>();

    let result = run(&clerk, "Two lamps please, I heard that makes 59.80?").await?;
    let order: Order = result.final_output_as()?;
    println!("{} {} for {:.2} EUR", order.count, order.article, order.euros.unwrap_or_default());

    // An output that does not match the type fails the run, unless a recovery function replaces it.
    let config = RunConfig::new().on_invalid_output(|trouble| async move {
        trouble.what.contains("title").then(|| Recovery::with(serde_json::json!({ "title": "Lamp soup" })))
    });
    let cook = Agent::new("cook").model(model).output::<Recipe>();
    let mut talk = result.to_input_list();
    talk.push(Item::user("And what can I cook with them?"));
    println!("{:?}", run(&cook, talk).config(config).await?.final_output_as::<Recipe>()?);
    Ok(())
}
