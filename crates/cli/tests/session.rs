//! Tests of `sandbar session`, `manifest` and `patch` as a program.
//!
//! Everything that matters is checked twice, as root and as the user `sandbar-test`; without them a test fails.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test's own machinery may fail by panicking")]

mod session {
    mod containers;
    mod copies;
    mod damaged;
    mod files;
    mod kept;
    mod life;
    mod made;
    mod making;
    mod manifests;
    mod messages;
    mod patches;
    mod removal;
    mod reports;
    #[allow(dead_code, reason = "the other test program uses the rest of it")]
    #[path = "../exec/rig.rs"]
    mod rig;
    #[allow(dead_code, reason = "the other test program uses the rest of it")]
    #[path = "../exec/screen.rs"]
    mod screen;
    mod servers;
    mod staged;
    mod unread;
}
