//! The local client: creates machines on this host and finds those that live.

use std::{
    collections::HashMap,
    fmt,
    path::{Path, PathBuf},
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
};

use async_trait::async_trait;
use parking_lot::Mutex;
use sandbar_guest::subordinate::Subordinate;
use sandbar_machine::{Lifetime, Machine, MachineError, MachineHandle, MachineSpec, Recorder, Result, SandboxClient};
use serde_json::json;

use super::{
    boot, check,
    detached::{self, DetachedHandle, Removal},
    state,
};
use crate::{GuestMachine, detached::detached_launch, launch::launch};

pub(super) const ID: &str = "local";

/// Creates machines on this host, each isolated by namespaces, Landlock and seccomp, without privileges and without a
/// daemon.
///
/// Clones share their machines: a machine that one created can be found by the others. A detached machine can be found
/// by every client of the same user, in this process and in others, because its handle contains its location.
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
    /// A client with the default state directory.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Stores the state of live machines in this directory instead of the system's temporary directory. The directory
    /// is created if it is missing, and must be accessible for this user only.
    #[must_use]
    pub fn state_dir(mut self, directory: impl Into<PathBuf>) -> Self {
        self.state_dir = Some(directory.into());
        self
    }

    /// Whether this user's machines can have users beside `agent`: this needs root, or subordinate ids of this user.
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

    /// The machine that a handle refers to.
    fn find(&self, handle: &MachineHandle) -> Result<HandleTarget> {
        let bad = |reason: &str| Err(MachineError::invalid("handle", reason));
        if handle.client != ID {
            return bad(&format!("belongs to the client {:?}, not to {ID:?}", handle.client));
        }
        if let Some(detached) = DetachedHandle::of(&handle.state)? {
            return Ok(HandleTarget::Detached(detached));
        }
        let Some(id) = handle.state.get("id").and_then(|id| id.as_str()) else {
            return bad("is not one of a local machine");
        };
        let live = self.shared.live.lock();
        Ok(HandleTarget::Bound(live.get(id).and_then(Weak::upgrade).filter(|machine| !machine.is_gone())))
    }

    fn remember(&self, id: String, machine: &Arc<GuestMachine>) {
        let mut live = self.shared.live.lock();
        live.retain(|_, machine| machine.strong_count() > 0);
        live.insert(id, Arc::downgrade(machine));
    }

    async fn make(&self, spec: MachineSpec, record: &Recorder<'_>) -> Result<Arc<dyn Machine>> {
        spec.refuse_unless(&check::SUPPORTS)?;
        let (level, isolation) = check::level(spec.isolation)?;
        let mut launch = launch(&spec, level)?;
        let (dir, id) = state::prepare(self.state_dir.as_deref())?;
        let detached = match spec.lifetime {
            Lifetime::WithOwner => None,
            _ => {
                check::hides(&launch, &dir)?;
                Some(detached::prepare(&dir, &id)?)
            }
        };
        launch.state = dir.into_os_string().into_encoded_bytes();
        launch.id = id.clone().into_bytes();
        launch.sweep = !self.shared.swept.swap(true, Ordering::Relaxed);
        let state = detached.as_ref().map_or_else(|| json!({ "id": id }), DetachedHandle::state);
        let handle = MachineHandle { client: ID.to_owned(), state };
        let listening = check::can_listen(&spec);
        let lifetime = spec.lifetime;
        let setup = check::setup(spec, isolation, handle.clone());
        if let Some(detached) = &detached {
            launch.detached = Some(detached_launch(detached.nonce()?, &setup, listening, lifetime)?);
        }
        let machine = listening.apply_to(boot::boot(&launch, setup, || record(&handle)).await?);
        if let Some(detached) = detached {
            return Ok(Arc::new(machine.teardown(Removal { handle: detached })));
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
            HandleTarget::Bound(machine) => machine,
            HandleTarget::Detached(detached) => detached.attach(handle).await?.map(Arc::new),
        };
        Ok(found.map(|machine| machine as Arc<dyn Machine>))
    }

    async fn delete(&self, handle: &MachineHandle) -> Result<()> {
        match self.find(handle)? {
            HandleTarget::Bound(Some(machine)) => machine.stop().await,
            HandleTarget::Bound(None) => Ok(()),
            HandleTarget::Detached(detached) => detached.delete().await,
        }
    }
}

/// The machine that a handle refers to.
enum HandleTarget {
    /// A machine that ends with this process, which created it; `None` if it has ended.
    Bound(Option<Arc<GuestMachine>>),
    /// A machine that outlives its creator; it may have ended.
    Detached(DetachedHandle),
}

impl fmt::Debug for UnixLocal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnixLocal").field("state_dir", &self.state_dir).finish_non_exhaustive()
    }
}
