//! Chat Completions: the same script, for clients that speak the older way.

pub(crate) mod render;
pub(crate) mod request;
