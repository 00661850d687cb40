//! Agents on real local machines, over a real model server that judges every request: capabilities, sessions, composition,
//! and what goes wrong. What matters most is tried a second time as the user `sandbar-test`.
#![cfg(target_os = "linux")]
#![allow(clippy::expect_used, reason = "a test")]

#[path = "agents/rig.rs"]
mod rig;

#[path = "agents/bad_input.rs"]
mod bad_input;
#[path = "agents/capabilities.rs"]
mod capabilities;
#[path = "agents/choosing.rs"]
mod choosing;
#[path = "agents/coming_back.rs"]
mod coming_back;
#[path = "agents/compaction.rs"]
mod compaction;
#[path = "agents/composition.rs"]
mod composition;
#[path = "agents/containers.rs"]
mod containers;
#[path = "agents/directory.rs"]
mod directory;
#[path = "agents/files.rs"]
mod files;
#[path = "agents/leaving.rs"]
mod leaving;
#[path = "agents/ordinary.rs"]
mod ordinary;
#[path = "agents/prompts.rs"]
mod prompts;
#[path = "agents/secrets.rs"]
mod secrets;
#[path = "agents/shell.rs"]
mod shell;
#[path = "agents/streaming.rs"]
mod streaming;
