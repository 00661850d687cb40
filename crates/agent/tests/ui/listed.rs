//! A doc comment about an argument that is not there.

use sandbar_agent::tool;

/// Greets.
///
/// # Arguments
/// - `name`: whom
/// - `nmae`: whom
#[tool]
async fn greet(name: String) -> String {
    name
}

fn main() {}
