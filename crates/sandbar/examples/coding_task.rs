//! An agent finds a bug in a small C program, fixes it with a patch, builds the program and tests it.
//!
//! Run with `cargo run -p sandbar --example coding_task` on a host with a C compiler. It prints:
//!
//! ```text
//! exec_command: cat task.md && cc -Wall -o sum sum.c && ./sum 1 2 3
//!   `./sum 1 2 3` must print 6.
//!   3
//! apply_patch: sum.c
//!   Updated sum.c
//! exec_command: cc -Wall -o sum sum.c && ./sum 1 2 3 && ./sum -5 5
//!   6
//!   0
//! The loop left out the last number. It is fixed; `./sum 1 2 3` prints 6.
//! ```

#![allow(clippy::print_stdout, reason = "an example prints")]

use sandbar::{
    client::UnixLocal,
    mock::{MockServer, Script, item},
    prelude::*,
};
use serde_json::{Value, json};

const PROGRAM: &str = r#"#include <stdio.h>
#include <stdlib.h>

int main(int count, char **words) {
    int sum = 0;
    for (int at = 1; at < count - 1; at++)
        sum += atoi(words[at]);
    printf("%d\n", sum);
    return 0;
}
"#;

const PATCH: &str = "\
*** Begin Patch
*** Update File: sum.c
@@
-    for (int at = 1; at < count - 1; at++)
+    for (int at = 1; at < count; at++)
*** End Patch
";

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let shell = |cmd: &str| item::function_call("exec_command", json!({ "cmd": cmd }));
    let server = MockServer::start(
        Script::new()
            .turn(shell("cat task.md && cc -Wall -o sum sum.c && ./sum 1 2 3"))
            .turn(item::custom_tool_call("apply_patch", PATCH))
            .turn(shell("cc -Wall -o sum sum.c && ./sum 1 2 3 && ./sum -5 5"))
            .turn(item::text("The loop left out the last number. It is fixed; `./sum 1 2 3` prints 6.")),
    )?;

    // The tools for files and commands are part of the default capabilities.
    let coder = SandboxAgent::new("coder")
        .model(Responses::new("gpt-5.5").base_url(server.base_url()))
        .instructions("Fix the bug, build, run, and report what you ran.")
        .manifest(Manifest::new().file("task.md", "`./sum 1 2 3` must print 6.\n").file("sum.c", PROGRAM));

    let mut stream = run(&coder, "Do what task.md says.").sandbox(UnixLocal::new()).stream();
    while let Some(event) = stream.next().await {
        if let RunEvent::Item { name, item } = event {
            show(name, &item);
        }
    }
    println!("{}", stream.result().await?.final_output());
    Ok(())
}

/// Prints one line per call, and its output below.
fn show(name: &str, item: &RunItem) {
    let field = |name| item.raw.text_field(name).unwrap_or_default();
    match (name, item.raw.kind()) {
        ("tool_called", "custom_tool_call") => println!("{}: sum.c", field("name")),
        ("tool_called", _) => {
            let arguments: Value = serde_json::from_str(field("arguments")).unwrap_or_default();
            println!("{}: {}", field("name"), arguments["cmd"].as_str().unwrap_or_default());
        }
        ("tool_output", _) => {
            let output = field("output");
            let output = output.split_once("Output:\n").map_or(output, |(_, printed)| printed);
            output.lines().for_each(|line| println!("  {line}"));
        }
        _ => {}
    }
}
