//! `sandbar run` and `sandbar demo` from outside: how they end, what they say where, what they keep and what they leave.
//!
//! Everything that matters is checked twice, as root and as the user `sandbar-test`; without them a test fails.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test's own machinery may fail by panicking")]

mod run {
    mod containers;
    mod copies;
    mod demo;
    mod ends;
    mod files;
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
