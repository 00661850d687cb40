//! The fake E2B: the official SDKs, the wire format, faults, and leftovers.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod client;
mod control;
mod faults;
mod leftovers;
mod sdks;
mod wire;
