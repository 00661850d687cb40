//! Tests of `sandbar exec`, `doctor` and `completions` as a program.
//!
//! Everything that matters is checked twice, as root and as the user `sandbar-test`; without them a test fails.

#![allow(clippy::print_stdout, reason = "what is left out is said")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test's own machinery may fail by panicking")]

mod exec {
    mod apparmor;
    mod container;
    mod ends;
    mod engines;
    mod files;
    mod mistakes;
    mod passthrough;
    mod reports;
    mod rig;
    mod screen;
    mod terminal;
    mod unread;
    mod users;
}
