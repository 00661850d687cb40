//! The red team: every attack, first where it works, then in the sandbox; as root and as an ordinary user.
//!
//! `cargo test -p sandbar-redteam -- --nocapture` prints each attack by name. A user, tool or feature that is missing is
//! a failure and never a skip.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a test's own machinery may fail by panicking, and its tally is what it is for"
)]

mod escape {
    pub(crate) mod archives;
    pub(crate) mod canaries;
    pub(crate) mod faults;
    pub(crate) mod floods;
    pub(crate) mod hoards;
    pub(crate) mod landlock;
    pub(crate) mod lifetime;
    pub(crate) mod links;
    pub(crate) mod probes;
    pub(crate) mod promises;
    pub(crate) mod rig;
    pub(crate) mod tally;
    pub(crate) mod users;
    pub(crate) mod workspace;
}

use escape::{
    archives, faults, floods, hoards, landlock, lifetime, links, probes, promises,
    rig::{Mode, in_mode},
    users, workspace,
};

macro_rules! suites {
    ($($suite:ident),* $(,)?) => {
        mod root {
            use super::*;
            $(#[test] fn $suite() { in_mode(Mode::Root, concat!("root::", stringify!($suite)), |rig| Box::pin($suite::run(rig))); })*
        }
        mod user {
            use super::*;
            $(#[test] fn $suite() { in_mode(Mode::User, concat!("user::", stringify!($suite)), |rig| Box::pin($suite::run(rig))); })*
        }
    };
}

suites!(archives, faults, floods, hoards, landlock, lifetime, links, probes, users, workspace);

/// Not a test: other tests run this binary again as a harness that can be killed or crippled.
#[test]
fn a_harness_to_be_killed() {
    faults::victim();
}

#[test]
fn security_md_names_every_promise() {
    promises::check();
}
