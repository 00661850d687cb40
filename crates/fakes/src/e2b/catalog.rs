//! The sandboxes, snapshots and idempotency keys of a server.

use std::{collections::HashMap, sync::Arc, time::SystemTime};

use parking_lot::{Mutex, MutexGuard};

use super::{sandbox::Sandbox, snapshot::Snapshot};

/// The tables of a server, behind one lock.
#[derive(Debug, Default)]
pub(super) struct Catalog(Mutex<Tables>);

#[derive(Debug, Default)]
struct Tables {
    /// Sandboxes in the order of creation.
    sandboxes: Vec<Arc<Sandbox>>,
    snapshots: Vec<Arc<Snapshot>>,
    /// Idempotency keys of creations, with the sandbox that each created.
    creations: HashMap<String, String>,
}

impl Catalog {
    fn known(&self) -> MutexGuard<'_, Tables> {
        self.0.lock()
    }

    pub(super) fn add(&self, sandbox: Arc<Sandbox>, key: Option<String>) {
        let mut known = self.known();
        known.creations.extend(key.map(|key| (key, sandbox.id.clone())));
        known.sandboxes.push(sandbox);
    }

    pub(super) fn sandbox(&self, id: &str) -> Option<Arc<Sandbox>> {
        self.known().sandboxes.iter().find(|sandbox| sandbox.id == id).cloned()
    }

    /// The sandbox that was created with this idempotency key.
    pub(super) fn created(&self, key: &str) -> Option<Arc<Sandbox>> {
        let id = self.known().creations.get(key).cloned()?;
        self.sandbox(&id)
    }

    pub(super) fn sandboxes(&self) -> Vec<Arc<Sandbox>> {
        self.known().sandboxes.clone()
    }

    /// Removes a sandbox; `None` if no sandbox has this id.
    pub(super) fn remove(&self, id: &str) -> Option<Arc<Sandbox>> {
        let mut known = self.known();
        let at = known.sandboxes.iter().position(|sandbox| sandbox.id == id)?;
        Some(known.sandboxes.remove(at))
    }

    pub(super) fn add_snapshot(&self, snapshot: Snapshot) {
        self.known().snapshots.push(Arc::new(snapshot));
    }

    pub(super) fn snapshots(&self) -> Vec<Arc<Snapshot>> {
        self.known().snapshots.clone()
    }

    pub(super) fn remove_snapshot(&self, reference: &str) -> Option<Arc<Snapshot>> {
        let mut known = self.known();
        let at = known.snapshots.iter().position(|snapshot| snapshot.is(reference))?;
        Some(known.snapshots.remove(at))
    }

    /// When the next running sandbox ends.
    pub(super) fn next_end(&self) -> Option<SystemTime> {
        let running = self.sandboxes().into_iter().filter(|sandbox| sandbox.state() == super::sandbox::State::Running);
        running.map(|sandbox| sandbox.end()).min()
    }
}
