//! The mock server, tested over a socket.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "tests")]

mod chat;
mod faults;
mod hostile;
mod life;
mod rules;
mod stored;
mod streams;
mod turns;
mod wire;
