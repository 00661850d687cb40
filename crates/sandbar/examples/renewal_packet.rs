//! An agent reads documents on its own machine, and answers with its sources.
//!
//! Run with `cargo run -p sandbar --example renewal_packet`. It prints:
//!
//! ```text
//! $ grep -n -- '^-' *.md
//! account_brief.md:3:- Segment: Mid-market healthcare analytics provider.
//! account_brief.md:4:- Renewal date: 2026-04-15.
//! implementation_risks.md:3:- Security questionnaire is not complete.
//! implementation_risks.md:4:- Procurement requires final legal language by April 1.
//!
//! Two things block the renewal of April 15 (account_brief.md): the security questionnaire and the legal language
//! (implementation_risks.md). Finish the questionnaire this week; send the language before April 1.
//! ```

#![allow(clippy::print_stdout, reason = "an example prints")]

use sandbar::{
    client::UnixLocal,
    mock::{MockServer, Script, item},
    prelude::*,
};
use serde_json::json;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let server = MockServer::start(
        Script::new()
            .turn(item::function_call("exec_command", json!({ "cmd": "grep -n -- '^-' *.md" })))
            .turn(item::text(ANSWER)),
    )?;

    // With a key, `.model("gpt-5.5")` is enough.
    let analyst = SandboxAgent::new("Renewal Packet Analyst")
        .model(Responses::new("gpt-5.5").base_url(server.base_url()))
        .instructions("Review the workspace before answering. Be concise, and name the files behind each conclusion.")
        .manifest(Manifest::new().file("account_brief.md", BRIEF).file("implementation_risks.md", RISKS))
        .capabilities([Shell::new()]);

    // The machine exists only during this run. `.await` instead of `.stream()` returns only the answer.
    let question = "Summarize the renewal blockers and recommend the next two actions.";
    let mut stream = run(&analyst, question).sandbox(UnixLocal::new()).stream();
    while let Some(event) = stream.next().await {
        match event {
            RunEvent::Item { name: "tool_called", item } => println!("$ {}", command(&item)),
            RunEvent::Progress { text, .. } => print!("{text}"),
            _ => {}
        }
    }
    println!("\n{}", stream.result().await?.final_output());
    Ok(())
}

/// The command line in a call of `exec_command`.
fn command(call: &RunItem) -> String {
    let arguments = call.raw.text_field("arguments").and_then(|text| serde_json::from_str(text).ok());
    arguments.and_then(|it: serde_json::Value| Some(it["cmd"].as_str()?.to_owned())).unwrap_or_default()
}

const BRIEF: &str = "\
# Northwind Health

- Segment: Mid-market healthcare analytics provider.
- Renewal date: 2026-04-15.
";

const RISKS: &str = "\
# Delivery risks

- Security questionnaire is not complete.
- Procurement requires final legal language by April 1.
";

const ANSWER: &str = "\
Two things block the renewal of April 15 (account_brief.md): the security questionnaire and the legal language
(implementation_risks.md). Finish the questionnaire this week; send the language before April 1.";
