//! Models over real HTTP: requests, replies and failures.

#![allow(clippy::expect_used)]

mod asking;
mod bodies;
mod chat;
mod compressed;
mod faults;
mod retries;
mod secrets;
