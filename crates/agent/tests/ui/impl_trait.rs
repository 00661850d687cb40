//! An argument of type `impl Trait`.

use sandbar_agent::tool;

/// Shows anything.
#[tool]
async fn show(thing: impl ToString, more: Vec<impl ToString>) -> String {
    thing.to_string()
}

fn main() {}
