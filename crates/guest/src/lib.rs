//! What the host may know of the guest: the protocol it speaks, how it is launched, whose ids it can use, where its control
//! groups would be, what versions of Landlock mean, and how accounts are added to a machine's.
//!
//! The guest itself is this crate's program, `sandbar-guest`: PID 1 of every machine sandbar controls. It is built
//! statically by `sandbar-clients` and embedded there; nobody installs it.

pub mod account_files;
#[cfg(target_os = "linux")]
pub mod cgroup;
pub mod host_facts;
pub mod landlock_versions;
pub mod protocol;
#[cfg(target_os = "linux")]
pub mod subordinate;
