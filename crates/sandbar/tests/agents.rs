//! Agents on real local machines, with a model server that checks every request: capabilities, sessions, composition and
//! failures. The most important tests also run as the user `sandbar-test`, and all tests also run in containers and on the
//! fake of E2B.
#![cfg(target_os = "linux")]
#![allow(clippy::expect_used, reason = "a test")]

#[path = "agents/rig.rs"]
mod rig;

#[path = "agents/bad_input.rs"]
mod bad_input;
#[path = "agents/capabilities.rs"]
mod capabilities;
#[path = "agents/compaction.rs"]
mod compaction;
#[path = "agents/composition.rs"]
mod composition;
#[path = "agents/directory.rs"]
mod directory;
#[path = "agents/files.rs"]
mod files;
#[path = "agents/other_providers.rs"]
mod other_providers;
#[path = "agents/prompts.rs"]
mod prompts;
#[path = "agents/resumed_runs.rs"]
mod resumed_runs;
#[path = "agents/run_endings.rs"]
mod run_endings;
#[path = "agents/secrets.rs"]
mod secrets;
#[path = "agents/session_choice.rs"]
mod session_choice;
#[path = "agents/shell.rs"]
mod shell;
#[path = "agents/streaming.rs"]
mod streaming;
#[path = "agents/unprivileged.rs"]
mod unprivileged;
