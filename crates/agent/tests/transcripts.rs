//! Whole runs with a scripted model, compared with readable snapshots, and repeated with a save and a load after every step.
#![allow(clippy::expect_used, reason = "a test")]

#[path = "transcripts/play.rs"]
mod play;

#[path = "transcripts/approvals.rs"]
mod approvals;
#[path = "transcripts/budgets.rs"]
mod budgets;
#[path = "transcripts/environment.rs"]
mod environment;
#[path = "transcripts/guardrails.rs"]
mod guardrails;
#[path = "transcripts/handoffs.rs"]
mod handoffs;
#[path = "transcripts/hooks.rs"]
mod hooks;
#[path = "transcripts/nested.rs"]
mod nested;
#[path = "transcripts/outputs.rs"]
mod outputs;
#[path = "transcripts/threads.rs"]
mod threads;
#[path = "transcripts/tools.rs"]
mod tools;
#[path = "transcripts/turns.rs"]
mod turns;
