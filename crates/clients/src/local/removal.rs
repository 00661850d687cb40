//! How a machine that outlives its maker is ended and removed, and what is said when that takes long or cannot be done.

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
    detached::{Door, Place, is_marked, is_unlocked, open_own},
    leftovers::{self, DEAD},
};
use crate::detached::ANSWER;

/// How long one call waits until everything is removed.
const REMOVAL: Duration = Duration::from_secs(30);
/// How often it is looked whether the process that is waited for is stopped.
const LOOK: Duration = Duration::from_millis(500);
/// How often it is looked whether everything is gone: at first, and after a second.
const PAUSES: [Duration; 2] = [Duration::from_millis(5), Duration::from_millis(50)];

/// What is left of a machine.
enum Left {
    Nothing,
    /// Its directory, which a process holds: its supervisor, or one that removes it.
    Held(OwnedFd),
    /// Its directory, which no process holds.
    Dead,
}

impl Place {
    /// Ends the machine, whatever its guest says, and waits until nothing of it is left.
    pub(super) async fn delete(&self) -> Result<()> {
        self.delete_within(REMOVAL).await
    }

    pub(super) async fn delete_within(&self, patience: Duration) -> Result<()> {
        if !self.end().await? {
            return Ok(());
        }
        let begun = Instant::now();
        let mut looked = begun;
        loop {
            let left = self.left()?;
            let mut trouble = None;
            match &left {
                Left::Nothing => return Ok(()),
                Left::Held(dir) if looked.elapsed() >= LOOK => {
                    looked = Instant::now();
                    self.check_holder(dir)?;
                }
                Left::Held(_) => {}
                Left::Dead => trouble = self.sweep(patience.saturating_sub(begun.elapsed())).await?,
            }
            let waited = begun.elapsed();
            if waited >= patience {
                return Err(match (left, trouble) {
                    (_, Some(error)) => self.not_removed(error),
                    (Left::Held(_), None) => MachineError::StillBeingRemoved { what: self.name(), waited },
                    // The sweep may have had too little time, and goes on.
                    (_, None) => match self.left()? {
                        Left::Nothing => return Ok(()),
                        Left::Held(_) => MachineError::StillBeingRemoved { what: self.name(), waited },
                        Left::Dead => self.not_removed(io::Error::other("the directory of machines stayed locked")),
                    },
                });
            }
            sleep(PAUSES[usize::from(waited > Duration::from_secs(1))]).await;
        }
    }

    /// Tells the supervisor to end the machine. `false` when another machine is there by now, which is not to be ended.
    async fn end(&self) -> Result<bool> {
        let mut asked = pin!(async {
            let mut stream = match self.knock(Wish::End).await {
                Ok(Door::Open(stream)) => stream,
                Ok(Door::Gone) => return Ok(true),
                // Whatever is at the door of a dead machine does not keep its files.
                Err(error) => return if matches!(self.left()?, Left::Held(_)) { Err(error) } else { Ok(true) },
            };
            let heard = stream.read_exact(&mut [0; Welcome::LENGTH]).await;
            // One that hangs up without a word and lives on is another machine, and not ours to end.
            Ok(heard.is_ok() || !self.lives().await?)
        });
        let begun = Instant::now();
        loop {
            if let Ok(ended) = timeout(LOOK, &mut asked).await {
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

    /// What is left of the machine, under its name or under the one it has while it is removed.
    fn left(&self) -> Result<Left> {
        if let Some(dir) = self.open()? {
            let marked = is_marked(&dir);
            if !is_unlocked(&dir) {
                return Ok(Left::Held(dir));
            }
            if marked {
                return Ok(Left::Dead);
            }
            drop(dir);
            // A supervisor that just ended took both mark and directory with it.
            if self.open()?.is_some() {
                return Err(MachineError::invalid(
                    self.name(),
                    "is not the directory of a machine, and stays as it is",
                ));
            }
        }
        let Some(dir) = open_own(&self.dir.join(format!("{DEAD}{}", self.id)))? else { return Ok(Left::Nothing) };
        let marked = is_marked(&dir);
        Ok(match is_unlocked(&dir) {
            false => Left::Held(dir),
            true if marked => Left::Dead,
            true => Left::Nothing,
        })
    }

    /// Removes what dead machines left beside this one, and this one. Gives back trouble that may pass: processes that are
    /// just being killed still use the directory or a control group.
    async fn sweep(&self, patience: Duration) -> Result<Option<io::Error>> {
        let left = leftovers::sweep(&self.dir, patience).await;
        let Some(own) = left.into_iter().find(|left| left.id == self.id) else { return Ok(None) };
        match own.error.kind() {
            io::ErrorKind::ResourceBusy | io::ErrorKind::DirectoryNotEmpty => Ok(Some(own.error)),
            _ => Err(self.not_removed(own.error)),
        }
    }

    /// Refuses to wait for a process that is stopped.
    fn check_holder(&self, dir: &OwnedFd) -> Result<()> {
        let Some(pid) = holder(dir).filter(|pid| is_stopped(*pid)) else { return Ok(()) };
        let what = format!("process {pid}, which keeps the {}", self.name());
        let reason = format!("it is stopped; `kill -CONT {pid}` lets it go on, `kill -KILL {pid}` ends it");
        Err(MachineError::Unresponsive { what, reason })
    }

    /// The supervisor had its time to answer.
    pub(super) fn silent(&self) -> MachineError {
        let what = format!("the supervisor of the {}", self.name());
        let seconds = ANSWER.as_secs();
        MachineError::Unresponsive { what, reason: format!("nothing came within {seconds} seconds; try again later") }
    }

    pub(super) fn not_removed(&self, source: io::Error) -> MachineError {
        MachineError::NotRemoved { what: self.name(), source }
    }

    fn name(&self) -> String {
        format!("machine {}", self.path().display())
    }
}

/// How often the system's locks are looked through.
const LOOKS: usize = 5;

/// The process that locked a directory, as far as the system tells.
fn holder(dir: &OwnedFd) -> Option<u32> {
    let found = fstat(dir).ok()?;
    let file = format!("{:02x}:{:02x}:{}", major(found.st_dev), minor(found.st_dev), found.st_ino);
    // The list is read in pieces, and a lock that goes meanwhile lets another be skipped.
    (0..LOOKS).find_map(|_| {
        let locks = fs::read_to_string("/proc/locks").ok()?;
        // 1: FLOCK  ADVISORY  WRITE 1234 fd:01:5678 0 EOF
        locks.lines().find_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [_, "FLOCK", _, "WRITE", pid, place, ..] = words[..] else { return None };
            pid.parse().ok().filter(|_| place == file)
        })
    })
}

/// Whether a process is stopped by a signal or a debugger.
fn is_stopped(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name in parentheses may hold anything; the state is the first word after it.
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().next());
    matches!(state, Some("T" | "t"))
}
