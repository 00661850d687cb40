//! Machines that no session has: what is left when a maker was killed at the wrong moment, or when a record was lost.

use std::path::PathBuf;

use rustix::fs::{FlockOperation, flock};
use sandbar::{
    MachineError, SandboxClient as _, SessionState, SessionStore,
    client::{UnixLocal, docker::Found},
};

use super::{
    Home, Making,
    list::{self, Condition},
    state_directory,
};
use crate::failure::Failure;

/// What was found of them.
pub(crate) enum Orphans {
    /// These are nobody's.
    Found(Vec<String>),
    /// Some may be somebody's, for this reason.
    Unclear(String),
}

/// What the records of all sessions say about their machines.
enum Recorded {
    All(Vec<String>),
    /// One of them says nothing, for this reason.
    Some(String),
}

/// The machines of this user's sessions.
pub(crate) struct Machines(Home);

impl Machines {
    /// Those there are; nothing where nobody ever made a session.
    pub(crate) fn of_sessions() -> Result<Option<Self>, Failure> {
        match state_directory() {
            Ok(directory) if directory.join("sessions").exists() => Home::open().map(Self).map(Some),
            _ => Ok(None),
        }
    }

    /// Who makes them.
    pub(crate) fn local(&self) -> UnixLocal {
        self.0.local()
    }

    /// What is written down of the sessions.
    pub(crate) fn store(&self) -> &SessionStore {
        &self.0.store
    }

    /// The names of those containers that no session has, of those whose dead makers kept their sessions here.
    pub(crate) fn unclaimed(&self, found: &[Found]) -> Result<Orphans, Failure> {
        if found.iter().all(|one| one.claim.is_none()) {
            return Ok(Orphans::Found(Vec::new()));
        }
        let register = self.0.register()?;
        let claimed = |one: &&Found| one.claim.as_ref().is_some_and(|claim| claim.register == register);
        let here: Vec<&Found> = found.iter().filter(claimed).collect();
        if here.is_empty() {
            return Ok(Orphans::Found(Vec::new()));
        }
        // Their makers are dead: what is in no record by now will never be in one.
        Ok(match self.0.recorded("seal")? {
            Recorded::All(known) => {
                let has_record = |one: &&Found| one.claim.as_ref().is_some_and(|claim| known.contains(&claim.seal));
                Orphans::Found(here.into_iter().filter(|one| !has_record(one)).map(|one| one.name.clone()).collect())
            }
            Recorded::Some(why) => Orphans::Unclear(why),
        })
    }

    /// The sessions whose machine is gone although it was not stopped. A machine that cannot be asked is not gone, and a
    /// session that is being made may have none yet.
    pub(crate) async fn gone(&self) -> Result<Vec<SessionState>, Failure> {
        let abandoned = self.0.abandoned()?;
        let mut gone = Vec::new();
        for state in self.0.store.list()? {
            if state.unfinished && !abandoned.contains(&state.session_id) {
                continue;
            }
            if list::condition(&state, self.0.client.as_ref()).await == Condition::Gone {
                gone.push(state);
            }
        }
        Ok(gone)
    }

    /// Removes what is left of such a session.
    pub(crate) async fn remove_gone(&self, state: &SessionState) -> Result<(), Failure> {
        self.0.remove_gone(state).await
    }

    /// Those that no session has.
    pub(crate) fn orphans(&self) -> Result<Orphans, Failure> {
        self.0.orphans()
    }

    /// Ends such a machine and removes everything it has.
    pub(crate) async fn remove_orphan(&self, id: &str) -> Result<(), MachineError> {
        self.0.remove_orphan(id).await
    }
}

/// Why a machine that no session has is left.
pub(super) fn failure(id: &str, error: MachineError) -> Failure {
    let code = error.code();
    Failure::new(format!("cannot remove the machine {id}, which no session has")).because(error).code(code)
}

impl Home {
    /// Machines in this user's own directory of them that no record names. One that is still being made is never among
    /// them: its maker holds what is asked for here.
    pub(super) fn orphans(&self) -> Result<Orphans, Failure> {
        if self.ids()?.is_empty() {
            return Ok(Orphans::Found(Vec::new()));
        }
        let making = Making::open(&self.directory)?;
        if flock(&making.0, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Ok(Orphans::Unclear("a session is being made just now".to_owned()));
        }
        // What is there by now and in no record will never be in one.
        let machines = self.ids()?;
        Ok(match self.recorded("id")? {
            Recorded::All(known) => Orphans::Found(machines.into_iter().filter(|id| !known.contains(id)).collect()),
            Recorded::Some(why) => Orphans::Unclear(why),
        })
    }

    /// The sessions that were being made when their makers were killed; none where a session is being made just now.
    pub(super) fn abandoned(&self) -> Result<Vec<String>, Failure> {
        let making = Making::open(&self.directory)?;
        if flock(&making.0, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Ok(Vec::new());
        }
        // No maker lives: what is unfinished by now will never be finished.
        let unfinished = self.store.list()?.into_iter().filter(|state| state.unfinished);
        Ok(unfinished.map(|state| state.session_id).collect())
    }

    /// Removes what is left of a session whose machine does not run: a container that was never started, and the record.
    pub(super) async fn remove_gone(&self, state: &SessionState) -> Result<(), Failure> {
        self.client.delete(&state.machine).await?;
        self.forget(&state.session_id)
    }

    /// What the machines of all records are called, under this name in their handles.
    fn recorded(&self, name: &str) -> Result<Recorded, Failure> {
        let (sound, damaged) = (self.store.list()?, self.store.damaged()?);
        if let Some(one) = damaged.iter().find(|one| one.machine.is_none()) {
            let id = &one.session_id;
            let why = format!(
                "the record of {id} is damaged and does not say which is its own; `sandbar session rm {id}` removes it"
            );
            return Ok(Recorded::Some(why));
        }
        let known =
            sound.into_iter().map(|state| state.machine).chain(damaged.into_iter().filter_map(|one| one.machine));
        Ok(Recorded::All(known.filter_map(|machine| Some(machine.state.get(name)?.as_str()?.to_owned())).collect()))
    }

    /// Ends such a machine and removes everything it has.
    pub(super) async fn remove_orphan(&self, id: &str) -> Result<(), MachineError> {
        self.local().remove_machine(id).await
    }

    fn ids(&self) -> Result<Vec<String>, Failure> {
        Ok(self.local().machines()?.into_iter().map(|machine| machine.id).collect())
    }

    fn local(&self) -> UnixLocal {
        UnixLocal::new().state_dir(self.machines())
    }

    fn machines(&self) -> PathBuf {
        self.directory.join("machines")
    }
}
