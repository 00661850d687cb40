//! Errors of scripts and of the start of a server.

/// Reason why a script cannot be used, or a server cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MockError {
    /// The script is invalid.
    #[error("the script is not usable: {place}: {reason}")]
    Script {
        /// Position in the script, such as `turns[2].faults[0].status`.
        place: String,
        /// Fault at that position.
        reason: String,
    },
    /// The script is not JSON.
    #[error("the script is not JSON")]
    Json(#[source] serde_json::Error),
    /// The address is not a loopback address.
    #[error("{0} is not a loopback address")]
    NotLoopback(std::net::SocketAddr),
    /// The socket or the thread of the server cannot be created.
    #[error("the mock server cannot {action}")]
    Start {
        /// Action that failed.
        action: &'static str,
        /// Cause.
        #[source]
        source: std::io::Error,
    },
}

impl MockError {
    pub(crate) fn script(place: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Script { place: place.into(), reason: reason.into() }
    }
}
