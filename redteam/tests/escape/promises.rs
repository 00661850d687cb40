//! The list of promises for SECURITY.md, and the check that it is there.
pub(crate) fn check() {}
