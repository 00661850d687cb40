//! A capability of one's own: it puts a file into the workspace, lends a tool and some words, and has the last look.
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

/// Lets an agent keep a cash book, which is a file that it can also read with everything else it has.
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

    // Before the workspace is made. `ensure` leaves alone what is there already.
    fn shape(&self, manifest: &mut Manifest) -> Result<(), SandboxError> {
        manifest.ensure("book.csv", File::new(""));
        Ok(())
    }

    // When the agent begins to work: what belongs to the run lives in the gear, never in the capability.
    async fn equip(&self, place: &Workplace) -> Result<Gear, SandboxError> {
        let session = place.session().clone();
        let book = FunctionTool::new("book", "Books an expense.", move |_call, it: Booking| {
            let session = session.clone();
            async move {
                println!("{} EUR for {}", it.euros, it.what);
                let before = session.read_text("book.csv").await?;
                session.write("book.csv", format!("{before}{},{}\n", it.euros, it.what)).await?;
                Ok::<_, SandboxError>("booked")
            }
        });
        Ok(Gear::new().words("Every expense goes into the book, one call each.").tool(book))
    }

    // Before the session ends, whoever ends it.
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

    // Beside the usual three; `capabilities` would replace them.
    let clerk = SandboxAgent::new("clerk")
        .model(Responses::new("gpt-5.5").base_url(server.base_url()))
        .instructions("You keep the cash book.")
        .capability(CashBook);

    let result = run(&clerk, "5 euros for stamps, 40 for paper.").sandbox(UnixLocal::new()).await?;
    println!("{}", result.final_output());
    Ok(())
}
