//! Machines without a session, and sessions without a machine: what killed processes left.

use sandbar::{
    SandboxClient as _, SessionState,
    client::registry::{LeftoversFound, Scope, SessionList, SessionRecords},
    machine::MachineHandle,
};

use super::{Condition, Sessions};
use crate::{Result, error::full};

impl Sessions {
    /// The records, for providers that search for machines without a session.
    pub fn records(&self) -> &dyn SessionRecords {
        self
    }

    /// Machines of the default provider that were created for this list and that no session has.
    pub async fn orphans(&self) -> Result<LeftoversFound> {
        match self.registry().default_provider()?.leftovers() {
            Some(leftovers) => Ok(leftovers.find(Scope::Sessions(self)).await?),
            None => Ok(LeftoversFound::default()),
        }
    }

    /// Ids of the sessions whose creation was interrupted. Empty while a session is being created.
    pub fn abandoned(&self) -> Result<Vec<String>> {
        let Some(_lock) = self.search_lock()? else { return Ok(Vec::new()) };
        // No creation is in progress, so an unfinished session will never be finished.
        let unfinished = self.store.list()?.into_iter().filter(|state| state.unfinished);
        Ok(unfinished.map(|state| state.session_id).collect())
    }

    /// The sessions whose machine is gone although it was not stopped. A machine that does not answer is not gone, and a
    /// session that is being created may have none yet.
    pub async fn gone(&self) -> Result<Vec<SessionState>> {
        let abandoned = self.abandoned()?;
        let mut gone = Vec::new();
        for state in self.store.list()? {
            if state.unfinished && !abandoned.contains(&state.session_id) {
                continue;
            }
            if self.condition(&state).await == Condition::Gone {
                gone.push(state);
            }
        }
        Ok(gone)
    }

    /// Removes a session whose machine does not run: a container that was never started, and the record.
    pub async fn remove_gone(&self, state: &SessionState) -> Result<()> {
        self.clients.delete(&state.machine).await?;
        self.forget(&state.session_id)
    }

    /// The machines of all records.
    fn recorded(&self) -> Result<Vec<MachineHandle>, String> {
        let failed = |error: sandbar::SandboxError| full(&error.into());
        let (sound, damaged) = (self.store.list().map_err(failed)?, self.store.damaged().map_err(failed)?);
        if let Some(record) = damaged.iter().find(|record| record.machine.is_none()) {
            let id = &record.session_id;
            return Err(format!(
                "the record of {id} is damaged and does not name its machine; `sandbar session rm {id}` removes the record"
            ));
        }
        let sound = sound.into_iter().map(|state| state.machine);
        Ok(sound.chain(damaged.into_iter().filter_map(|record| record.machine)).collect())
    }
}

impl SessionRecords for Sessions {
    fn list(&self) -> &SessionList {
        self.clients.list()
    }

    /// A machine that is being created is in no record yet: its creator holds the lock.
    fn handles(&self) -> Result<Vec<MachineHandle>, String> {
        let lock = self.search_lock().map_err(|error| full(&error))?;
        let Some(_lock) = lock else { return Err("a session is being created".to_owned()) };
        self.recorded()
    }
}
