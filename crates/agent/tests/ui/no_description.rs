//! A tool without a description.

use sandbar_agent::tool;

#[tool]
async fn silent() {}

#[tool(description = " ")]
async fn blank() {}

fn main() {}
