//! Failures of a download: whether a retry may help, and messages without secrets.

use std::{io, time::Duration};

use sandbar_http::{HttpError, Phase, Redaction, StatusCode};

use crate::{SandboxError, error::Outside};

/// Why a download failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// A retry may help, after the pause that the server requested.
    Passing { error: SandboxError, pause: Option<Duration> },
    /// A retry right now does not help.
    Lasting(SandboxError),
}

impl From<SandboxError> for Failure {
    fn from(error: SandboxError) -> Self {
        Self::Lasting(error)
    }
}

impl From<Failure> for SandboxError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Passing { error, .. } | Failure::Lasting(error) => error,
        }
    }
}

/// Creates the errors of one request.
#[derive(Debug)]
pub(super) struct Reporter {
    pub(super) shown: String,
    pub(super) redaction: Redaction,
}

impl Reporter {
    /// Permanent failure.
    pub(super) fn refuse(&self, reason: &str) -> Failure {
        self.refuse_status(reason, None)
    }

    /// A timeout. The caller may retry; no retry happens here, since the caller has waited long enough.
    pub(super) fn late(&self, reason: &str) -> Failure {
        let cause = Outside::passing("the server is too slow");
        Failure::Lasting(self.error(reason, None).because(cause))
    }

    /// The server sent another status than success.
    pub(super) fn status(&self, status: StatusCode, pause: Option<Duration>) -> Failure {
        let reason = format!("the server answered {status}");
        if !(status.is_server_error() || matches!(status.as_u16(), 408 | 425 | 429)) {
            return self.refuse_status(&reason, Some(status));
        }
        let cause = Outside::passing("the server has a problem; try again later");
        Failure::Passing { error: self.error(&reason, Some(status)).because(cause), pause }
    }

    /// The request failed, or the response broke off.
    pub(super) fn failed(&self, reason: &str, error: HttpError) -> Failure {
        match error {
            HttpError::Timeout { phase: Phase::Connect, .. } => self.late("the server cannot be reached in time"),
            HttpError::Timeout { phase: Phase::Head, .. } => self.late("the server does not answer"),
            HttpError::Timeout { .. } => self.late("the server stopped sending"),
            // A refused connection or an invalid certificate will be the same in a second.
            HttpError::Connect { reason: cause, .. } => {
                Failure::Lasting(self.error(reason, None).because(Outside::passing(self.redaction.clean(&cause))))
            }
            HttpError::Broken { reason: cause, .. } => {
                let cause = Outside::passing(self.redaction.clean(&cause));
                Failure::Passing { error: self.error(reason, None).because(cause), pause: None }
            }
            other => self.refuse(&other.to_string()),
        }
    }

    /// This host cannot store the file.
    pub(super) fn disk(&self, error: io::Error) -> Failure {
        Failure::Lasting(self.error("it cannot be stored on this host's disk", None).because(error))
    }

    fn refuse_status(&self, reason: &str, status: Option<StatusCode>) -> Failure {
        Failure::Lasting(self.error(reason, status).because(Outside::lasting()))
    }

    fn error(&self, reason: &str, status: Option<StatusCode>) -> SandboxError {
        SandboxError::remote_fetch_error(
            &self.shown,
            self.redaction.clean(reason),
            status.map(|status| status.as_u16()),
        )
    }
}
