//! From arguments to machines and sessions: which client, what to make, and how a signal interrupts it.

pub(crate) mod client;
pub(crate) mod plan;
pub(crate) mod progress;
pub(crate) mod provision;
