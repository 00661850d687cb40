//! Agents on machines as tools of another: one works where its caller works, the other has a machine of its own.
//!
//! Run with `cargo run -p sandbar --example sandbox_agents_as_tools`. It prints:
//!
//! ```text
//! [reviewer] draft.md
//! [researcher] figures.csv
//! The draft is reviewed, and the figures are in.
//! ```

#![allow(clippy::print_stdout, reason = "an example prints")]

use sandbar::{
    agent::{AgentTool, NestedEvent},
    client::UnixLocal,
    mock::{Conversation, MockServer, Script, When, item},
    prelude::*,
};
use serde_json::json;

/// Prints what the commands of a nested run print.
fn heard(tool: AgentTool) -> AgentTool {
    tool.on_event(|told: NestedEvent| {
        if let RunEvent::Progress { text, .. } = told.event {
            print!("[{}] {text}", told.agent);
        }
    })
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    // Both do the same, and see what there is where they are.
    let looking = |who: &str| {
        Conversation::new()
            .when(When::any().instructions(who))
            .turn(item::function_call("exec_command", json!({ "cmd": "ls" })))
            .turn(item::text("Done."))
    };
    let leading = Conversation::new()
        .turn(item::function_call("review", json!({ "input": "Review the draft." })))
        .turn(item::function_call("research", json!({ "input": "Get the figures." })))
        .turn(item::text("The draft is reviewed, and the figures are in."));
    let script = Script::new().conversation(looking("You review.")).conversation(looking("You research."));
    let server = MockServer::start(script.conversation(leading))?;

    let reviewer = SandboxAgent::new("reviewer").instructions("You review.");
    let researcher = SandboxAgent::new("researcher")
        .instructions("You research.")
        .manifest(Manifest::new().file("figures.csv", "year,euros\n2025,4200\n"));
    let editor = SandboxAgent::new("editor")
        .instructions("You lead.")
        .manifest(Manifest::new().file("draft.md", "# Draft\n"))
        // Sees, and could change, what the editor works on.
        .tool(heard(reviewer.as_tool("review", "Reviews the workspace.").share_place()))
        // Never gets to see it. Each call has a fresh machine, which could be of another client.
        .tool(heard(researcher.as_tool("research", "Finds figures.").sandbox(UnixLocal::new())));

    let model = Responses::new("gpt-5.5").base_url(server.base_url());
    let result = run(&editor, "Get the draft ready.").model(model).sandbox(UnixLocal::new()).await?;
    println!("{}", result.final_output());
    Ok(())
}
