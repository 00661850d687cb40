//! Sessions as removals see them: a damaged record may still name its machine.

use std::{pin::pin, time::Duration};

use sandbar::{MachineError, SessionState, machine::MachineHandle, sandbox::DamagedSession};
use tokio::time::{Instant, sleep_until};

use super::Sessions;
use crate::Result;

/// A session to remove.
#[derive(Clone, Debug)]
pub struct RemovableSession {
    /// Id of the session.
    pub id: String,
    /// Its machine; `None` if a damaged record does not name it.
    pub machine: Option<MachineHandle>,
}

impl From<SessionState> for RemovableSession {
    fn from(state: SessionState) -> Self {
        Self { id: state.session_id, machine: Some(state.machine) }
    }
}

impl From<DamagedSession> for RemovableSession {
    fn from(damaged: DamagedSession) -> Self {
        Self { id: damaged.session_id, machine: damaged.machine }
    }
}

impl Sessions {
    /// All sessions, also those with a damaged record.
    pub fn removable(&self) -> Result<Vec<RemovableSession>> {
        let mut found: Vec<RemovableSession> = self.store.list()?.into_iter().map(RemovableSession::from).collect();
        found.extend(self.store.damaged()?.into_iter().map(RemovableSession::from));
        Ok(found)
    }

    /// The session with this id, part of an id, or name, also with a damaged record.
    pub fn find_removable(&self, given: &str) -> Result<RemovableSession> {
        match self.store.find(given) {
            Ok(state) => Ok(state.into()),
            Err(error) if error.code() == "session_damaged" => {
                let session = error.text("session").unwrap_or(given).to_owned();
                let damaged = self.store.damaged()?.into_iter().find(|one| one.session_id == session);
                Ok(damaged.map_or(RemovableSession { id: session, machine: None }, RemovableSession::from))
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// When [`until_removed`] gives up, and when it reports that it still waits.
#[derive(Clone, Copy, Debug)]
pub struct RemovalPatience {
    /// Point in time after which a removal in progress is not requested again.
    pub until: Instant,
    /// Delay of the first report.
    pub first_report: Duration,
    /// Interval of the next reports.
    pub next_report: Duration,
}

/// Repeats a request until the removal of a machine is done, has failed, or the time is over. `report` gets the time waited.
pub async fn until_removed<F>(
    patience: RemovalPatience,
    request: impl Fn() -> F,
    report: impl Fn(Duration),
) -> Result<(), MachineError>
where
    F: Future<Output = Result<(), MachineError>>,
{
    let begun = Instant::now();
    let mut next_report = begun + patience.first_report;
    loop {
        let mut removal = pin!(request());
        let outcome = loop {
            tokio::select! {
                outcome = &mut removal => break outcome,
                () = sleep_until(next_report) => {
                    report(begun.elapsed());
                    next_report = Instant::now() + patience.next_report;
                }
            }
        };
        match outcome {
            Err(MachineError::StillBeingRemoved { .. }) if Instant::now() < patience.until => {}
            Err(MachineError::StillBeingRemoved { what, .. }) => {
                return Err(MachineError::StillBeingRemoved { what, waited: begun.elapsed() });
            }
            outcome => return outcome,
        }
    }
}
