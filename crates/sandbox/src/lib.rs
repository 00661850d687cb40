//! The workspace of an agent: everything between a declared workspace (a manifest) and a live one (a session on a
//! machine), written once for every client.

mod error;
mod op;
mod paths;
mod secret;

pub use error::{PathFault, Result, SandboxError};
pub use op::Op;
pub use paths::{Grant, Intent, Paths, WorkspacePath};
pub use secret::{Secret, SecretStore};
