//! What the host may know of the guest: the protocol it speaks, how it is launched, and where its control groups would be.
//!
//! The guest itself is this crate's program, `sandbar-guest`: PID 1 of every machine sandbar controls. It is built
//! statically by `sandbar-clients` and embedded there; nobody installs it.

#[cfg(target_os = "linux")]
pub mod cgroup;
pub mod protocol;
