//! What goes wrong on the way to a server: whether it passes, and in words without secrets.

use std::{error::Error, io, time::Duration};

use reqwest::StatusCode;

use crate::{SandboxError, Secret, error::Outside};

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
    pub(super) secrets: Vec<Secret>,
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

    /// The connection failed.
    pub(super) fn broken(&self, reason: &str, error: reqwest::Error) -> Trouble {
        // Who refuses a connection, or has no valid certificate, will do so again in a second.
        let at_once = error.is_connect() && !was_reset(&error);
        let never = error.is_builder();
        let words = self.clean(&root(&error.without_url()));
        if never {
            return self.refuse(&words);
        }
        let error = self.error(reason, None).because(Outside::passing(words));
        if at_once { Trouble::Lasting(error) } else { Trouble::Passing { error, pause: None } }
    }

    /// This host cannot keep what it got.
    pub(super) fn disk(&self, error: io::Error) -> Trouble {
        Trouble::Lasting(self.error("it cannot be kept on this host's disk", None).because(error))
    }

    fn refuse_status(&self, reason: &str, status: Option<StatusCode>) -> Trouble {
        Trouble::Lasting(self.error(reason, status).because(Outside::lasting()))
    }

    fn error(&self, reason: &str, status: Option<StatusCode>) -> SandboxError {
        SandboxError::remote_fetch_error(&self.shown, self.clean(reason), status.map(|status| status.as_u16()))
    }

    fn clean(&self, text: &str) -> String {
        let secrets = self.secrets.iter().map(Secret::expose).filter(|secret| secret.len() >= 4);
        secrets.fold(text.to_owned(), |text, secret| text.replace(secret, "[secret]"))
    }
}

fn was_reset(error: &reqwest::Error) -> bool {
    causes(error).filter_map(|cause| cause.downcast_ref::<io::Error>()).any(|cause| {
        use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
        matches!(cause.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof)
    })
}

/// What went wrong first; all that was built on it only says so again.
fn root(error: &reqwest::Error) -> String {
    causes(error).last().map(ToString::to_string).unwrap_or_default()
}

pub(super) fn causes(error: &reqwest::Error) -> impl Iterator<Item = &(dyn Error + 'static)> {
    let first: &(dyn Error + 'static) = error;
    std::iter::successors(Some(first), |cause: &&(dyn Error + 'static)| (*cause).source()).take(16)
}
