//! One process of the table: its channels, its record, and how a call waits for it.

use std::{
    ffi::OsString,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use sandbar_machine::{Control, ProcessId, Signal};
use tokio::{
    sync::{Mutex, mpsc, watch},
    time::{Instant, timeout, timeout_at},
};

use super::{
    ProcessInfo, TableOptions,
    pump::{Phase, Record},
};
use crate::{Result, SandboxError};

/// The largest piece of input that is sent at once, in bytes.
const INPUT_PIECE: usize = 4096;

/// What a model sends for Ctrl-C.
const INTERRUPT: &str = "\u{3}";

/// A process. Dropping it drops `control`, which kills the command if it still runs.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) id: u64,
    pub(super) argv: Vec<OsString>,
    pub(super) tty: bool,
    pub(super) started: SystemTime,
    /// Id on the machine, if the process can outlive the table.
    pub(super) process: Option<ProcessId>,
    pub(super) stdin: Option<mpsc::Sender<Bytes>>,
    pub(super) control: mpsc::Sender<Control>,
    pub(super) record: Arc<Record>,
    /// Held by the call that currently uses the process.
    pub(super) turn: Mutex<()>,
    /// The table's clock when the process was last used.
    pub(super) used: AtomicU64,
}

/// What a call waits for.
pub(super) enum Until {
    /// The exit.
    Exit,
    /// The exit, or an answer: new output followed by silence.
    Answer(watch::Receiver<u64>),
}

impl Entry {
    pub(super) fn command(&self) -> Vec<String> {
        self.argv.iter().map(|argument| argument.to_string_lossy().into_owned()).collect()
    }

    pub(super) fn info(&self) -> ProcessInfo {
        ProcessInfo {
            id: self.id,
            argv: self.argv.clone(),
            tty: self.tty,
            started: self.started,
            exit_code: self.record.exit_code(),
            buffered: self.record.buffered(),
        }
    }

    pub(super) fn has_exited(&self) -> bool {
        *self.record.phase.borrow() > Phase::Running
    }

    pub(super) fn is_busy(&self) -> bool {
        self.turn.try_lock().is_err()
    }

    pub(super) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Whether earlier input is still queued, so that new input would wait behind it.
    fn is_jammed(&self) -> bool {
        self.stdin.as_ref().is_some_and(|stdin| stdin.capacity() < stdin.max_capacity())
    }

    async fn exited(&self) {
        let mut phase = self.record.phase.subscribe();
        let _sender_is_ours = phase.wait_for(|phase| *phase > Phase::Running).await;
    }

    /// Waits until the condition holds, but not past the deadline. After an exit the streams get a short time to close.
    pub(super) async fn settle(&self, until: Until, deadline: Instant, options: &TableOptions) {
        let answered = async {
            match until {
                Until::Exit => std::future::pending().await,
                Until::Answer(arrivals) => answer(arrivals, options.silence).await,
            }
        };
        let news = async {
            tokio::select! {
                () = self.exited() => {}
                () = answered => {}
            }
        };
        let _late = timeout_at(deadline, news).await;
        if self.has_exited() {
            let mut phase = self.record.phase.subscribe();
            let _left_open = timeout(options.linger, phase.wait_for(|phase| *phase == Phase::Closed)).await;
        }
    }

    /// Sends input, and returns how many bytes of it were not accepted before the deadline.
    pub(super) async fn type_in(&self, chars: &str, deadline: Instant) -> Result<usize> {
        if chars == INTERRUPT && (!self.tty || self.is_jammed()) {
            let sent = timeout_at(deadline, self.control.send(Control::Signal(Signal::Interrupt))).await;
            return Ok(if sent.is_ok() { 0 } else { chars.len() });
        }
        let stdin = self.stdin.as_ref().ok_or_else(|| SandboxError::pty_stdin_unavailable(self.id))?;
        let mut left = Bytes::copy_from_slice(chars.as_bytes());
        let typing = async {
            while !left.is_empty() {
                let Ok(permit) = stdin.reserve().await else {
                    // The process closed its input; the exit says more than a broken pipe.
                    left.clear();
                    return;
                };
                permit.send(left.split_to(left.len().min(INPUT_PIECE)));
            }
        };
        let done = async {
            tokio::select! {
                biased;
                () = typing => {}
                () = self.exited() => {}
            }
        };
        let _full = timeout_at(deadline, done).await;
        Ok(if self.has_exited() { 0 } else { left.len() })
    }

    /// Kills the command and every process it started; whether its exit was seen in time.
    pub(super) async fn kill(&self, patience: Duration) -> bool {
        let killed = async {
            let _already_gone = self.control.send(Control::Signal(Signal::Kill)).await;
            self.exited().await;
        };
        timeout(patience, killed).await.is_ok()
    }
}

/// Waits for output, then for silence.
async fn answer(mut arrivals: watch::Receiver<u64>, silence: Duration) {
    if arrivals.changed().await.is_err() {
        return;
    }
    while timeout(silence, arrivals.changed()).await.is_ok_and(|more| more.is_ok()) {}
}
