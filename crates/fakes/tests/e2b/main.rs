//! The fake E2B: used by the official SDKs, byte by byte, with everything that can go wrong, and after its end.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod client;
mod control;
mod faults;
mod leftovers;
mod sdks;
mod wire;
