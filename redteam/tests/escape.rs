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
    pub(crate) mod conformance;
    pub(crate) mod engine;
    pub(crate) mod faults;
    pub(crate) mod floods;
    pub(crate) mod hoards;
    pub(crate) mod landlock;
    pub(crate) mod lifetime;
    pub(crate) mod links;
    pub(crate) mod older;
    pub(crate) mod probes;
    pub(crate) mod processors;
    pub(crate) mod promises;
    pub(crate) mod rig;
    pub(crate) mod starving;
    pub(crate) mod steps;
    pub(crate) mod tally;
    pub(crate) mod trees;
    pub(crate) mod users;
    pub(crate) mod workspace;
}

use escape::{
    archives, bombs, conformance, faults, floods, hoards, landlock, lifetime, links, older, probes, promises,
    rig::{Host, Mode, Suite, in_mode, on_host},
    starving, steps, trees, users, workspace,
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

/// A command that leaves PID 1 no processor, in one cpu control group with it: elsewhere a session may have a share of its own.
mod starving_pid1 {
    use super::*;

    fn starve(mode: Mode, test: &str, suite: Suite) {
        let host = Host { one_cpu_group: true, ..Host::default() };
        on_host(host, mode, &format!("starving_pid1::{test}"), suite);
    }

    macro_rules! modes {
        ($($name:ident, $many:ident, $mode:expr;)*) => {
            $(
                #[test]
                fn $name() {
                    starve($mode, stringify!($name), |rig| Box::pin(starving::run(rig)));
                }

                #[test]
                #[ignore = "slow: it keeps all processors busy; `cargo xtask test --all`"]
                fn $many() {
                    starve($mode, stringify!($many), |rig| Box::pin(starving::run_many(rig)));
                }
            )*
        };
    }

    modes! {
        root, root_with_150, Mode::Root;
        user, user_with_150, Mode::User;
        docker, docker_with_150, Mode::Docker;
    }
}

/// Kernels that claim an older Landlock; a name is `MODE_VERSION`.
mod older_landlock {
    use super::*;

    fn claims(version: u32, mode: Mode, test: &str, suite: Suite) {
        let host = Host { landlock: Some(version), ..Host::default() };
        on_host(host, mode, &format!("older_landlock::{test}"), suite);
    }

    macro_rules! versions {
        (#$attribute:tt mod $module:ident, $suite:path; $($name:ident, $version:literal, $mode:expr;)*) => {
            mod $module {
                use super::*;

                $(
                    #[test]
                    #$attribute
                    fn $name() {
                        let test = concat!(stringify!($module), "::", stringify!($name));
                        claims($version, $mode, test, |rig| Box::pin($suite(rig)));
                    }
                )*
            }
        };
    }

    versions! {
        #[doc = "Every attack of the probe."]
        mod attacks, older::run;
        root_1, 1, Mode::Root;
        root_3, 3, Mode::Root;
        root_4, 4, Mode::Root;
        root_5, 5, Mode::Root;
        user_1, 1, Mode::User;
        user_3, 3, Mode::User;
        user_4, 4, Mode::User;
        user_5, 5, Mode::User;
    }

    versions! {
        #[doc = "What is quick of the conformance suite, with versions that differ most."]
        mod promises, conformance::run_part;
        user_1, 1, Mode::User;
        root_5, 5, Mode::Root;
    }

    versions! {
        #[ignore = "slow: an engine of its own; `cargo xtask test --all`"]
        mod attacks_in_containers, older::run;
        docker_1, 1, Mode::Docker;
        docker_3, 3, Mode::Docker;
        docker_4, 4, Mode::Docker;
        docker_5, 5, Mode::Docker;
        docker_root_1, 1, Mode::DockerRoot;
    }

    macro_rules! suites {
        ($module:ident, $version:literal, $mode:expr; $($suite:ident),*) => {
            mod $module {
                use super::*;

                $(
                    #[test]
                    #[ignore = "slow: nearly the whole red team; `cargo xtask test --all`"]
                    fn $suite() {
                        let test = concat!(stringify!($module), "::", stringify!($suite));
                        claims($version, $mode, test, |rig| Box::pin($suite::run(rig)));
                    }
                )*
            }
        };
    }

    // Not `steps`, which needs the one such filter that a process can have, nor `landlock`, whose level is refused;
    // `workspace`, which takes minutes, once.
    suites!(user_1, 1, Mode::User; archives, bombs, faults, floods, hoards, lifetime, links, trees, users, workspace);
    suites!(user_3, 3, Mode::User; archives, bombs, faults, floods, hoards, lifetime, links, trees, users);
    suites!(user_4, 4, Mode::User; archives, bombs, faults, floods, hoards, lifetime, links, trees, users);
    suites!(user_5, 5, Mode::User; archives, bombs, faults, floods, hoards, lifetime, links, trees, users);
    suites!(root_1, 1, Mode::Root; archives, bombs, faults, floods, hoards, lifetime, links, trees, users);
    suites!(root_3, 3, Mode::Root; archives, bombs, faults, floods, hoards, lifetime, links, trees, users);
    suites!(root_4, 4, Mode::Root; archives, bombs, faults, floods, hoards, lifetime, links, trees, users);
    suites!(root_5, 5, Mode::Root; archives, bombs, faults, floods, hoards, lifetime, links, trees, users);
    suites!(docker_1, 1, Mode::Docker; floods, lifetime, links, trees, users);
    suites!(docker_3, 3, Mode::Docker; floods, lifetime, links, trees, users);
    suites!(docker_4, 4, Mode::Docker; floods, lifetime, links, trees, users);
    suites!(docker_5, 5, Mode::Docker; floods, lifetime, links, trees, users);

    versions! {
        #[ignore = "slow: the whole conformance suite; `cargo xtask test --all`"]
        mod every_promise, conformance::run;
        root_1, 1, Mode::Root;
        root_3, 3, Mode::Root;
        root_4, 4, Mode::Root;
        root_5, 5, Mode::Root;
        user_1, 1, Mode::User;
        user_3, 3, Mode::User;
        user_4, 4, Mode::User;
        user_5, 5, Mode::User;
        docker_1, 1, Mode::Docker;
        docker_3, 3, Mode::Docker;
        docker_4, 4, Mode::Docker;
        docker_5, 5, Mode::Docker;
        docker_root_1, 1, Mode::DockerRoot;
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
