//! Processes that outlive the table that started them: what is saved of them, and how a later table takes them over.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use sandbar_machine::{Control, MachineError, ProcessId};
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use super::{ProcessInfo, ProcessTable, entry::Entry, table::About};
use crate::{Result, SandboxError};

/// A process of a saved session, on a machine that outlives whoever holds it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedProcess {
    /// The number that the session's calls know it by.
    pub session_id: u64,
    /// What the machine knows it by.
    pub process: ProcessId,
    /// Bytes it had printed that no call was told of.
    #[serde(default)]
    pub unread: u64,
}

/// A process that was started by another table, and that nobody asked for yet.
#[derive(Clone, Debug)]
pub(super) struct Left {
    process: ProcessId,
    unread: u64,
    argv: Vec<OsString>,
    tty: bool,
    started: SystemTime,
}

impl Left {
    pub(super) fn info(&self, id: u64) -> ProcessInfo {
        let (argv, tty, started) = (self.argv.clone(), self.tty, self.started);
        ProcessInfo { id, argv, tty, started, exit_code: None, buffered: 0 }
    }

    fn command(&self) -> Vec<String> {
        self.argv.iter().map(|word| word.to_string_lossy().into_owned()).collect()
    }
}

impl ProcessTable {
    /// What a later table needs to go on with the processes of this one; nothing on a machine that ends with its maker.
    #[must_use]
    pub fn saved(&self) -> Vec<SavedProcess> {
        let rows = self.rows();
        let own = rows.entries.values().filter(|entry| !entry.has_exited()).filter_map(|entry| {
            let unread = entry.record.unread();
            Some(SavedProcess { session_id: entry.id, process: entry.process?, unread })
        });
        let left = rows.left.iter().map(|(id, left)| {
            let Left { process, unread, .. } = *left;
            SavedProcess { session_id: *id, process, unread }
        });
        own.chain(left).collect()
    }

    /// Expects calls about processes of an earlier table, under their old numbers. Each is taken over when the first call
    /// asks for it; those that are gone are unknown.
    pub async fn expect(&self, saved: &[SavedProcess]) {
        if saved.is_empty() {
            return;
        }
        let Some(commands) = self.machine().commands() else { return };
        let known = match timeout(self.options().patience, commands.list()).await {
            Ok(Ok(known)) => known,
            Ok(Err(error)) => return tracing::warn!(%error, "the machine does not say which processes it has"),
            Err(_elapsed) => return tracing::warn!("the machine does not say in time which processes it has"),
        };
        let mut known: BTreeMap<ProcessId, _> = known.into_iter().map(|info| (info.id, info)).collect();
        let mut rows = self.rows();
        for SavedProcess { session_id, process, unread } in saved.iter().take(self.options().max_processes) {
            let Some(info) = known.remove(process) else { continue };
            let started = UNIX_EPOCH.checked_add(Duration::from_secs(info.since)).unwrap_or(UNIX_EPOCH);
            let left = Left { process: *process, unread: *unread, argv: info.argv, tty: info.tty, started };
            rows.left.insert(*session_id, left);
        }
    }

    /// The process of this number; one that was left behind is taken over now.
    pub(super) async fn reach(&self, id: u64) -> Result<std::sync::Arc<Entry>> {
        let unknown = match self.find(id) {
            Ok(entry) => return Ok(entry),
            Err(unknown) => unknown,
        };
        // Two calls at once must not take each other for a stranger.
        let _one_at_a_time = self.adopting().lock().await;
        if let Ok(entry) = self.find(id) {
            return Ok(entry);
        }
        let Some(left) = self.rows().left.get(&id).cloned() else { return Err(unknown) };
        let failed = |reason: &str| SandboxError::exec_transport_error(left.command(), reason);
        // Only a machine with this facet leaves anything to be taken over.
        let Some(commands) = self.machine().commands() else { return Err(unknown) };
        let adopted = match timeout(self.options().patience, commands.adopt(left.process)).await {
            Ok(Ok(adopted)) => adopted,
            Ok(Err(error @ MachineError::Held(_))) => return Err(failed("another program talks to it").because(error)),
            Ok(Err(error)) => return Err(failed(&error.to_string()).because(error)),
            Err(_elapsed) => return Err(failed("the machine does not listen")),
        };
        let Some(process) = adopted else {
            self.rows().left.remove(&id);
            return Err(unknown);
        };
        let about = About { argv: left.argv, tty: left.tty, started: left.started, unread: left.unread };
        let entry = self.entry(id, about, process, None);
        let mut rows = self.rows();
        if rows.left.remove(&id).is_none() || rows.closed {
            // Everything was ended meanwhile; dropping the entry ends this one too.
            return Err(unknown);
        }
        rows.entries.insert(id, entry.clone());
        Ok(entry)
    }

    /// Takes over everything that was left behind, as far as nobody else holds it.
    pub(super) async fn reach_all(&self) {
        let left: Vec<u64> = self.rows().left.keys().copied().collect();
        for id in left {
            let _held_or_gone = self.reach(id).await;
        }
    }
}

/// On a machine that outlives its maker, processes are left for a later table; on any other they end.
impl Drop for ProcessTable {
    fn drop(&mut self) {
        for entry in self.rows().entries.values().filter(|entry| entry.process.is_some()) {
            let _ends_then = entry.control.try_send(Control::Leave);
        }
    }
}
