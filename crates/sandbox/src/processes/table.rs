//! The table itself: which processes it holds, which it admits, and what a call returns.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use futures::future::join_all;
use parking_lot::{Mutex, MutexGuard};
use sandbar_machine::{Command, Control, Machine, Process};
use tokio::{
    sync::{Notify, oneshot},
    task::JoinSet,
    time::{Instant, timeout},
};
use uuid::Uuid;

use super::{
    Deltas, Ids, ProcessInfo, Start, TableOptions, Update, Write,
    entry::{Entry, Until},
    evict::{Candidate, victim},
    pump::{self, Record},
    resume::InheritedProcess,
    truncate::{Gap, tokens, truncate_around},
};
use crate::{Op, Result, SandboxError, SecretMask};

/// The reason for refusing a start while the session stops.
const STOPPING: &str = "the session is stopping";

/// The longest wait, thirty years: adding more to an `Instant` could overflow.
const FOR_EVER: Duration = Duration::from_secs(30 * 365 * 86_400);

/// The deadline after this time, which may be any duration.
fn after(time: Duration) -> Instant {
    Instant::now() + time.min(FOR_EVER)
}

fn argv_text(command: &Command) -> Vec<String> {
    command.argv.iter().map(|argument| argument.to_string_lossy().into_owned()).collect()
}

/// The processes of one session. Calls for different processes run concurrently, calls for the same process one after
/// the other. Dropping the table kills every running process, unless the machine outlives the table.
#[derive(Debug)]
pub struct ProcessTable {
    machine: Arc<dyn Machine>,
    options: TableOptions,
    mask: Option<SecretMask>,
    rows: Mutex<Rows>,
    /// Notified whenever a start has ended, successfully or not.
    started: Notify,
    chunks: AtomicU64,
    /// Held by the call that adopts a process.
    adopting: tokio::sync::Mutex<()>,
}

/// The facts about a process that are known at its start.
pub(super) struct ProcessFacts {
    pub(super) argv: Vec<OsString>,
    pub(super) tty: bool,
    pub(super) started: SystemTime,
    /// Number of output bytes that no table has any more.
    pub(super) unread: u64,
}

#[derive(Debug, Default)]
pub(super) struct Rows {
    pub(super) entries: BTreeMap<u64, Arc<Entry>>,
    /// Processes of an earlier table that no call has used yet.
    pub(super) inherited: BTreeMap<u64, InheritedProcess>,
    /// Numbers of processes that are being started, and the round in which each start began.
    reserved: BTreeMap<u64, u64>,
    /// Counts the calls that end all processes; a start of an earlier round is not admitted.
    round: u64,
    /// Whether every start is refused.
    pub(super) closed: bool,
    /// Counts the uses of processes.
    clock: u64,
    /// Counts the numbers that were assigned.
    given: u64,
    /// One task per process that reads its output; it ends with the streams, or with the table.
    pumps: JoinSet<()>,
}

impl ProcessTable {
    /// An empty table.
    #[must_use]
    pub fn new(machine: Arc<dyn Machine>, options: TableOptions) -> Self {
        let (rows, adopting) = (Mutex::default(), tokio::sync::Mutex::default());
        Self { machine, options, mask: None, rows, started: Notify::new(), chunks: AtomicU64::new(0), adopting }
    }

    /// Hides these secrets in the output of processes that start from now on.
    #[must_use]
    pub fn hiding(mut self, mask: Option<SecretMask>) -> Self {
        self.mask = mask;
        self
    }

    pub(super) fn machine(&self) -> &dyn Machine {
        &*self.machine
    }

    pub(super) fn options(&self) -> &TableOptions {
        &self.options
    }

    pub(super) fn adopting(&self) -> &tokio::sync::Mutex<()> {
        &self.adopting
    }

