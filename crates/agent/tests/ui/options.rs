//! Options that are unknown, invalid, or repeated.

use sandbar_agent::tool;

/// Sleeps.
#[tool(slow)]
async fn unknown() {}

/// Sleeps.
#[tool(timeout = "five seconds")]
async fn wordy() {}

/// Sleeps.
#[tool(timeout = 5)]
async fn bare() {}

/// Sleeps.
#[tool(name = "go to sleep")]
async fn spaced() {}

/// Sleeps.
#[tool(lenient, lenient)]
async fn twice() {}

/// Sleeps.
#[tool(needs_approval = true)]
async fn assigned() {}

/// Sleeps.
#[tool]
async fn schläft() {}

fn main() {}
