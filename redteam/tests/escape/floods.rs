//! Placeholder for floods.
use crate::escape::rig::Rig;
pub(crate) async fn run(_: &Rig) {}
