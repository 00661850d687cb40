//! A custom tool besides those of the capabilities: it runs in this program, the others work on the machine.
//!
//! Run with `cargo run -p sandbar --example custom_tool_beside_capabilities` on a host with a C compiler. It prints:
//!
//! ```text
//! asked for flags, for release
//! tools: build_flags, view_image, apply_patch, exec_command, write_stdin
//! Hi there
//! Built with `cc -O2 -Wall`; it prints "Hi there".
//! ```

#![allow(clippy::print_stdout, reason = "an example prints")]

use sandbar::{
    client::UnixLocal,
    mock::{MockServer, Script, item},
    prelude::*,
};
use serde_json::json;

/// Says which flags the team compiles with.
#[tool]
async fn build_flags(
    /// `debug` or `release`.
    profile: String,
) -> String {
    println!("asked for flags, for {profile}");
    if profile == "release" { "-O2 -Wall".to_owned() } else { "-g -Wall".to_owned() }
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let server = MockServer::start(
        Script::new()
            .turn(item::function_call("build_flags", json!({ "profile": "release" })))
            .turn(item::function_call("exec_command", json!({ "cmd": "cc -O2 -Wall -o hello hello.c && ./hello" })))
            .turn(item::text("Built with `cc -O2 -Wall`; it prints \"Hi there\".")),
    )?;

    let builder = SandboxAgent::new("C builder")
        .model(Responses::new("gpt-5.5").base_url(server.base_url()))
        .instructions("Ask for the flags before you build.")
        .manifest(Manifest::new().file("hello.c", "#include <stdio.h>\nint main() { puts(\"Hi there\"); }\n"))
        .tool(build_flags);

    let mut stream = run(&builder, "Build hello.c and run it.").sandbox(UnixLocal::new()).stream();
    let mut printed = String::new();
    while let Some(event) = stream.next().await {
        if let RunEvent::Progress { text, .. } = event {
            printed.push_str(&text);
        }
    }
    let result = stream.result().await?;
    println!("tools: {}", offered(&server).join(", "));
    println!("{printed}{}", result.final_output());
    Ok(())
}

/// Names of the tools that the model was offered.
fn offered(server: &MockServer) -> Vec<String> {
    let requests = server.requests();
    let tools = requests.first().and_then(|request| request.body["tools"].as_array().cloned()).unwrap_or_default();
    tools.iter().filter_map(|tool| Some(tool["name"].as_str()?.to_owned())).collect()
}
