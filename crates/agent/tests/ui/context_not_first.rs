//! The context of a call behind other arguments.

use sandbar_agent::{ToolContext, tool};

/// Greets.
#[tool]
async fn greet(name: String, call: &ToolContext) -> String {
    name
}

fn main() {}
