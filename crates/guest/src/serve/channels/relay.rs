//! Moves bytes between a channel and the descriptors of a process, a worker or a connection, under credit in both
//! directions.

mod handover;
pub(crate) mod sink;

use std::{cell::Cell, io, os::fd::OwnedFd, rc::Rc};

use rustix::{
    event::epoll::{self, EventData, EventFlags},
    io::Errno,
};
use sandbar_guest::protocol::MAX_DATA;

use self::sink::Sink;
use super::backlog::Backlog;
use crate::serve::hosts::{
    link::Id,
    outbox::{Outbox, Shared},
};

/// A descriptor of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Out,
    Err,
    Sink,
}

impl Role {
    fn key(self, id: Id) -> EventData {
        EventData::new_u64(id.key() | self as u64)
    }
}

/// A descriptor that is polled only while there is something to do with it.
struct Watched {
    /// Shared with the outbox, in which bytes of it may be queued.
    shared: Rc<Shared>,
    armed: bool,
    kind: SourceKind,
}

/// How bytes are taken from a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SourceKind {
    /// By `read`.
    Stream,
    /// By `splice`, if there are many.
    Pipe,
    /// The same; the pipe was full once and has been enlarged.
    LargePipe,
}

/// Bytes from which `splice` is worth it, when a pipe counts as full, and the size it is then enlarged to.
const WORTH_MOVING: usize = 16 * 1024;
const FULL_PIPE: usize = 64 * 1024;
const LARGE_PIPE: usize = 256 * 1024;
impl Watched {
    fn new(fd: OwnedFd, kind: SourceKind) -> Self {
        Self { shared: Rc::new(Shared { fd, queued: Cell::new(0) }), armed: false, kind }
    }

    /// Whether bytes of it are still queued in the outbox: nothing may be read before they have been sent.
    fn is_moving(&self) -> bool {
        self.shared.queued.get() > 0
    }

    /// Number of bytes in it; `None` if unknown, as for a terminal, which may have more on the way.
    fn holds(&self) -> Option<usize> {
        if self.kind == SourceKind::Stream {
            return None;
        }
        let all = usize::try_from(rustix::io::ioctl_fionread(&self.shared.fd).ok()?).ok()?;
        Some(all.saturating_sub(self.shared.queued.get()))
    }

    /// Number of bytes worth splicing now.
    fn movable(&mut self) -> Option<usize> {
        let waiting = self.holds()?;
        if waiting >= FULL_PIPE && self.kind == SourceKind::Pipe {
            let _stays_small = rustix::pipe::fcntl_setpipe_size(&self.shared.fd, LARGE_PIPE);
            self.kind = SourceKind::LargePipe;
        }
        Some(waiting).filter(|waiting| *waiting >= WORTH_MOVING)
    }

    fn arm(&mut self, epoll: &OwnedFd, key: EventData, flags: EventFlags) {
        if !self.armed && epoll::add(epoll, &self.shared.fd, key, flags).is_ok() {
            self.armed = true;
        }
    }

    fn disarm(&mut self, epoll: &OwnedFd) {
        if self.armed {
            let _gone_anyway = epoll::delete(epoll, &self.shared.fd);
            self.armed = false;
        }
    }
}

/// One channel's descriptors.
pub(crate) struct Relay {
    id: Id,
    out: Option<Watched>,
    err: Option<Watched>,
    sink: Option<Sink>,
    credit: u64,
    discard: bool,
    /// Output that the host has not confirmed, for a command that survives its host.
    backlog: Option<Backlog>,
    /// No host is attached: all output goes to the backlog.
    orphan: bool,
    /// For each source: whether everything it held at the last `expect_rest` has been passed on.
    dry: [bool; 2],
    /// For each source: bytes of that which are left, if known.
    rest: [Option<usize>; 2],
}

impl Relay {
    pub(crate) fn new(id: Id, credit: u32) -> Self {
        Self {
            id,
            out: None,
            err: None,
            sink: None,
            credit: u64::from(credit),
            discard: false,
            backlog: None,
            orphan: false,
            dry: [false; 2],
            rest: [None; 2],
        }
    }

    pub(crate) fn source(&mut self, role: Role, fd: OwnedFd, kind: SourceKind, epoll: &OwnedFd) {
        let mut watched = Watched::new(fd, kind);
        watched.arm(epoll, role.key(self.id), EventFlags::IN);
        if role == Role::Err { self.err = Some(watched) } else { self.out = Some(watched) }
    }

    /// Bytes that may be sent now.
    pub(crate) fn available(&self) -> usize {
        usize::try_from(self.credit).unwrap_or(usize::MAX)
    }

    /// Counts bytes that were sent outside the relay.
    pub(crate) fn spend(&mut self, count: usize) {
        self.credit = self.credit.saturating_sub(count as u64);
    }

