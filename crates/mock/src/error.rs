//! Why a mock server did not start.

/// Why a script could not be used, or the server could not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MockError {
    /// The script says something the server does not understand.
    #[error("the script is not usable: {place}: {reason}")]
    Script {
        /// Where in the script, as in `turns[2].faults[0].status`.
        place: String,
        /// What is wrong there.
        reason: String,
    },
    /// The script is not JSON.
    #[error("the script is not JSON")]
    Json(#[source] serde_json::Error),
    /// The server is for loopback only.
    #[error("{0} is not a loopback address")]
    NotLoopback(std::net::SocketAddr),
    /// The socket or the thread of the server could not be made.
    #[error("the mock server could not {action}")]
    Start {
        /// What it was about to do.
        action: &'static str,
        /// Why it could not.
        #[source]
        source: std::io::Error,
    },
}

impl MockError {
    pub(crate) fn script(place: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Script { place: place.into(), reason: reason.into() }
    }
}
