//! An answer that no model can read.

use sandbar_agent::tool;

struct Thing;

/// Makes a thing.
#[tool]
async fn make() -> Thing {
    Thing
}

fn main() {}
