//! Generic tools.

use sandbar_agent::tool;

/// Shows anything.
#[tool]
async fn show<T: ToString>(thing: T) -> String {
    thing.to_string()
}

/// Shows some things.
#[tool]
async fn narrow(thing: u8) -> String
where
    u8: ToString,
{
    thing.to_string()
}

fn main() {}
