//! The task that reads the output of a process, so that the process never blocks on a table without callers.

use std::sync::{Arc, Weak};

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use sandbar_machine::{Exit, MachineError, Output};
use tokio::sync::{broadcast, mpsc, oneshot, watch};

use super::{
    deltas::{Deltas, PIECE, WAITING},
    ring::{Drained, Ring},
    utf8::{self, Carry},
};
use crate::{MaskStream, SecretMask};

/// The phase of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    Running,
    /// The command exited; a child may still hold its streams.
    Exited,
    /// The streams are closed.
    Closed,
}

/// The state of a process that the pump writes and the table's calls read.
#[derive(Debug)]
pub(super) struct Record {
    state: Mutex<RecordState>,
    /// Counts pieces of output. A watch channel keeps its last value, so a waiter that subscribes before it checks
    /// misses nothing.
    pub(super) arrivals: watch::Sender<u64>,
    pub(super) phase: watch::Sender<Phase>,
}

#[derive(Debug)]
struct RecordState {
    ring: Ring,
    exit: Option<Exit>,
    lost: Option<MachineError>,
    watchers: Option<broadcast::Sender<Bytes>>,
}

impl Record {
    pub(super) fn new(buffer: usize) -> Self {
        Self {
            state: Mutex::new(RecordState { ring: Ring::new(buffer), exit: None, lost: None, watchers: None }),
            arrivals: watch::Sender::new(0),
            phase: watch::Sender::new(Phase::Running),
        }
    }

    fn lock(&self) -> MutexGuard<'_, RecordState> {
        self.state.lock()
    }

    pub(super) fn exit_code(&self) -> Option<i32> {
        self.lock().exit.map(|exit| exit.code)
    }

    /// The limit of the machine that ended the process, as a text for the model.
    pub(super) fn limit(&self) -> Option<&'static str> {
        self.lock().exit.and_then(|exit| exit.reason.limit())
    }

    pub(super) fn buffered(&self) -> usize {
        self.lock().ring.len()
    }

    /// Number of printed bytes that no call has reported.
    pub(super) fn unread(&self) -> u64 {
        self.lock().ring.printed()
    }

    /// Takes the output since the last call.
    pub(super) fn drain(&self) -> Drained {
        self.lock().ring.drain()
    }

    /// Takes the reason why the exit will never be known.
    pub(super) fn take_lost(&self) -> Option<MachineError> {
        self.lock().lost.take()
    }

    pub(super) fn watch(&self) -> Deltas {
        let mut state = self.lock();
        let pieces = if *self.phase.borrow() == Phase::Closed {
            broadcast::Sender::new(1).subscribe()
        } else {
            state.watchers.get_or_insert_with(|| broadcast::Sender::new(WAITING)).subscribe()
        };
        Deltas::new(pieces)
    }

    fn push(&self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let mut state = self.lock();
        state.ring.push(bytes);
        if let Some(watchers) = state.watchers.as_ref().filter(|watchers| watchers.receiver_count() > 0) {
            for piece in utf8::pieces(bytes, PIECE) {
                let _no_subscriber = watchers.send(Bytes::copy_from_slice(piece));
            }
        }
        drop(state);
        self.arrivals.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Counts bytes that were printed but are lost.
    pub(super) fn skip(&self, count: u64) {
        self.lock().ring.skip(count);
    }

    fn exited(&self, exit: Exit) {
        self.lock().exit = Some(exit);
        self.phase.send_replace(Phase::Exited);
    }

    fn closed(&self, lost: Option<MachineError>) {
        let mut state = self.lock();
        if state.exit.is_none() {
            state.lost = Some(lost.unwrap_or_else(|| MachineError::transport("run a command", "its exit never came")));
        }
        self.phase.send_replace(Phase::Closed);
        state.watchers = None;
    }
}

/// Filters one stream: passes whole characters only, and hides secret values even if the machine splits them.
struct StreamFilter {
    carry: Carry,
    mask: Option<MaskStream>,
}

impl StreamFilter {
    fn new(mask: Option<&SecretMask>) -> Self {
        Self { carry: Carry::default(), mask: mask.map(SecretMask::stream) }
    }

    fn push(&mut self, bytes: Bytes) -> Bytes {
        let bytes = self.carry.push(bytes);
        match &mut self.mask {
            Some(mask) => mask.push(&bytes).into(),
            None => bytes,
        }
    }

    fn finish(&mut self) -> Bytes {
        let bytes = self.carry.finish();
        let Some(mask) = &mut self.mask else { return bytes };
        let mut rest = mask.push(&bytes);
        rest.extend(mask.finish());
        rest.into()
    }
}

/// Reads until the streams are closed. Once the table has forgotten the process, its output is discarded.
async fn run(
    mut output: mpsc::Receiver<sandbar_machine::Result<Output>>,
    record: Weak<Record>,
    mask: Option<SecretMask>,
) {
    let (mut stdout, mut stderr) = (StreamFilter::new(mask.as_ref()), StreamFilter::new(mask.as_ref()));
    let push = |bytes: &Bytes| record.upgrade().inspect(|record| record.push(bytes));
    let mut lost = None;
    while let Some(event) = output.recv().await {
        match event {
            Ok(Output::Stdout(bytes)) => drop(push(&stdout.push(bytes))),
            Ok(Output::Stderr(bytes)) => drop(push(&stderr.push(bytes))),
            Ok(Output::Omitted(count)) => drop(record.upgrade().inspect(|record| record.skip(count))),
            Ok(Output::Exit(exit)) => {
                // The call that reports the exit is the last one, so incomplete characters are passed on now.
                [stdout.finish(), stderr.finish()].iter().for_each(|rest| drop(push(rest)));
                drop(record.upgrade().inspect(|record| record.exited(exit)));
            }
            Err(error) => {
                lost = Some(error);
                break;
            }
        }
    }
    [stdout.finish(), stderr.finish()].iter().for_each(|rest| drop(push(rest)));
    if let Some(record) = record.upgrade() {
        record.closed(lost);
    }
}

/// Starts the pump of a process and returns its record. The watcher is subscribed before the first piece arrives.
pub(super) fn start(
    tasks: &mut tokio::task::JoinSet<()>,
    output: mpsc::Receiver<sandbar_machine::Result<Output>>,
    (record, mask): (Record, Option<SecretMask>),
    watcher: Option<oneshot::Sender<Deltas>>,
) -> Arc<Record> {
    let record = Arc::new(record);
    if let Some(watcher) = watcher {
        let _watcher_gone = watcher.send(record.watch());
    }
    tasks.spawn(run(output, Arc::downgrade(&record), mask));
    record
}
