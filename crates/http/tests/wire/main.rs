//! The client against servers and proxies over real sockets: honest ones, slow ones, broken ones.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test")]

mod bodies;
mod proxying;
mod retrying;
mod secrets;
mod server;
mod tunnel;
