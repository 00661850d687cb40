//! Tests of `sandbar run` and `sandbar demo` as a program: exit codes, output, records and leftovers.
//!
//! Everything that matters is checked twice, as root and as the user `sandbar-test`; without them a test fails.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test's own machinery may fail by panicking")]

mod run {
    mod containers;
    mod copies;
    mod demo;
    mod ends;
    mod files;
    mod hosted;
    mod hostile;
    mod in_place;
    mod models;
    mod play;
    #[allow(dead_code, reason = "the other test program uses the rest of it")]
    #[path = "../exec/rig.rs"]
    mod rig;
    mod room;
    #[allow(dead_code, reason = "the other test program uses the rest of it")]
    #[path = "../exec/screen.rs"]
    mod screen;
    mod secrets;
    mod stops;
    mod streams;
    mod terminal;
    mod unread;
    mod users;
    mod words;
}
