//! A custom capability: adds a file, a tool and instructions, and reads the file before the session ends.
//!
//! Run with `cargo run -p sandbar --example own_capability`. It prints:
//!
//! ```text
//! 5 EUR for stamps
//! 40 EUR for paper
//! the book at the end: 5,stamps; 40,paper
//! Booked.
//! ```

#![allow(clippy::print_stdout, reason = "an example prints")]

use sandbar::{
    client::UnixLocal,
    mock::{MockServer, Script, item},
    prelude::*,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

/// Lets an agent keep a cash book, which is a file of the workspace.
#[derive(Debug)]
struct CashBook;

#[derive(Deserialize, JsonSchema)]
struct Booking {
    euros: u32,
    what: String,
}

#[async_trait]
impl Capability for CashBook {
    fn kind(&self) -> &str {
        "cash_book"
    }

    // Called before the workspace is created. `ensure` does not change an existing entry.
    fn shape(&self, manifest: &mut Manifest) -> Result<(), SandboxError> {
        manifest.ensure("book.csv", File::new(""));
        Ok(())
    }

    // Called when the agent begins to work. The state of the run belongs in the kit, never into the capability.
    async fn equip(&self, agent_session: &AgentSession) -> Result<CapabilityKit, SandboxError> {
        let session = agent_session.session().clone();
        let book = FunctionTool::new("book", "Books an expense.", move |_call, it: Booking| {
            let session = session.clone();
            async move {
                println!("{} EUR for {}", it.euros, it.what);
                let before = session.read_text("book.csv").await?;
                session.write("book.csv", format!("{before}{},{}\n", it.euros, it.what)).await?;
                Ok::<_, SandboxError>("booked")
            }
        });
        Ok(CapabilityKit::new().instructions("Every expense goes into the book, one call each.").tool(book))
    }

    // Called before the session ends.
    async fn before_stop(&self, session: &SandboxSession) -> Result<(), SandboxError> {
        let book = session.read_text("book.csv").await?;
        println!("the book at the end: {}", book.trim_end().replace('\n', "; "));
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let book = |euros, what| item::function_call("book", json!({ "euros": euros, "what": what }));
    let script = Script::new().turn(book(5, "stamps")).turn(book(40, "paper")).turn(item::text("Booked."));
    let server = MockServer::start(script)?;

    // Added to the three default capabilities; `capabilities` would replace them.
    let clerk = SandboxAgent::new("clerk")
        .model(Responses::new("gpt-5.5").base_url(server.base_url()))
        .instructions("You keep the cash book.")
        .capability(CashBook);

    let result = run(&clerk, "5 euros for stamps, 40 for paper.").sandbox(UnixLocal::new()).await?;
    println!("{}", result.final_output());
    Ok(())
}
