//! The local client: makes machines on this host and knows the ones that live.

use std::{
    collections::HashMap,
    fmt,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
};

use async_trait::async_trait;
use sandbar_guest::subordinate::Subordinate;
use sandbar_machine::{Lifetime, Machine, MachineError, MachineHandle, MachineSpec, Recorder, Result, SandboxClient};
use serde_json::json;

use super::{
    boot, check,
    detached::{self, Place, Removal},
    state,
};
use crate::{GuestMachine, detached::remembered, launch::launch};

const ID: &str = "local";

/// Makes machines on this host, each behind namespaces, Landlock and seccomp, without privileges and without a daemon.
///
/// Clones share their machines: what one made, another finds. A detached machine is found by every client of the same user,
/// in this process and in others: its handle says where it is.
#[derive(Clone, Default)]
pub struct UnixLocal {
    state_dir: Option<PathBuf>,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    live: Mutex<HashMap<String, Weak<GuestMachine>>>,
    swept: AtomicBool,
}

impl UnixLocal {
    /// A client whose machines leave nothing behind.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Keeps what live machines need in this directory instead of the system's temporary one. It is made if missing,
    /// and must belong to this user alone.
    #[must_use]
    pub fn state_dir(mut self, directory: impl Into<PathBuf>) -> Self {
        self.state_dir = Some(directory.into());
        self
    }

    /// Whether this user's machines can have users beside `agent`: root's can, and those of whoever has ids to hand out.
    ///
    /// # Errors
    /// [`MachineError::Users`], with what is missing and what to do.
    pub fn several_users() -> Result<()> {
        let uid = rustix::process::geteuid();
        if uid.is_root() {
            return Ok(());
        }
        match Subordinate::find(uid.as_raw()) {
            Ok(_ids) => Ok(()),
            Err(lack) => Err(MachineError::Users { missing: lack.to_string(), fix: lack.fix() }),
        }
    }

    pub(super) fn chosen_dir(&self) -> Option<&Path> {
        self.state_dir.as_deref()
    }

    /// What a handle stands for.
    fn find(&self, handle: &MachineHandle) -> Result<Found> {
        let bad = |reason: &str| Err(MachineError::invalid("handle", reason));
        if handle.client != ID {
            return bad(&format!("belongs to the client {:?}, not to {ID:?}", handle.client));
        }
        if let Some(place) = Place::of(&handle.state)? {
            return Ok(Found::Detached(place));
        }
        let Some(id) = handle.state.get("id").and_then(|id| id.as_str()) else {
            return bad("is not one of a local machine");
        };
        let live = self.shared.live.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(Found::Held(live.get(id).and_then(Weak::upgrade).filter(|machine| !machine.is_gone())))
    }

    fn remember(&self, id: String, machine: &Arc<GuestMachine>) {
        let mut live = self.shared.live.lock().unwrap_or_else(PoisonError::into_inner);
        live.retain(|_, machine| machine.strong_count() > 0);
        live.insert(id, Arc::downgrade(machine));
    }

    async fn make(&self, spec: MachineSpec, record: &Recorder<'_>) -> Result<Arc<dyn Machine>> {
        spec.refuse_unless(&check::SUPPORTS)?;
        let (level, isolation) = check::level(spec.isolation)?;
        let mut launch = launch(&spec, level)?;
        let (dir, id) = state::prepare(self.state_dir.as_deref())?;
        let place = match spec.lifetime {
            Lifetime::WithOwner => None,
            _ => {
                check::hides(&launch, &dir)?;
                Some(detached::prepare(&dir, &id)?)
            }
        };
        launch.state = dir.into_os_string().into_encoded_bytes();
        launch.id = id.clone().into_bytes();
        launch.sweep = !self.shared.swept.swap(true, Ordering::Relaxed);
        let state = place.as_ref().map_or_else(|| json!({ "id": id }), Place::state);
        let handle = MachineHandle { client: ID.to_owned(), state };
        let listening = check::can_listen(&spec);
        let lifetime = spec.lifetime;
        let setup = check::setup(spec, isolation, handle.clone());
        if let Some(place) = &place {
            launch.detached = Some(remembered(place.nonce()?, &setup, listening, lifetime)?);
        }
        let machine = listening.told(boot::boot(&launch, setup, || record(&handle)).await?);
        if let Some(place) = place {
            return Ok(Arc::new(machine.farewell(Removal { place })));
        }
        let machine = Arc::new(machine);
        self.remember(id, &machine);
        Ok(machine)
    }
}

#[async_trait]
impl SandboxClient for UnixLocal {
    fn id(&self) -> &'static str {
        ID
    }

    async fn create(&self, spec: MachineSpec) -> Result<Arc<dyn Machine>> {
        self.make(spec, &|_handle| Ok(())).await
    }

    async fn create_recorded(&self, spec: MachineSpec, record: &Recorder<'_>) -> Result<Arc<dyn Machine>> {
        self.make(spec, record).await
    }

    async fn attach(&self, handle: &MachineHandle) -> Result<Option<Arc<dyn Machine>>> {
        let found = match self.find(handle)? {
            Found::Held(machine) => machine,
            Found::Detached(place) => place.attach(handle).await?.map(Arc::new),
        };
        Ok(found.map(|machine| machine as Arc<dyn Machine>))
    }

    async fn delete(&self, handle: &MachineHandle) -> Result<()> {
        match self.find(handle)? {
            Found::Held(Some(machine)) => machine.stop().await,
            Found::Held(None) => Ok(()),
            Found::Detached(place) => place.delete().await,
        }
    }
}

/// What a handle stands for.
enum Found {
    /// A machine that ends with its maker, which this process is, if it lives.
    Held(Option<Arc<GuestMachine>>),
    /// A machine that lives by itself, if it does.
    Detached(Place),
}

impl fmt::Debug for UnixLocal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnixLocal").field("state_dir", &self.state_dir).finish_non_exhaustive()
    }
}
