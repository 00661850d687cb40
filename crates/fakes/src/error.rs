//! The error of a fake that cannot start.

use std::io;

/// Reason why a fake cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FakeError {
    /// The socket, the thread or the runtime cannot be created.
    #[error("cannot {action} for the fake service")]
    Start {
        /// Action that failed.
        action: &'static str,
        /// Cause.
        #[source]
        source: io::Error,
    },
}
