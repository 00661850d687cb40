//! Placeholder for faults.
use crate::escape::rig::Rig;
pub(crate) async fn run(_: &Rig) {}
pub(crate) fn victim() {}
