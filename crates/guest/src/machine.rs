//! Making and removing a machine: the supervisor on the host, and PID 1 until it serves.

pub(crate) mod boot;
pub(crate) mod container;
mod descendants;
pub(crate) mod failure;
pub(crate) mod group;
mod idmap;
pub(crate) mod namespaces;
pub(crate) mod state;
pub(crate) mod supervisor;
