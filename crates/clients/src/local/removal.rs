//! How a machine that outlives its creator is ended and removed, and the errors if that takes long or fails.

use std::{
    fs, io,
    os::fd::OwnedFd,
    pin::pin,
    time::{Duration, Instant},
};

use rustix::fs::{fstat, major, minor};
use sandbar_guest::protocol::{Welcome, Wish};
use sandbar_machine::{MachineError, Result};
use tokio::{
    io::AsyncReadExt,
    time::{sleep, timeout},
};

use super::{
    detached::{DetachedHandle, Door, is_marked, is_unlocked, open_own},
    leftovers::{self, DEAD},
};
use crate::detached::ANSWER;

/// How long one call waits until everything is removed.
const REMOVAL: Duration = Duration::from_secs(30);
/// Interval of the check whether the process that is waited for is stopped.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// Pause between two checks whether everything is gone: in the first second, and after it.
const PAUSES: [Duration; 2] = [Duration::from_millis(5), Duration::from_millis(50)];

/// State of a machine's directory.
enum DirState {
    Gone,
    /// Locked by a process: the supervisor, or a process that removes the directory.
    Locked(OwnedFd),
    /// Not locked by any process.
    Unlocked,
}

impl DetachedHandle {
    /// Ends the machine without its guest's consent, and waits until everything of it is removed.
    pub(super) async fn delete(&self) -> Result<()> {
        self.delete_within(REMOVAL).await
    }

    pub(super) async fn delete_within(&self, patience: Duration) -> Result<()> {
        if !self.end().await? {
            return Ok(());
        }
        let begun = Instant::now();
        let mut checked = begun;
        loop {
            let state = self.dir_state()?;
            let mut temporary = None;
            match &state {
                DirState::Gone => return Ok(()),
                DirState::Locked(dir) if checked.elapsed() >= CHECK_INTERVAL => {
                    checked = Instant::now();
                    self.check_holder(dir)?;
                }
                DirState::Locked(_) => {}
                DirState::Unlocked => temporary = self.sweep(patience.saturating_sub(begun.elapsed())).await?,
            }
            let waited = begun.elapsed();
            if waited >= patience {
                return Err(match (state, temporary) {
                    (_, Some(error)) => self.not_removed(error),
                    (DirState::Locked(_), None) => MachineError::StillBeingRemoved { what: self.name(), waited },
                    // The sweep may have had too little time, and continues in the background.
                    (_, None) => match self.dir_state()? {
                        DirState::Gone => return Ok(()),
                        DirState::Locked(_) => MachineError::StillBeingRemoved { what: self.name(), waited },
                        DirState::Unlocked => {
                            self.not_removed(io::Error::other("the directory of machines stayed locked"))
                        }
                    },
                });
            }
            sleep(PAUSES[usize::from(waited > Duration::from_secs(1))]).await;
        }
    }

    /// Tells the supervisor to end the machine. `false` if another machine uses the directory by now; that machine is
    /// not ended.
    async fn end(&self) -> Result<bool> {
        let mut asked = pin!(async {
            let mut stream = match self.knock(Wish::End).await {
                Ok(Door::Open(stream)) => stream,
                Ok(Door::Gone) => return Ok(true),
                // The machine is dead: a failure at its door does not prevent the removal of its files.
                Err(error) => {
                    return if matches!(self.dir_state()?, DirState::Locked(_)) { Err(error) } else { Ok(true) };
                }
            };
            let heard = stream.read_exact(&mut [0; Welcome::LENGTH]).await;
            // A supervisor that closes the connection without an answer and continues to run belongs to another
            // machine, which must not be ended.
            Ok(heard.is_ok() || !self.lives().await?)
        });
        let begun = Instant::now();
        loop {
            if let Ok(ended) = timeout(CHECK_INTERVAL, &mut asked).await {
                return ended;
            }
            if let Some(dir) = self.open()? {
                self.check_holder(&dir)?;
            }
            if begun.elapsed() >= ANSWER {
                return Err(self.silent());
            }
        }
    }