    pub(super) fn rows(&self) -> MutexGuard<'_, Rows> {
        // A panic cannot leave the rows inconsistent.
        self.rows.lock()
    }

    /// Runs a command and waits for its exit, at most for the yield time. A command that still runs then stays in the
    /// table under the number in the update. A start that is dropped before it returns kills the command, because no
    /// caller knows its number.
    ///
    /// # Errors
    /// `exec_transport_error` if the machine cannot start the command or is lost, if calls are waiting for every
    /// process of a full table, or if all processes were ended meanwhile.
    pub async fn start(&self, mut start: Start) -> Result<Update> {
        let begun = Instant::now();
        let mut slot = self.reserve(&start)?;
        let evicted = std::mem::take(&mut slot.evicted);
        let argv_of = || argv_text(&start.command);
        let command = start.command.clone().joined();
        let command = if self.machine.commands().is_some() { command.kept() } else { command };
        let spawned = timeout(self.options.patience, self.machine.spawn(command)).await;
        let process = spawned
            .map_err(|_elapsed| SandboxError::exec_transport_error(argv_of(), "it did not start in time"))?
            .map_err(|error| SandboxError::exec_transport_error(argv_of(), error.to_string()).because(error))?;
        let watcher = start.watcher.take();
        let (argv, tty) = (start.command.argv.clone(), start.command.tty.is_some());
        let facts = ProcessFacts { argv, tty, started: SystemTime::now(), unread: 0 };
        let entry = self.entry(slot.id, facts, process, watcher);
        // Take the turn before the entry is visible, so that it cannot be evicted meanwhile.
        let _turn = entry.turn.lock().await;
        if let Err(_still_reserved) = slot.fill(&entry) {
            entry.kill(self.options.kill_patience).await;
            return Err(SandboxError::exec_transport_error(argv_of(), STOPPING));
        }
        let unannounced = Unannounced { table: self, entry: &entry };
        let yield_time = start.yield_time.unwrap_or(self.options.start_yield);
        let deadline = after(yield_time.min(self.options.yield_max).max(self.options.yield_min));
        entry.settle(Until::Exit, deadline, &self.options).await;
        std::mem::forget(unannounced);
        let mut update = self.report(&entry, begun, start.max_output_tokens, 0)?;
        for id in &evicted {
            let most = self.options.max_processes;
            append(&mut update.output, &format!("session {id} was ended to make room: at most {most} are kept"));
        }
        update.evicted = evicted;
        Ok(update)
    }

    /// Writes to a process, or only polls it if the input is empty. A call with input returns as soon as the process
    /// has printed something and then nothing for 50 ms. A call without input waits for the exit or the full yield
    /// time, which is at least 5 s.
    ///
    /// # Errors
    /// `pty_session_not_found`, `pty_stdin_unavailable` for input to a process without a terminal,
    /// `exec_transport_error` if the machine is lost or another call keeps using the process.
    pub async fn write(&self, id: u64, write: Write<'_>) -> Result<Update> {
        let begun = Instant::now();
        let entry = self.find_or_adopt(id).await?;
        let busy =
            |_elapsed| SandboxError::exec_transport_error(entry.command(), "another call is still waiting for it");
        let _turn = timeout(self.options.poll_max, entry.turn.lock()).await.map_err(busy)?;
        // The previous call may have reported the exit.
        if !Arc::ptr_eq(&self.find(id)?, &entry) {
            return Err(SandboxError::pty_session_not_found(id));
        }
        let deadline = after(self.yield_of(&write));
        if write.chars.is_empty() {
            entry.settle(Until::Exit, deadline, &self.options).await;
            return self.report(&entry, begun, write.max_output_tokens, 0);
        }
        let arrivals = entry.record.arrivals.subscribe();
        let unaccepted = entry.type_in(write.chars, deadline).await?;
        entry.settle(Until::Answer(arrivals), deadline, &self.options).await;
        self.report(&entry, begun, write.max_output_tokens, unaccepted)
    }

    /// The processes in the table, newest first.
    #[must_use]
    pub fn list(&self) -> Vec<ProcessInfo> {
        let rows = self.rows();
        let mut infos: Vec<ProcessInfo> = rows.entries.values().map(|entry| entry.info()).collect();
        infos.extend(rows.inherited.iter().map(|(id, process)| process.info(*id)));
        drop(rows);
        infos.sort_by_key(|info| std::cmp::Reverse((info.started, info.id)));
        infos
    }

    /// Subscribes to the live output of a process from now on.
    ///
    /// # Errors
    /// `pty_session_not_found`.
    pub fn subscribe(&self, id: u64) -> Result<Deltas> {
        Ok(self.find(id)?.record.watch())
    }

    /// Sends a signal or the new size of the terminal to a process, without waiting for other calls.
    ///
    /// # Errors
    /// `pty_session_not_found`, `exec_transport_error` if the machine does not accept the request in time.
    pub async fn control(&self, id: u64, control: Control) -> Result<()> {
        let entry = self.find_or_adopt(id).await?;
        let sent = timeout(self.options.patience, entry.control.send(control)).await;
        // The channel of an exited command is closed, which is not an error.
        sent.map(drop).map_err(|_| SandboxError::exec_transport_error(entry.command(), "the machine does not respond"))
    }

    /// Kills a process and every process it started, and removes it from the table. A call that waits for it still gets
    /// its last output.
    ///
    /// # Errors
    /// `pty_session_not_found`, `machine_error` if the machine did not confirm the kill in time; the process is removed
    /// from the table anyway.
    pub async fn terminate(&self, id: u64) -> Result<()> {
        let entry = self.find_or_adopt(id).await?;
        let confirmed = entry.kill(self.options.kill_patience).await;
        self.forget(&entry);
        if confirmed { Ok(()) } else { Err(SandboxError::machine_error(Op::PtyTerminate, id.to_string())) }
    }

    /// Kills every process, also those that are being started, and removes them from the table. Returns when all are
    /// gone, or after the kill timeout. Processes that are started after this call are not affected.
    pub async fn terminate_all(&self) {
        let _held_by_others = timeout(self.options.kill_patience, self.adopt_all()).await;
        let (entries, round) = {
            let mut rows = self.rows();
            rows.round += 1;
            (rows.entries.values().cloned().collect::<Vec<_>>(), rows.round)
        };
        let kills = join_all(entries.iter().map(|entry| entry.kill(self.options.kill_patience)));
        let starts = timeout(self.options.kill_patience, self.starts_before(round));
        let _some_may_be_late = tokio::join!(kills, starts);
        entries.iter().for_each(|entry| self.forget(entry));
    }

    /// Refuses every later start, then calls [`terminate_all`](Self::terminate_all).
    pub async fn close(&self) {
        self.rows().closed = true;
        self.terminate_all().await;
    }

    /// Waits until every start of an earlier round has ended.
    async fn starts_before(&self, round: u64) {
        loop {
            let mut over = pin!(self.started.notified());
            // From here on no notification is missed.
            over.as_mut().enable();
            if self.rows().reserved.values().all(|begun| *begun >= round) {
                return;
            }
            over.await;
        }
    }

    /// An error as an update that a model can read: exit code 1, and the error message.
    #[must_use]
    pub fn refusal(&self, error: &SandboxError, wall_time: Duration) -> Update {
        Update::refusal(self.chunk_id(), wall_time, error)
    }

    /// A result without a process as an update that a model can read: exit code 0.
    #[must_use]
    pub fn report_done(&self, output: String, wall_time: Duration) -> Update {
        Update {
            chunk_id: self.chunk_id(),
            wall_time,
            exit_code: Some(0),
            process_id: None,
            original_token_count: None,
            output,
            omitted_bytes: 0,
            unaccepted_bytes: 0,
            evicted: Vec::new(),
        }
    }

    /// Number of output tasks.
    #[cfg(test)]
    pub(super) fn tasks(&self) -> usize {
        self.rows().pumps.len()
    }

    fn yield_of(&self, write: &Write<'_>) -> Duration {
        let TableOptions { yield_min, yield_max, poll_min, poll_max, write_yield, .. } = self.options;
        let wanted = write.yield_time.unwrap_or(write_yield);
        if write.chars.is_empty() { wanted.min(poll_max).max(poll_min) } else { wanted.min(yield_max).max(yield_min) }
    }

    fn chunk_id(&self) -> String {
        let count = match self.options.ids {
            Ids::Random => Uuid::new_v4().as_u64_pair().1,
            Ids::Sequential => self.chunks.fetch_add(1, Ordering::Relaxed),
        };
        format!("{:06x}", count & 0xFF_FFFF)
    }

    /// The process with this number; the lookup counts as a use.
    pub(super) fn find(&self, id: u64) -> Result<Arc<Entry>> {
        let mut rows = self.rows();
        let entry = rows.entries.get(&id).cloned().ok_or_else(|| SandboxError::pty_session_not_found(id))?;
        rows.clock += 1;
        entry.used.store(rows.clock, Ordering::Relaxed);
        Ok(entry)
    }

    fn forget(&self, entry: &Arc<Entry>) {
        let mut rows = self.rows();
        if rows.entries.get(&entry.id).is_some_and(|found| Arc::ptr_eq(found, entry)) {
            rows.entries.remove(&entry.id);
        }
    }

    /// Evicts processes if the table is full, and reserves a number, before the command runs.
    fn reserve(&self, start: &Start) -> Result<Slot<'_>> {
        let refused = |reason: &str| Err(SandboxError::exec_transport_error(argv_text(&start.command), reason));
        let mut rows = self.rows();
        if rows.closed {
            return refused(STOPPING);
        }
        let mut evicted = Vec::new();
        while rows.len() >= self.options.max_processes {
            let Some(oldest) = rows.victim(self.options.protected) else {
                return refused(&format!("all {} processes are in use; end one first", rows.len()));
            };
            tracing::warn!(id = oldest, "the process table is full: the least recently used process is ended");
            rows.entries.remove(&oldest);
            evicted.push(oldest);
        }
        let id = rows.number(self.options.ids);
        let round = rows.round;
        rows.reserved.insert(id, round);
        if rows.len() >= self.options.warn_at {
            tracing::warn!(
                processes = rows.len(),
                limit = self.options.max_processes,
                "the process table is nearly full"
            );
        }
        Ok(Slot { table: self, id, evicted })
    }

    pub(super) fn entry(
        &self,
        id: u64,
        facts: ProcessFacts,
        process: Process,
        watcher: Option<oneshot::Sender<Deltas>>,
    ) -> Arc<Entry> {
        let record = Record::new(self.options.buffer);
        record.skip(facts.unread);
        let mut rows = self.rows();
        while rows.pumps.try_join_next().is_some() {}
        rows.clock += 1;
        Arc::new(Entry {
            id,
            argv: facts.argv,
            tty: facts.tty,
            started: facts.started,
            process: process.id,
            stdin: process.stdin,
            control: process.control,
            record: pump::start(&mut rows.pumps, process.output, (record, self.mask.clone()), watcher),
            turn: tokio::sync::Mutex::new(()),
            used: AtomicU64::new(rows.clock),
        })
    }

    /// The update for a call. Nothing is awaited between taking the output and returning it, so that a dropped call
    /// loses no output.
    fn report(
        &self,
        entry: &Arc<Entry>,
        begun: Instant,
        max: Option<usize>,
        unaccepted_bytes: usize,
    ) -> Result<Update> {
        if let Some(lost) = entry.record.take_lost() {
            self.forget(entry);
            return Err(SandboxError::exec_transport_error(entry.command(), lost.to_string()).because(lost));
        }
        let exit_code = entry.record.exit_code();
        if exit_code.is_some() {
            self.forget(entry);
        }
        let drained = entry.record.drain();
        let gap = drained.gap.clone().map(|notice| Gap { notice, omitted: drained.omitted });
        let (mut output, cut) = truncate_around(&drained.text, gap, max.unwrap_or(self.options.max_output_tokens));
        if unaccepted_bytes > 0 {
            let notice = format!("the last {unaccepted_bytes} bytes of the input were not taken; send them again");
            append(&mut output, &notice);
        }
        if let Some(limit) = entry.record.limit() {
            append(&mut output, &format!("{limit}: the command was ended"));
        }
        let printed = tokens(usize::try_from(drained.printed).unwrap_or(usize::MAX));
        Ok(Update {
            chunk_id: self.chunk_id(),
            wall_time: begun.elapsed(),
            exit_code,
            process_id: exit_code.is_none().then_some(entry.id),
            original_token_count: if drained.omitted > 0 { Some(printed) } else { cut },
            output,
            omitted_bytes: drained.omitted,
            unaccepted_bytes,
            evicted: Vec::new(),
        })
    }
}

