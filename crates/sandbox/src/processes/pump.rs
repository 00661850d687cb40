//! The task that reads what a process prints, so that a process is never held up by a table nobody asks.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bytes::Bytes;
use sandbar_machine::{Exit, MachineError, Output};
use tokio::sync::{broadcast, mpsc, oneshot, watch};

use super::{
    deltas::{Deltas, PIECE, WAITING},
    ring::{Drained, Ring},
    utf8::{self, Carry},
};
use crate::{MaskStream, SecretMask};

/// How far a process has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    Running,
    /// The command exited; something else may still hold its streams.
    Exited,
    /// Nothing more will come.
    Closed,
}

/// What the pump writes and the table's calls read.
#[derive(Debug)]
pub(super) struct Record {
    told: Mutex<Told>,
    /// Counts pieces of output. Watch channels remember, so a waiter that subscribes before it looks misses nothing.
    pub(super) arrivals: watch::Sender<u64>,
    pub(super) phase: watch::Sender<Phase>,
}

#[derive(Debug)]
struct Told {
    ring: Ring,
    exit: Option<Exit>,
    lost: Option<MachineError>,
    watchers: Option<broadcast::Sender<Bytes>>,
}

impl Record {
    pub(super) fn new(buffer: usize) -> Self {
        Self {
            told: Mutex::new(Told { ring: Ring::new(buffer), exit: None, lost: None, watchers: None }),
            arrivals: watch::Sender::new(0),
            phase: watch::Sender::new(Phase::Running),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn exit_code(&self) -> Option<i32> {
        self.lock().exit.map(|exit| exit.code)
    }

    /// The machine's limit that ended it, in words a model can act on.
    pub(super) fn limit(&self) -> Option<&'static str> {
        self.lock().exit.and_then(|exit| exit.reason.limit())
    }

    pub(super) fn buffered(&self) -> usize {
        self.lock().ring.len()
    }

    /// How much was printed that nobody was told of.
    pub(super) fn unread(&self) -> u64 {
        self.lock().ring.printed()
    }

    /// Everything since the last time.
    pub(super) fn drain(&self) -> Drained {
        self.lock().ring.drain()
    }

    /// Why there will never be an exit; told once.
    pub(super) fn take_lost(&self) -> Option<MachineError> {
        self.lock().lost.take()
    }

    pub(super) fn watch(&self) -> Deltas {
        let mut told = self.lock();
        let pieces = if *self.phase.borrow() == Phase::Closed {
            broadcast::Sender::new(1).subscribe()
        } else {
            told.watchers.get_or_insert_with(|| broadcast::Sender::new(WAITING)).subscribe()
        };
        Deltas::new(pieces)
    }

    fn push(&self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let mut told = self.lock();
        told.ring.push(bytes);
        if let Some(watchers) = told.watchers.as_ref().filter(|watchers| watchers.receiver_count() > 0) {
            for piece in utf8::pieces(bytes, PIECE) {
                let _nobody_watches = watchers.send(Bytes::copy_from_slice(piece));
            }
        }
        drop(told);
        self.arrivals.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// So much was printed that nobody will ever see.
    pub(super) fn skip(&self, count: u64) {
        self.lock().ring.skip(count);
    }

    fn exited(&self, exit: Exit) {
        self.lock().exit = Some(exit);
        self.phase.send_replace(Phase::Exited);
    }

    fn closed(&self, lost: Option<MachineError>) {
        let mut told = self.lock();
        if told.exit.is_none() {
            told.lost = Some(lost.unwrap_or_else(|| MachineError::transport("run a command", "its exit never came")));
        }
        self.phase.send_replace(Phase::Closed);
        told.watchers = None;
    }
}

/// One stream on its way to the record: whole characters, and no secret value wherever the machine has cut it.
struct Lane {
    carry: Carry,
    mask: Option<MaskStream>,
}

impl Lane {
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

/// Reads until nobody holds the streams. Once the table has forgotten the process, what comes is thrown away.
async fn run(
    mut output: mpsc::Receiver<sandbar_machine::Result<Output>>,
    record: Weak<Record>,
    mask: Option<SecretMask>,
) {
    let (mut stdout, mut stderr) = (Lane::new(mask.as_ref()), Lane::new(mask.as_ref()));
    let push = |bytes: &Bytes| record.upgrade().inspect(|record| record.push(bytes));
    let mut lost = None;
    while let Some(event) = output.recv().await {
        match event {
            Ok(Output::Stdout(bytes)) => drop(push(&stdout.push(bytes))),
            Ok(Output::Stderr(bytes)) => drop(push(&stderr.push(bytes))),
            Ok(Output::Omitted(count)) => drop(record.upgrade().inspect(|record| record.skip(count))),
            Ok(Output::Exit(exit)) => {
                // The call that hears of the exit is the last one, so nothing may wait for a rest.
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

/// The record of a process, and its pump. Whoever wants to watch is there before the first piece is.
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
