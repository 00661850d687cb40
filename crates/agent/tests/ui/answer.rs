//! A return type that is not a tool output.

use sandbar_agent::tool;

struct Thing;

/// Makes a thing.
#[tool]
async fn make() -> Thing {
    Thing
}

fn main() {}