/// Appends a line of the table to an output.
fn append(output: &mut String, notice: &str) {
    let line_break = if output.is_empty() || output.ends_with('\n') { "" } else { "\n" };
    output.push_str(&format!("{line_break}[{notice}]\n"));
}

impl Rows {
    fn len(&self) -> usize {
        self.entries.len() + self.reserved.len()
    }

    fn victim(&self, protected: usize) -> Option<u64> {
        let candidate = |entry: &Arc<Entry>| Candidate {
            id: entry.id,
            used: entry.used(),
            exited: entry.has_exited(),
            busy: entry.is_busy(),
        };
        victim(self.entries.values().map(candidate).collect(), protected)
    }

    fn number(&mut self, ids: Ids) -> u64 {
        loop {
            let id = match ids {
                Ids::Random => 1000 + Uuid::new_v4().as_u64_pair().1 % 99_000,
                Ids::Sequential => 1000 + self.given,
            };
            self.given += 1;
            let taken = self.inherited.contains_key(&id) || self.reserved.contains_key(&id);
            if !taken && !self.entries.contains_key(&id) {
                return id;
            }
        }
    }
}

/// A number that is reserved while its process is being started.
struct Slot<'a> {
    table: &'a ProcessTable,
    id: u64,
    /// Processes that were evicted for it.
    evicted: Vec<u64>,
}

impl Slot<'_> {
    /// Admits the process, unless all processes were ended since its start began.
    fn fill(self, entry: &Arc<Entry>) -> std::result::Result<(), Self> {
        let mut rows = self.table.rows();
        if rows.reserved.get(&self.id) != Some(&rows.round) {
            drop(rows);
            return Err(self);
        }
        rows.entries.insert(self.id, Arc::clone(entry));
        Ok(())
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        self.table.rows().reserved.remove(&self.id);
        self.table.started.notify_waiters();
    }
}

/// A process whose number was not reported yet: it ends with the call that started it.
struct Unannounced<'a> {
    table: &'a ProcessTable,
    entry: &'a Arc<Entry>,
}

impl Drop for Unannounced<'_> {
    fn drop(&mut self) {
        self.table.forget(self.entry);
    }
}
