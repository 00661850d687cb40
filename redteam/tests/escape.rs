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
    pub(crate) mod bombs;
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
    pub(crate) mod steps;
    pub(crate) mod tally;
    pub(crate) mod trees;
    pub(crate) mod users;
    pub(crate) mod workspace;
}

use escape::{
    archives, bombs, faults, floods, hoards, landlock, lifetime, links, probes, promises,
    rig::{Mode, in_mode},
    steps, trees, users, workspace,
};

macro_rules! suites {
    ($module:ident, $mode:expr; $($suite:ident),* $(,)?) => {
        mod $module {
            use super::*;
            $(#[test] fn $suite() {
                in_mode($mode, concat!(stringify!($module), "::", stringify!($suite)), |rig| Box::pin($suite::run(rig)));
            })*
        }
    };
}

suites!(root, Mode::Root; archives, bombs, faults, floods, hoards, landlock, lifetime, links, probes, steps, trees, users, workspace);
suites!(user, Mode::User; archives, bombs, faults, floods, hoards, landlock, lifetime, links, probes, steps, trees, users, workspace);
suites!(docker, Mode::Docker; floods, lifetime, links, probes, trees, users, workspace);
suites!(docker_root, Mode::DockerRoot; probes);

/// Not a test: other tests run this binary again as a harness that can be killed or crippled.
#[test]
fn a_harness_to_be_killed() {
    faults::victim();
}

#[test]
fn security_md_names_every_promise() {
    promises::check();
}
