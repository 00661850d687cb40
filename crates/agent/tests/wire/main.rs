//! Models over real HTTP: what they send, how they read what comes back, and what they do when it goes wrong.

#![allow(clippy::expect_used)]

mod asking;
mod bodies;
mod chat;
mod compressed;
mod faults;
mod retries;
mod secrets;
