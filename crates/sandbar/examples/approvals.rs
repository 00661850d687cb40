//! A run that waits for the approval of a person: it pauses, is saved, is loaded again, is decided about, and continues.
//!
//! Run with `cargo run -p sandbar --example approvals`. It prints:
//!
//! ```text
//! refunding 5 EUR for order 9
//! refund wants {"order":7,"euros":20} and waits
//! refund wants {"order":8,"euros":900} and waits
//! refunding 20 EUR for order 7
//! Two are refunded; order 8 needs a receipt.
//! ```

#![allow(clippy::print_stdout, reason = "an example prints")]

use std::{env::temp_dir, fs, process};

use sandbar::{
    mock::{MockServer, Script, item},
    prelude::*,
};
use serde_json::json;

/// Pays money back.
#[tool]
async fn refund(order: u32, euros: u32) -> String {
    println!("refunding {euros} EUR for order {order}");
    "done".to_owned()
}

/// The same agent in every process. Small sums need no approval; `needs_approval` would ask about every call.
fn clerk(server: &MockServer) -> Agent {
    let large = Approval::when(|_call, arguments| async move { arguments["euros"].as_u64() > Some(10) });
    Agent::new("clerk").model(Responses::new("gpt-5.5").base_url(server.base_url())).tool(refund.approval(large))
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let wish = |order, euros| item::function_call("refund", json!({ "order": order, "euros": euros }));
    let server = MockServer::start(
        Script::new()
            .turn([wish(7, 20), wish(8, 900), wish(9, 5)])
            .turn(item::text("Two are refunded; order 8 needs a receipt.")),
    )?;
    let file = temp_dir().join(format!("sandbar-approvals-{}.json", process::id()));

    let paused = run(clerk(&server), "Refund orders 7, 8 and 9.").await?;
    fs::write(&file, paused.to_state().to_json()?)?;

    // Days later, in another process:
    let mut state = RunState::from_json(&fs::read_to_string(&file)?)?;
    for call in state.interruptions() {
        println!("{} wants {} and waits", call.tool, call.arguments);
        if call.arguments.contains("900") {
            state.reject_with(&call, "Not without a receipt.")?;
        } else {
            state.approve(&call)?;
        }
    }
    // Calls from before the pause are not repeated.
    let result = run(clerk(&server), state).await?;
    println!("{}", result.final_output());
    fs::remove_file(&file)?;
    Ok(())
}
