//! Arguments without a name.

use sandbar_agent::tool;

/// Adds.
#[tool]
async fn add((a, b): (i64, i64), _: u8) -> i64 {
    a + b
}

fn main() {}
