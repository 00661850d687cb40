//! Tests of `sandbar gc` as a program: leftovers of dead harnesses are removed, everything else is retained.
//!
//! Without an engine the tests with containers say so and do nothing; where `CI` is set to `true` that is a failure.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test's own machinery may fail by panicking")]
#![allow(clippy::print_stdout, reason = "what is left out is said")]

mod gc {
    mod containers;
    mod engine;
    mod machines;
    #[allow(dead_code, reason = "the other test programs use the rest of it")]
    #[path = "../exec/rig.rs"]
    mod rig;
}
