//! Tools that are not made of a plain async function.

#![allow(unsafe_code, reason = "it is what is refused here")]

use sandbar_agent::tool;

/// Waits for nobody.
#[tool]
fn hasty() {}

/// Promises too much.
#[tool]
async unsafe extern "C" fn bold() {}

/// Is no function.
#[tool]
struct Thing;

fn main() {}
