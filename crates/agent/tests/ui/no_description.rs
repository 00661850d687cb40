//! A tool that tells the model nothing about itself.

use sandbar_agent::tool;

#[tool]
async fn silent() {}

#[tool(description = " ")]
async fn blank() {}

fn main() {}
