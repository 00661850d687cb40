//! Processes that outlive the table that started them: how they are saved, and how a later table adopts them.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use sandbar_machine::{Control, MachineError, ProcessId};
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use super::{ProcessInfo, ProcessTable, entry::Entry, table::ProcessFacts};
use crate::{Result, SandboxError};

/// A process of a saved session, on a machine that outlives its client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedProcess {
    /// Number of the process in the session.
    pub session_id: u64,
    /// Id of the process on the machine.
    pub process: ProcessId,
    /// Number of output bytes that no call has reported.
    #[serde(default)]
    pub unread: u64,
}

/// A process that an earlier table started and that no call has used yet.
#[derive(Clone, Debug)]
pub(super) struct InheritedProcess {
    process: ProcessId,
    unread: u64,
    argv: Vec<OsString>,
    tty: bool,
    started: SystemTime,
}

impl InheritedProcess {
    pub(super) fn info(&self, id: u64) -> ProcessInfo {
        let (argv, tty, started) = (self.argv.clone(), self.tty, self.started);
        ProcessInfo { id, argv, tty, started, exit_code: None, buffered: 0 }
    }

    fn command(&self) -> Vec<String> {
        self.argv.iter().map(|argument| argument.to_string_lossy().into_owned()).collect()
    }
}

impl ProcessTable {
    /// The state that a later table needs to continue with the processes of this one; empty on a machine that ends with
    /// its client.
    #[must_use]
    pub fn saved(&self) -> Vec<SavedProcess> {
        let rows = self.rows();
        let own = rows.entries.values().filter(|entry| !entry.has_exited()).filter_map(|entry| {
            let unread = entry.record.unread();
            Some(SavedProcess { session_id: entry.id, process: entry.process?, unread })
        });
        let inherited = rows.inherited.iter().map(|(id, process)| {
            let InheritedProcess { process, unread, .. } = *process;
            SavedProcess { session_id: *id, process, unread }
        });
        own.chain(inherited).collect()
    }

    /// Accepts calls for processes of an earlier table, under their old numbers. The first call for a process adopts
    /// it; processes that no longer exist are unknown.
    pub async fn expect(&self, saved: &[SavedProcess]) {
        if saved.is_empty() {
            return;
        }
        let Some(commands) = self.machine().commands() else { return };
        let known = match timeout(self.options().patience, commands.list()).await {
            Ok(Ok(known)) => known,
            Ok(Err(error)) => return tracing::warn!(%error, "cannot list the processes of the machine"),
            Err(_elapsed) => return tracing::warn!("the machine did not list its processes in time"),
        };
        let mut known: BTreeMap<ProcessId, _> = known.into_iter().map(|info| (info.id, info)).collect();
        let mut rows = self.rows();
        for SavedProcess { session_id, process, unread } in saved.iter().take(self.options().max_processes) {
            let Some(info) = known.remove(process) else { continue };
            let started = UNIX_EPOCH.checked_add(Duration::from_secs(info.since)).unwrap_or(UNIX_EPOCH);
            let inherited =
                InheritedProcess { process: *process, unread: *unread, argv: info.argv, tty: info.tty, started };
            rows.inherited.insert(*session_id, inherited);
        }
    }

    /// The process with this number; an inherited process is adopted now.
    pub(super) async fn find_or_adopt(&self, id: u64) -> Result<std::sync::Arc<Entry>> {
        let unknown = match self.find(id) {
            Ok(entry) => return Ok(entry),
            Err(unknown) => unknown,
        };
        // Otherwise the second of two concurrent calls would find the process held by the first.
        let _one_at_a_time = self.adopting().lock().await;
        if let Ok(entry) = self.find(id) {
            return Ok(entry);
        }
        let Some(inherited) = self.rows().inherited.get(&id).cloned() else { return Err(unknown) };
        let failed = |reason: &str| SandboxError::exec_transport_error(inherited.command(), reason);
        // A machine without this facet has no inherited processes.
        let Some(commands) = self.machine().commands() else { return Err(unknown) };
        let adopted = match timeout(self.options().patience, commands.adopt(inherited.process)).await {
            Ok(Ok(adopted)) => adopted,
            Ok(Err(error @ MachineError::Held(_))) => return Err(failed("another program talks to it").because(error)),
            Ok(Err(error)) => return Err(failed(&error.to_string()).because(error)),
            Err(_elapsed) => return Err(failed("the machine does not respond")),
        };
        let Some(process) = adopted else {
            self.rows().inherited.remove(&id);
            return Err(unknown);
        };
        let InheritedProcess { argv, tty, started, unread, .. } = inherited;
        let facts = ProcessFacts { argv, tty, started, unread };
        let entry = self.entry(id, facts, process, None);
        let mut rows = self.rows();
        if rows.inherited.remove(&id).is_none() || rows.closed {
            // All processes were ended meanwhile; dropping the entry ends this one too.
            return Err(unknown);
        }
        rows.entries.insert(id, entry.clone());
        Ok(entry)
    }

    /// Adopts every inherited process that no other client holds.
    pub(super) async fn adopt_all(&self) {
        let inherited: Vec<u64> = self.rows().inherited.keys().copied().collect();
        for id in inherited {
            let _held_or_gone = self.find_or_adopt(id).await;
        }
    }
}

/// On a machine that outlives its client, processes keep running for a later table; on any other they end.
impl Drop for ProcessTable {
    fn drop(&mut self) {
        for entry in self.rows().entries.values().filter(|entry| entry.process.is_some()) {
            let _ends_then = entry.control.try_send(Control::Leave);
        }
    }
}
