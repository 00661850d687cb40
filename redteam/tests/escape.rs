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
    pub(crate) mod older;
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
    archives, bombs, faults, floods, hoards, landlock, lifetime, links, older, probes, promises,
    rig::{Mode, in_mode, on_kernel},
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

/// Kernels that claim an older Landlock; a name is `MODE_VERSION`.
mod older_landlock {
    use super::*;

    fn claims(version: u32, mode: Mode, test: &str) {
        on_kernel(Some(version), mode, &format!("older_landlock::{test}"), |rig| Box::pin(older::run(rig)));
    }

    #[test]
    fn user_1() {
        claims(1, Mode::User, "user_1");
    }

    #[test]
    fn user_5() {
        claims(5, Mode::User, "user_5");
    }

    #[test]
    fn root_4() {
        claims(4, Mode::Root, "root_4");
    }

    #[test]
    #[ignore = "slow: the versions above differ most; `cargo xtask test --all`"]
    fn root_1() {
        claims(1, Mode::Root, "root_1");
    }

    #[test]
    #[ignore = "slow: the versions above differ most; `cargo xtask test --all`"]
    fn user_3() {
        claims(3, Mode::User, "user_3");
    }

    #[test]
    #[ignore = "slow: the versions above differ most; `cargo xtask test --all`"]
    fn root_5() {
        claims(5, Mode::Root, "root_5");
    }
}

/// Not a test: other tests run this binary again as a harness that can be killed or crippled.
#[test]
fn a_harness_to_be_killed() {
    faults::victim();
}

#[test]
fn security_md_names_every_promise() {
    promises::check();
}
