//! The condition of a session: what its record says, and whether its machine answers.

use std::time::Duration;

use sandbar::{SandboxClient, SessionState};
use tokio::time::timeout;

use super::Sessions;

/// How long a machine may take to answer.
const ANSWER: Duration = Duration::from_secs(5);

/// The condition of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Condition {
    /// The machine answers.
    Running,
    /// The machine answers, but the workspace is not filled: a process is creating the session, or was killed doing so.
    Unfinished,
    /// The session was stopped.
    Stopped,
    /// The machine ended by itself or with the host, or its creation was interrupted.
    Gone,
    /// The machine does not answer.
    Unknown,
    /// The record cannot be read.
    Damaged,
}

impl Condition {
    /// The name of the condition in documents.
    pub fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Unfinished => "unfinished",
            Self::Stopped => "stopped",
            Self::Gone => "gone",
            Self::Unknown => "unknown",
            Self::Damaged => "damaged",
        }
    }
}

impl Sessions {
    /// The condition of a session. The machine is neither resumed nor is its lease restarted.
    pub async fn condition(&self, state: &SessionState) -> Condition {
        match (timeout(ANSWER, self.clients.exists(&state.machine)).await, state.workspace_root_ready) {
            (Ok(Ok(true)), true) => Condition::Running,
            (Ok(Ok(true)), false) => Condition::Unfinished,
            (Ok(Ok(false)), false) if !state.unfinished => Condition::Stopped,
            (Ok(Ok(false)), _) => Condition::Gone,
            (Ok(Err(_)) | Err(_), _) => Condition::Unknown,
        }
    }
}
