//! The sessions of one user on this host: their records, the machines they are on, and what interrupted creations left.

mod clients;
mod condition;
mod creation;
mod list_id;
mod orphans;
mod removal;

use std::{
    fs::{self, DirBuilder, File},
    io,
    os::unix::fs::DirBuilderExt,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};
use sandbar::{
    MachineError, SandboxClient, SandboxSession, SessionOptions, SessionState,
    client::{
        Registry, Source,
        registry::{ClientContext, SessionList},
    },
    sandbox::SessionStore,
};
use tokio::time::{Instant, sleep};

use self::clients::Clients;
pub use self::{
    condition::Condition,
    creation::{CreationRecords, UnfinishedSession},
    removal::{RemovableSession, RemovalPatience, until_removed},
};
use crate::{Error, ErrorKind, Result, StateDir, git::Guard};

/// How long a creation waits for a process that searches for machines without a session.
const SEARCH: Duration = Duration::from_secs(10);

/// The sessions of a state directory.
#[derive(Debug)]
pub struct Sessions {
    directory: PathBuf,
    store: SessionStore,
    clients: Clients,
}

impl Sessions {
    /// Opens the list of sessions, which is created if it is missing. Machines are reached through `registry`.
    pub fn open(state: &StateDir, registry: Registry) -> Result<Self> {
        let directory = state.path().to_owned();
        let created = DirBuilder::new().recursive(true).mode(0o700).create(&directory);
        created.map_err(|error| {
            Error::new(ErrorKind::StateDir, format!("cannot keep sessions in {}", directory.display()))
                .because(error)
                .with_advice("set XDG_STATE_HOME to a directory of your own")
        })?;
        let listed = directory.clone();
        let id = move || {
            let refuse = |error: io::Error| MachineError::invalid(listed.display().to_string(), error.to_string());
            list_id::list_id(&listed).map_err(refuse)
        };
        let list = SessionList::new(state.machines(), id);
        let clients = Clients::new(registry, list);
        Ok(Self { store: SessionStore::open(state.sessions())?, clients, directory })
    }

    /// Opens the list of sessions; `None` if no session was ever created.
    pub fn open_existing(state: &StateDir, registry: Registry) -> Result<Option<Self>> {
        if state.sessions().exists() { Self::open(state, registry).map(Some) } else { Ok(None) }
    }

    /// The records of the sessions.
    pub fn store(&self) -> &SessionStore {
        &self.store
    }

    /// A client that finds the machine of every session through the provider that its handle names.
    pub fn client(&self) -> &dyn SandboxClient {
        &self.clients
    }

    /// The providers, the default provider first.
    pub fn registry(&self) -> &Registry {
        self.clients.registry()
    }

    /// The client that creates the machine of a new session.
    pub fn client_for(&self, source: &Source, context: ClientContext) -> Result<Arc<dyn SandboxClient>> {
        Ok(self.clients.creator(source, context)?)
    }

    /// Announces that a session is being created, until the result is dropped. Without it, another process could take the new
    /// machine for one without a session.
    pub async fn creation(&self) -> Result<Creation> {
        let creation = Creation(self.lock_file()?);
        let deadline = Instant::now() + SEARCH;
        // The exclusive lock is held only while two directories are read.
        while let Err(error) = flock(&creation.0, FlockOperation::NonBlockingLockShared) {
            if error != Errno::WOULDBLOCK || Instant::now() > deadline {
                let message = format!("cannot lock {}", self.directory.display());
                return Err(Error::new(ErrorKind::Io, message).because(error));
            }
            sleep(Duration::from_millis(5)).await;
        }
        Ok(creation)
    }

    fn lock_file(&self) -> Result<File> {
        let failed = |error: io::Error| Error::io(format!("cannot open {}", self.directory.display()), error);
        File::open(&self.directory).map_err(failed)
    }

    /// The lock of searches for abandoned machines; `None` while a session is being created.
    fn search_lock(&self) -> Result<Option<File>> {
        let file = self.lock_file()?;
        Ok(flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok().then_some(file))
    }

    /// The file with the [`Guard`] of a session.
    pub fn guard_path(&self, id: &str) -> PathBuf {
        self.directory.join("repositories").join(format!("{id}.json"))
    }

    /// Reports what the commands of a session changed in git repositories of the host since the last call.
    ///
    /// # Errors
    /// If the guard cannot be read; or if it cannot be saved after the report, so that the next call reports the same again.
    pub fn report_repositories(&self, id: &str, mut report: impl FnMut(&str)) -> Result<()> {
        let file = self.guard_path(id);
        let Some(mut guard) = Guard::load(&file)? else { return Ok(()) };
        let findings = guard.new_findings();
        findings.iter().for_each(|finding| report(finding));
        if findings.is_empty() { Ok(()) } else { guard.save(&file) }
    }

    /// Removes the record of a session.
    pub fn forget(&self, id: &str) -> Result<()> {
        match fs::remove_file(self.guard_path(id)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(Error::io(format!("cannot forget the session {id}"), error));
            }
            _ => {}
        }
        Ok(self.store.remove(id)?)
    }

    /// The record of the session with this id, part of an id, or name.
    pub fn find(&self, given: &str) -> Result<SessionState> {
        Ok(self.store.find(given)?)
    }

    /// The error for a session whose machine ended, after another process may have removed it. `when` completes the message.
    pub async fn closed(&self, id: &str, when: &str) -> Error {
        let closed = |message: String| Error::new(ErrorKind::SessionClosed, message).about(id);
        // `rm` deletes the machine first and the record after it.
        for _ in 0..20 {
            if self.store.find(id).is_err_and(|error| error.code() == "session_not_found") {
                return closed(format!("the session {id} was removed {when}"));
            }
            sleep(Duration::from_millis(100)).await;
        }
        closed(format!("the machine of session {id} ended {when}")).with_advice(forget_advice(id))
    }

    /// Attaches to a running session.
    pub async fn attach(&self, given: &str) -> Result<SandboxSession> {
        let state = self.find(given)?;
        let condition = match (state.unfinished, state.workspace_root_ready) {
            (true, _) => "was never finished; the process that created it was killed",
            (false, false) => "was stopped",
            (false, true) => "is gone; its machine ended",
        };
        match SandboxSession::attach(self.clients.of(&state.machine)?, state, SessionOptions::default()).await? {
            Some(session) => Ok(session),
            None => {
                let message = format!("the session {given} {condition}");
                Err(Error::new(ErrorKind::SessionClosed, message).about(given).with_advice(forget_advice(given)))
            }
        }
    }
}

fn forget_advice(id: &str) -> String {
    format!("`sandbar session rm {id}` forgets it")
}

/// The announcement of a session that is being created; dropping it ends the announcement.
#[must_use]
#[derive(Debug)]
pub struct Creation(File);
