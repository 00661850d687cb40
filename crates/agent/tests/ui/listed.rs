//! A doc comment about an argument that does not exist.

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
