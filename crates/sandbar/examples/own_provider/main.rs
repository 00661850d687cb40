//! A custom provider, registered with the others and used for a session and by an agent. The provider is in `toy.rs`.
//!
//! Run with `cargo run -p sandbar --example own_provider`. It prints:
//!
//! ```text
//! toy: directories of this host, without isolation
//! a session: hello from a toy
//! an agent: The note has two words.
//! ```

#![allow(clippy::print_stdout, reason = "an example prints")]

mod toy;

use sandbar::{
    BoxError,
    client::{Registry, registry::ClientContext},
    machine::Demand,
    prelude::*,
};

use self::toy::Toy;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let registry = Registry::builtin().with(Toy);
    let source = registry.parse("toy")?;
    println!("{source}: {}", registry.provider("toy")?.summary());
    let client = registry.client(&source, &ClientContext::default())?;
    // The toy cannot isolate, so the specification must allow that explicitly.
    let machine = MachineSpec::default().isolation(Demand::None).network(Network::Host);

    let manifest = Manifest::new().file("note.txt", "hello from a toy\n");
    let session = SandboxSession::open(client.clone(), SessionOptions::new(manifest).machine(machine.clone())).await?;
    print!("a session: {}", session.exec(Exec::shell("cat note.txt")).await?.stdout_text());
    session.delete().await?;

    let model = ScriptedModel::new([
        vec![Item::function_call("call_1", "exec_command", r#"{"cmd":"wc -w < note.txt"}"#)],
        vec![Item::assistant("The note has two words.")],
    ]);
    let clerk = SandboxAgent::new("clerk").model(model).manifest(Manifest::new().file("note.txt", "two words\n"));
    let config = SandboxRunConfig::from(client).machine(machine);
    let result = run(&clerk, "How long is the note?").sandbox(config).await?;
    println!("an agent: {}", result.final_output());
    Ok(())
}
