//! Tests of `sandbar mcp` as a program: tools, hostile clients and leftovers.
//!
//! Everything that matters is checked twice, as root and as the user `sandbar-test`; without them a test fails.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test's own machinery may fail by panicking")]

mod mcp {
    mod client;
    mod hostile;
    mod life;
    mod outside;
    #[allow(dead_code, reason = "the other test programs use the rest of it")]
    #[path = "../exec/rig.rs"]
    mod rig;
    #[allow(dead_code, reason = "the other test programs use the rest of it")]
    #[path = "../exec/screen.rs"]
    mod screen;
    mod tools;
}
