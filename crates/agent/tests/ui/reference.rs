//! Arguments that are references.

use sandbar_agent::tool;

/// Counts.
#[tool]
async fn count(bytes: &[u8], name: Option<&str>, text: &'static str, line: &mut String) -> usize {
    bytes.len()
}

fn main() {}
