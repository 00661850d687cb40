//! What goes wrong on the way to a server: whether it passes, and in words without secrets.

use std::{io, time::Duration};

use sandbar_http::{HttpError, Phase, Redaction, StatusCode};

use crate::{SandboxError, error::Outside};

/// Why there is no file.
#[derive(Debug)]
pub(super) enum Trouble {
    /// Asking again may help, after the pause that the server asked for.
    Passing { error: SandboxError, pause: Option<Duration> },
    /// Asking again at once will not.
    Lasting(SandboxError),
}

impl From<SandboxError> for Trouble {
    fn from(error: SandboxError) -> Self {
        Self::Lasting(error)
    }
}

impl From<Trouble> for SandboxError {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Passing { error, .. } | Trouble::Lasting(error) => error,
        }
    }
}

/// Speaks about one request.
#[derive(Debug)]
pub(super) struct Voice {
    pub(super) shown: String,
    pub(super) redaction: Redaction,
}

impl Voice {
    /// No: it will be no the next time, too.
    pub(super) fn refuse(&self, reason: &str) -> Trouble {
        self.refuse_status(reason, None)
    }

    /// It took too long, which it may not the next time. Not tried again here: the caller has waited enough.
    pub(super) fn late(&self, reason: &str) -> Trouble {
        let cause = Outside::passing("the server is too slow");
        Trouble::Lasting(self.error(reason, None).because(cause))
    }

    /// The server answered, but not with the file.
    pub(super) fn status(&self, status: StatusCode, pause: Option<Duration>) -> Trouble {
        let reason = format!("the server answered {status}");
        if !(status.is_server_error() || matches!(status.as_u16(), 408 | 425 | 429)) {
            return self.refuse_status(&reason, Some(status));
        }
        let cause = Outside::passing("the server has trouble of its own; try again later");
        Trouble::Passing { error: self.error(&reason, Some(status)).because(cause), pause }
    }

    /// There is no answer, or it broke off.
    pub(super) fn failed(&self, reason: &str, error: HttpError) -> Trouble {
        match error {
            HttpError::Timeout { phase: Phase::Connect, .. } => self.late("the server cannot be reached in time"),
            HttpError::Timeout { phase: Phase::Head, .. } => self.late("the server does not answer"),
            HttpError::Timeout { .. } => self.late("the server has gone silent half way"),
            // A server that refuses a connection, or has no valid certificate, will do so again in a second.
            HttpError::Connect { reason: cause, .. } => {
                Trouble::Lasting(self.error(reason, None).because(Outside::passing(self.redaction.clean(&cause))))
            }
            HttpError::Broken { reason: cause, .. } => {
                let cause = Outside::passing(self.redaction.clean(&cause));
                Trouble::Passing { error: self.error(reason, None).because(cause), pause: None }
            }
            other => self.refuse(&other.to_string()),
        }
    }

    /// This host cannot keep what it got.
    pub(super) fn disk(&self, error: io::Error) -> Trouble {
        Trouble::Lasting(self.error("it cannot be kept on this host's disk", None).because(error))
    }

    fn refuse_status(&self, reason: &str, status: Option<StatusCode>) -> Trouble {
        Trouble::Lasting(self.error(reason, status).because(Outside::lasting()))
    }

    fn error(&self, reason: &str, status: Option<StatusCode>) -> SandboxError {
        SandboxError::remote_fetch_error(
            &self.shown,
            self.redaction.clean(reason),
            status.map(|status| status.as_u16()),
        )
    }
}