    /// State of the machine's directory, under its own name or under its name during removal.
    fn dir_state(&self) -> Result<DirState> {
        if let Some(dir) = self.open()? {
            let marked = is_marked(&dir);
            if !is_unlocked(&dir) {
                return Ok(DirState::Locked(dir));
            }
            if marked {
                return Ok(DirState::Unlocked);
            }
            drop(dir);
            // A supervisor that just ended has removed both the mark and the directory.
            if self.open()?.is_some() {
                return Err(MachineError::invalid(
                    self.name(),
                    "is not the directory of a machine, and stays as it is",
                ));
            }
        }
        let Some(dir) = open_own(&self.dir.join(format!("{DEAD}{}", self.id)))? else { return Ok(DirState::Gone) };
        let marked = is_marked(&dir);
        Ok(match is_unlocked(&dir) {
            false => DirState::Locked(dir),
            true if marked => DirState::Unlocked,
            true => DirState::Gone,
        })
    }

    /// Removes the leftovers of dead machines in the state directory, this machine's among them. Returns an error that
    /// may pass: processes that are being killed still use the directory or a control group.
    async fn sweep(&self, patience: Duration) -> Result<Option<io::Error>> {
        let left = leftovers::sweep(&self.dir, patience).await;
        let Some(own) = left.into_iter().find(|left| left.id == self.id) else { return Ok(None) };
        match own.error.kind() {
            io::ErrorKind::ResourceBusy | io::ErrorKind::DirectoryNotEmpty => Ok(Some(own.error)),
            _ => Err(self.not_removed(own.error)),
        }
    }

    /// Fails if the process that holds the directory is stopped: waiting for it would not end.
    fn check_holder(&self, dir: &OwnedFd) -> Result<()> {
        let Some(pid) = holder(dir).filter(|pid| is_stopped(*pid)) else { return Ok(()) };
        let what = format!("process {pid}, which holds the directory of {}", self.name());
        let reason = format!("it is stopped; `kill -CONT {pid}` lets it go on, `kill -KILL {pid}` ends it");
        Err(MachineError::Unresponsive { what, reason })
    }

    /// The error if the supervisor did not answer in time.
    pub(super) fn silent(&self) -> MachineError {
        let what = format!("the supervisor of the {}", self.name());
        let seconds = ANSWER.as_secs();
        MachineError::Unresponsive { what, reason: format!("no answer within {seconds} seconds; try again later") }
    }

    pub(super) fn not_removed(&self, source: io::Error) -> MachineError {
        MachineError::NotRemoved { what: self.name(), source }
    }

    fn name(&self) -> String {
        format!("machine {}", self.path().display())
    }
}

/// How often `/proc/locks` is read.
const LOCK_READS: usize = 5;

/// The process that locked a directory, if the kernel shows it.
fn holder(dir: &OwnedFd) -> Option<u32> {
    let found = fstat(dir).ok()?;
    let file = format!("{:02x}:{:02x}:{}", major(found.st_dev), minor(found.st_dev), found.st_ino);
    // The kernel returns the list in pieces; if a lock is released meanwhile, another one may be skipped.
    (0..LOCK_READS).find_map(|_| {
        let locks = fs::read_to_string("/proc/locks").ok()?;
        // 1: FLOCK  ADVISORY  WRITE 1234 fd:01:5678 0 EOF
        locks.lines().find_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let [_, "FLOCK", _, "WRITE", pid, inode, ..] = fields[..] else { return None };
            pid.parse().ok().filter(|_| inode == file)
        })
    })
}

/// Whether a process is stopped by a signal or a debugger.
fn is_stopped(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name in parentheses may contain anything; the state is the first field after it.
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().next());
    matches!(state, Some("T" | "t"))
}
