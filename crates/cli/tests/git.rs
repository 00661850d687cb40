//! Repositories in directories that a sandbox can write to: files that git runs on the host later are not changed.
//!
//! Everything that matters is checked twice, as root and as the user `sandbar-test`; without them a test fails. Each attack
//! has a control: with `--git rw` it works, and `git` on the host runs what the sandbox wrote.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test's own machinery may fail by panicking")]

mod git {
    mod appearing;
    mod applied;
    #[allow(dead_code, reason = "the other test programs use the rest of it")]
    #[path = "../mcp/client.rs"]
    mod client;
    mod commands;
    mod layouts;
    mod lifting;
    mod obeyed;
    mod patches;
    #[allow(dead_code, reason = "the other test programs use the rest of it")]
    #[path = "../run/play.rs"]
    mod play;
    mod repository;
    #[allow(dead_code, reason = "the other test programs use the rest of it")]
    #[path = "../exec/rig.rs"]
    mod rig;
    #[allow(dead_code, reason = "the other test programs use the rest of it")]
    #[path = "../exec/screen.rs"]
    mod screen;
    mod worktrees;
}
