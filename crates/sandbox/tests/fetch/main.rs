//! Fetching from real servers on loopback: honest ones, broken ones, and ones that mean harm.
#![cfg(target_os = "linux")]
#![allow(clippy::expect_used, clippy::unwrap_used, clippy::panic, reason = "a test")]

mod entries;
mod git;
mod http;
mod repository;
mod server;
