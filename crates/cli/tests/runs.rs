//! Tests of `sandbar diff`, `apply` and `runs` as a program, on runs whose directories have the documented layout.
//!
//! Some of it is checked as the user `sandbar-test` too, because nothing is unreadable to root.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test's own machinery may fail by panicking")]

mod runs {
    mod apply;
    mod diff;
    mod layout;
    mod ls;
    #[allow(dead_code, reason = "the other test programs use the rest of it")]
    #[path = "../exec/rig.rs"]
    mod rig;
}
