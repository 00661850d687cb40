//! Why a fake could not be started.

use std::io;

/// Why a fake could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FakeError {
    /// The socket, the thread or the runtime could not be made.
    #[error("cannot {action} for the fake service")]
    Start {
        /// What was being done.
        action: &'static str,
        /// The system's own words.
        #[source]
        source: io::Error,
    },
}