    /// Adds credit from the host.
    pub(crate) fn grant(&mut self, more: u32, epoll: &OwnedFd) {
        self.credit = self.credit.saturating_add(u64::from(more));
        if let Some(backlog) = &mut self.backlog {
            backlog.confirm(more as usize);
        }
        self.rearm(epoll);
    }

    /// Most bytes to read from the sources now.
    fn wanted(&self) -> u64 {
        let most = MAX_DATA as u64;
        match &self.backlog {
            _ if self.discard || self.orphan => most,
            Some(backlog) if !backlog.is_sent() => 0,
            Some(backlog) => self.credit.min(backlog.room() as u64).min(most),
            None => self.credit.min(most),
        }
    }

    /// Reads and drops all output from now on, as `>/dev/null` in a shell would.
    pub(crate) fn discard(&mut self, epoll: &OwnedFd) {
        self.discard = true;
        (self.backlog, self.orphan) = (None, false);
        self.rearm(epoll);
    }

    /// Polls sources again that were stopped for lack of credit or room.
    pub(crate) fn rearm(&mut self, epoll: &OwnedFd) {
        if self.wanted() == 0 {
            return;
        }
        for (role, watched) in [(Role::Out, &mut self.out), (Role::Err, &mut self.err)] {
            if let Some(watched) = watched {
                watched.arm(epoll, role.key(self.id), EventFlags::IN);
            }
        }
    }

    pub(crate) fn is_stalled(&self) -> bool {
        [&self.out, &self.err].into_iter().flatten().any(|watched| !watched.armed)
    }

    /// Whether all sources have ended and everything was sent.
    pub(crate) fn is_silent(&self) -> bool {
        self.out.is_none() && self.err.is_none() && !self.is_behind()
    }

    /// Records what the sources hold now that the process has ended: later bytes come from other processes.
    pub(crate) fn expect_rest(&mut self) {
        self.rest = [&self.out, &self.err].map(|source| source.as_ref().map_or(Some(0), Watched::holds));
        self.dry = self.rest.map(|rest| rest == Some(0));
    }

    fn passed(&mut self, index: usize, count: usize) {
        if let Some(Some(rest)) = self.rest.get_mut(index) {
            *rest = rest.saturating_sub(count);
            self.dry[index] |= *rest == 0;
        }
    }

    /// Whether everything recorded has been passed on.
    pub(crate) fn is_dry(&self) -> bool {
        self.dry == [true, true] && !self.is_behind()
    }

    /// Passes on bytes of a source, within credit.
    pub(crate) fn pump(
        &mut self,
        role: Role,
        scratch: &mut [u8],
        outbox: &mut Outbox,
        epoll: &OwnedFd,
    ) -> io::Result<()> {
        let index = usize::from(role == Role::Err);
        // Several reads in a row for speed (a terminal gives 4 KB each), but few enough to be fair to other channels.
        for _ in 0..16 {
            let room = self.wanted();
            let slot = if role == Role::Err { &mut self.err } else { &mut self.out };
            let Some(watched) = slot else { return Ok(()) };
            if room == 0 || outbox.is_full() || watched.is_moving() {
                watched.disarm(epoll);
                return Ok(());
            }
            if !self.discard
                && self.backlog.is_none()
                && outbox.is_empty()
                && let Some(waiting) = watched.movable()
                && let Ok(length) = u32::try_from(room.min(waiting as u64))
            {
                self.credit -= u64::from(length);
                outbox.pipe(self.id.channel, role == Role::Err, watched.shared.clone(), length);
                self.passed(index, length as usize);
                return Ok(());
            }
            let room = usize::try_from(room).unwrap_or(MAX_DATA).min(scratch.len());
            let buffer = scratch.get_mut(..room).unwrap_or_default();
            match read(&watched.shared.fd, &mut *buffer) {
                Err(Errno::AGAIN) => {
                    self.dry[index] = true;
                    return Ok(());
                }
                Err(Errno::INTR) => {}
                Ok(0) | Err(_) => {
                    watched.disarm(epoll);
                    *slot = None;
                    self.dry[index] = true;
                    return Ok(());
                }
                Ok(count) => {
                    let bytes = buffer.get(..count).unwrap_or_default();
                    if let Some(backlog) = &mut self.backlog {
                        backlog.push(role == Role::Err, bytes);
                        if !self.orphan {
                            self.replay(outbox)?;
                        }
                    } else if !self.discard {
                        self.credit -= count as u64;
                        outbox.bulk(self.id.channel, role == Role::Err, bytes)?;
                    }
                    self.passed(index, count);
                }
            }
        }
        Ok(())
    }
}

/// Reads from a source. A terminal whose last writer has just closed it can return `EIO` although the last bytes are
/// still on the way to its buffer. The second read starts after the close, so its result is final.
fn read(source: &OwnedFd, buffer: &mut [u8]) -> rustix::io::Result<usize> {
    match rustix::io::read(source, &mut *buffer) {
        Err(Errno::IO) => rustix::io::read(source, buffer),
        answer => answer,
    }
}

#[cfg(test)]
mod tests;
