//! Tools that are not plain async functions.

#![allow(unsafe_code, reason = "it is what is refused here")]

use sandbar_agent::tool;

/// Waits for nothing.
#[tool]
fn hasty() {}

/// Promises too much.
#[tool]
async unsafe extern "C" fn bold() {}

/// Is no function.
#[tool]
struct Thing;

fn main() {}
