//! The Chat Completions API, with the same scripts as the Responses API.

pub(crate) mod render;
pub(crate) mod request;
