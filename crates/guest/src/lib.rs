//! What the host may know of the guest: the protocol it speaks and how it is launched.
//!
//! The guest itself is this crate's program, `sandbar-guest`: PID 1 of every machine sandbar controls. It is built
//! statically by `sandbar-clients` and embedded there; nobody installs it.

pub mod protocol;
