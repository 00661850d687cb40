//! Records of a session that is being created: saved before its machine can outlive this process, removed if that fails.

use std::{fmt, time::Duration};

use parking_lot::Mutex;
use sandbar::{SandboxError, SessionState};
use tokio::time::timeout;

use super::Sessions;
use crate::{Error, Result, error::full, git::Guard};

/// Time limit for the removal of a machine whose session could not be created.
const REMOVAL: Duration = Duration::from_secs(60);

/// The records of one creation.
#[derive(Debug)]
pub struct CreationRecords<'a> {
    sessions: &'a Sessions,
    guard: &'a Guard,
    /// The session whose creation began, and the error if its record could not be saved.
    begun: Mutex<(Option<SessionState>, Option<Error>)>,
}

/// A session that could not be created, and whose machine could not be removed: it is listed, and can be removed later.
#[derive(Debug)]
pub struct UnfinishedSession {
    /// Id of the session.
    pub id: String,
    /// Why the machine is left; `None` if its removal took too long.
    pub cause: Option<Error>,
}

impl fmt::Display for UnfinishedSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "session {} remains unfinished; ", self.id)?;
        match &self.cause {
            Some(cause) => f.write_str(&full(cause)),
            None => write!(f, "its machine did not end within {} seconds", REMOVAL.as_secs()),
        }
    }
}

impl Sessions {
    /// The records of a session with this guard, for [`SandboxSession::create_recorded`](sandbar::SandboxSession).
    pub fn creation_records<'a>(&'a self, guard: &'a Guard) -> CreationRecords<'a> {
        CreationRecords { sessions: self, guard, begun: Mutex::default() }
    }

    /// Removes a session whose creation failed. If its machine cannot be removed, the record is retained and returned.
    pub async fn undo_creation(&self, state: &SessionState) -> Result<Option<UnfinishedSession>> {
        let id = state.session_id.clone();
        match timeout(REMOVAL, self.client().delete(&state.machine)).await {
            Ok(Ok(())) => self.forget(&id).map(|()| None),
            Ok(Err(error)) => Ok(Some(UnfinishedSession { id, cause: Some(error.into()) })),
            Err(_late) => Ok(Some(UnfinishedSession { id, cause: None })),
        }
    }
}

impl CreationRecords<'_> {
    /// Saves the guard and the record.
    pub fn save(&self, state: &SessionState) -> Result<(), SandboxError> {
        let mut begun = self.begun.lock();
        begun.0 = Some(state.clone());
        let repositories = self.sessions.guard_path(&state.session_id);
        if let Err(error) = self.guard.save(&repositories) {
            begun.1 = Some(error);
            let place = repositories.display().to_string();
            return Err(SandboxError::session_store_error(place, "the session's repositories cannot be saved"));
        }
        self.sessions.store().save(state)
    }

    /// Removes the incomplete session. The error is the first one of saving or removing.
    pub async fn undo(self) -> (Option<UnfinishedSession>, Result<()>) {
        let (begun, failed) = self.begun.into_inner();
        let unfinished = match begun {
            Some(state) => self.sessions.undo_creation(&state).await,
            None => Ok(None),
        };
        match unfinished {
            Ok(unfinished) => (unfinished, failed.map_or(Ok(()), Err)),
            Err(error) => (None, Err(error)),
        }
    }
}
