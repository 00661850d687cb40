//! Guardrails: one stops a run before it starts, one rejects a tool call with a message for the model.
//!
//! Run with `cargo run -p sandbar --example guardrails`. It prints:
//!
//! ```text
//! input guardrail no-homework stopped the run: {"word":"homework"}
//! Not that one, but I can tell you a joke.
//! the model was asked 2 times in all
//! ```

#![allow(clippy::print_stdout, reason = "an example prints")]

use sandbar::{
    mock::{MockServer, Script, item},
    prelude::*,
};
use serde_json::json;

/// Removes a file.
#[tool]
async fn remove(path: String) -> String {
    format!("removed {path}")
}

fn no_homework() -> InputGuardrail {
    InputGuardrail::new("no-homework", |check| async move {
        let asked =
            check.input.iter().any(|item| item.text_field("content").is_some_and(|text| text.contains("homework")));
        Ok(if asked { Finding::trip(json!({ "word": "homework" })) } else { Finding::pass() })
    })
}

fn only_temporary() -> ToolInputGuardrail {
    ToolInputGuardrail::new("only-temporary", |call| async move {
        let temporary = call.arguments().contains("\"tmp/");
        Ok(if temporary { ToolVerdict::Allow } else { ToolVerdict::Reject("only files below tmp/ are removed".into()) })
    })
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let server = MockServer::start(
        Script::new()
            .turn(item::function_call("remove", json!({ "path": "diary.txt" })))
            .turn(item::text("Not that one, but I can tell you a joke.")),
    )?;
    let agent = Agent::new("helper")
        .model(Responses::new("gpt-5.5").base_url(server.base_url()))
        .tool(remove.ruled(|rules| rules.input_guardrails.push(only_temporary())))
        // `input_guardrail` checks while the model already answers; this one checks before.
        .blocking_guardrail(no_homework());

    match run(&agent, "Do my homework.").await {
        Err(failed) => match failed.error() {
            AgentError::Tripwire { info, .. } => println!("{failed}: {info}"),
            other => println!("{other}"),
        },
        Ok(result) => println!("{}", result.final_output()),
    }
    println!("{}", run(&agent, "Remove my diary.").await?.final_output());
    println!("the model was asked {} times in all", server.requests().len());
    Ok(())
}
