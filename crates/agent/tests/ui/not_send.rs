//! A tool that cannot move between threads.

use std::rc::Rc;

use sandbar_agent::tool;

/// Waits.
#[tool]
async fn wait() -> String {
    let held = Rc::new(5);
    std::future::ready(()).await;
    held.to_string()
}

fn main() {}
