//! The parts of the guest that the host side needs: the protocol, the launch message, id ranges, control groups, what
//! each Landlock version can do, and how accounts are added to a machine's account files.
//!
//! The guest is this crate's program, `sandbar-guest`: PID 1 of every machine that sandbar controls. `sandbar-clients`
//! builds it statically and embeds it; it is never installed.

pub mod account_files;
#[cfg(target_os = "linux")]
pub mod cgroup;
pub mod host_facts;
pub mod landlock_versions;
pub mod protocol;
#[cfg(target_os = "linux")]
pub mod subordinate;
