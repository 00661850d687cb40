//! Sandbox agents as tools of another agent: one shares the session of its caller, one has its own machine.
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

/// Prints the output of the commands of a nested run.
fn with_output(tool: AgentTool) -> AgentTool {
    tool.on_event(|nested: NestedEvent| {
        if let RunEvent::Progress { text, .. } = nested.event {
            print!("[{}] {text}", nested.agent);
        }
    })
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    // Both list the files of their workspace.
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
        // Shares the session of the editor, so it could also change the files.
        .tool(with_output(reviewer.as_tool("review", "Reviews the workspace.").share_place()))
        // Has no access to that session. Each call has a fresh machine, which could be of another client.
        .tool(with_output(researcher.as_tool("research", "Finds figures.").sandbox(UnixLocal::new())));

    let model = Responses::new("gpt-5.5").base_url(server.base_url());
    let result = run(&editor, "Get the draft ready.").model(model).sandbox(UnixLocal::new()).await?;
    println!("{}", result.final_output());
    Ok(())
}
