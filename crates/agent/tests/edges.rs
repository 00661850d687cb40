//! Edge cases of the harness: unusual replies, states and interruptions.
#![allow(clippy::expect_used, clippy::unwrap_used, clippy::panic, reason = "a test")]

#[path = "edges/ends.rs"]
mod ends;
#[path = "edges/hidden.rs"]
mod hidden;
#[path = "edges/history.rs"]
mod history;
#[path = "edges/hostile.rs"]
mod hostile;
#[path = "edges/nested.rs"]
mod nested;
#[path = "edges/random.rs"]
mod random;
#[path = "edges/saved.rs"]
mod saved;
#[path = "edges/scene.rs"]
mod scene;
#[path = "edges/schemas.rs"]
mod schemas;
#[path = "edges/secrets.rs"]
mod secrets;
#[path = "edges/steps.rs"]
mod steps;
#[path = "edges/wire.rs"]
mod wire;
#[path = "edges/withheld.rs"]
mod withheld;
