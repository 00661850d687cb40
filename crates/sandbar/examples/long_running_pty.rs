//! An agent starts a program in a terminal, sends input to it, reads its output, and ends it with Ctrl-C.
//!
//! Run with `cargo run -p sandbar --example long_running_pty`. It prints the output of the terminal, including the echo:
//!
//! ```text
//! what is your name?
//! Ada
//! hello, Ada; who else?
//! Grace
//! hello, Grace; who else?
//! ^C
//! 2 greeted, bye
//! The greeter works, and it counts.
//! still running: 0
//! ```

#![allow(clippy::print_stdout, reason = "an example prints")]

use std::{sync::Arc, time::Duration};

use sandbar::{
    client::UnixLocal,
    mock::{MockServer, Script, item},
    prelude::*,
    sandbox::processes::{Ids, TableOptions},
};
use serde_json::json;

const GREETER: &str = r#"#!/bin/sh
count=0
trap 'echo; echo "$count greeted, bye"; exit' INT
echo "what is your name?"
while read -r name; do
    count=$((count + 1))
    echo "hello, $name; who else?"
done
"#;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    // A program that still runs when `exec_command` returns has an id, which `write_stdin` needs. A model reads the random
    // id; a script must know it, so the ids of this session start at 1000.
    let type_in = |chars: &str| {
        item::function_call("write_stdin", json!({ "session_id": 1000, "chars": chars, "yield_time_ms": 5000 }))
    };
    let start = json!({ "cmd": "./greeter.sh", "tty": true, "yield_time_ms": 1000 });
    let server = MockServer::start(
        Script::new()
            .turn(item::function_call("exec_command", start))
            .turn(type_in("Ada\n"))
            .turn(type_in("Grace\n"))
            .turn(type_in("\u{3}"))
            .turn(item::text("The greeter works, and it counts.")),
    )?;
    let tester = SandboxAgent::new("tester")
        .model(Responses::new("gpt-5.5").base_url(server.base_url()))
        .instructions("Try the program as a person would.");

    // This program owns the session, so it exists before and after the run. An answer is complete after a second of silence;
    // usually a twentieth of a second is enough.
    let silence = Duration::from_secs(1);
    let options = SessionOptions::new(Manifest::new().file("greeter.sh", GREETER)).processes(TableOptions {
        ids: Ids::Sequential,
        silence,
        ..TableOptions::default()
    });
    let session = SandboxSession::open(Arc::new(UnixLocal::new()), options).await?;

    let mut stream = run(&tester, "Does greeter.sh work?").sandbox(&session).stream();
    while let Some(event) = stream.next().await {
        if let RunEvent::Progress { text, .. } = event {
            print!("{}", text.replace('\r', ""));
        }
    }
    println!("{}", stream.result().await?.final_output());
    println!("still running: {}", session.processes().list().len());
    session.delete().await?;
    Ok(())
}
