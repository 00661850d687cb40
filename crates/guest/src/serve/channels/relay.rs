//! Moves bytes between a channel and the descriptors of a process, a worker or a connection, under credit in both
//! directions.

mod handover;

use std::{
    cell::Cell,
    collections::VecDeque,
    io,
    os::fd::{AsFd, OwnedFd},
    rc::Rc,
};

use rustix::{
    event::epoll::{self, EventData, EventFlags},
    io::Errno,
    pipe::{SpliceFlags, splice},
};
use sandbar_guest::protocol::{Event, INPUT_WINDOW, MAX_DATA};

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
/// Pipe size that holds all bytes in flight.
pub(crate) const BULK_PIPE: usize = BULK_WINDOW as usize;

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

/// The input of a process: bytes that it has not read yet.
struct Sink {
    watched: Watched,
    queue: VecDeque<u8>,
    ending: bool,
    /// Last byte received; a terminal's end-of-file character means the end only at the start of a line.
    last: Option<u8>,
    /// Bytes written since credit was last granted to the host.
    owed: u32,
    /// Number of queued bytes from an earlier host: they cost the current host no credit.
    inherited: usize,
    /// Bytes that the host may have in flight.
    window: usize,
    /// Eventfd in which the reader counts what it has read; credit then follows the reads instead of the writes.
    meter: Option<OwnedFd>,
    end: SinkEnd,
}

impl Sink {
    /// Writes what the process takes at once; an error shows again when the rest is written.
    fn write_now(&mut self, bytes: &[u8]) -> usize {
        let count = rustix::io::write(&self.watched.shared.fd, bytes).unwrap_or(0);
        self.wrote(count);
        count
    }

    /// Counts bytes that were written or dropped.
    fn wrote(&mut self, count: usize) {
        let own = count.saturating_sub(self.inherited);
        self.inherited = self.inherited.saturating_sub(count);
        self.owed = self.owed.saturating_add(u32::try_from(own).unwrap_or(0));
    }
}

/// How the end of input is signalled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SinkEnd {
    /// Close the descriptor.
    Close,
    /// A terminal: write the end-of-file character.
    Terminal,
    /// A connection: shut down the writing half.
    Shutdown,
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

/// Credit is granted in pieces of at least this size, to avoid many small frames.
const GRANT: u32 = 64 * 1024;
/// Bytes in flight to a bulk sink.
const BULK_WINDOW: u32 = 1024 * 1024;

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

    pub(crate) fn sink(&mut self, fd: OwnedFd, end: SinkEnd) {
        let watched = Watched::new(fd, SourceKind::Stream);
        self.sink = Some(Sink {
            watched,
            queue: VecDeque::new(),
            ending: false,
            last: None,
            owed: 0,
            inherited: 0,
            window: INPUT_WINDOW as usize,
            meter: None,
            end,
        });
    }

    /// Sets a pipe for bulk input: bytes can be spliced into it, and more may be in flight. So that these fit into the
    /// pipe, credit follows `meter`: an eventfd to which the reader adds the bytes it has read.
    pub(crate) fn bulk_sink(
        &mut self,
        pipe: OwnedFd,
        meter: OwnedFd,
        outbox: &mut Outbox,
        epoll: &OwnedFd,
    ) -> io::Result<()> {
        epoll::add(epoll, &meter, Role::Err.key(self.id), EventFlags::IN)?;
        self.sink(pipe, SinkEnd::Close);
        if let Some(sink) = &mut self.sink {
            sink.window = BULK_WINDOW as usize;
            sink.meter = Some(meter);
            outbox.push(self.id.channel, &Event::Credit(BULK_WINDOW - INPUT_WINDOW));
        }
        Ok(())
    }

    /// Grants credit for bytes that were read from the sink; `false` if there is no meter.
    pub(crate) fn read_meter(&mut self, outbox: &mut Outbox) -> bool {
        let Some(sink) = &mut self.sink else { return false };
        let Some(meter) = &sink.meter else { return false };
        let mut count = [0; 8];
        if rustix::io::read(meter, &mut count).is_ok() {
            // Never more than was written, whatever the worker reports.
            let read = u32::try_from(u64::from_ne_bytes(count)).unwrap_or(u32::MAX).min(sink.owed);
            sink.owed -= read;
            if read > 0 {
                outbox.push(self.id.channel, &Event::Credit(read));
            }
        }
        true
    }

    /// Bytes that may be sent now.
    pub(crate) fn available(&self) -> usize {
        usize::try_from(self.credit).unwrap_or(usize::MAX)
    }

    /// Counts bytes that were sent outside the relay.
    pub(crate) fn spend(&mut self, count: usize) {
        self.credit = self.credit.saturating_sub(count as u64);
    }

    /// Whether input can still be written.
    pub(crate) fn has_sink(&self) -> bool {
        self.sink.is_some()
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

    /// Accepts input for the process; what it does not take yet is queued.
    pub(crate) fn feed(&mut self, bytes: &[u8], outbox: &mut Outbox, epoll: &OwnedFd) {
        match &mut self.sink {
            Some(sink) if !sink.ending => {
                sink.last = bytes.last().copied().or(sink.last);
                let taken = if sink.queue.is_empty() { sink.write_now(bytes) } else { 0 };
                sink.queue.extend(bytes.get(taken..).unwrap_or_default());
                self.drain(outbox, epoll);
            }
            // The reader is gone. Drop the bytes, but grant credit for them, so that the host does not wait forever.
            _ => outbox.push(self.id.channel, &Event::Credit(u32::try_from(bytes.len()).unwrap_or(0))),
        }
    }

    /// Ends the input.
    pub(crate) fn end(&mut self, outbox: &mut Outbox, epoll: &OwnedFd) {
        if let Some(sink) = &mut self.sink {
            if !sink.ending && sink.end == SinkEnd::Terminal {
                let unfinished_line = sink.last.is_some_and(|last| last != b'\n' && last != b'\r');
                sink.queue.extend(if unfinished_line { [4, 4].as_slice() } else { [4].as_slice() });
            }
            sink.ending = true;
        }
        self.drain(outbox, epoll);
    }

    /// Bytes that the host may still send: queued bytes count against its window.
    pub(crate) fn room(&self) -> usize {
        let taken = |sink: &Sink| sink.queue.len().saturating_sub(sink.inherited);
        self.sink.as_ref().map_or(INPUT_WINDOW as usize, |sink| sink.window.saturating_sub(taken(sink)))
    }

    /// Whether there is a sink for bulk.
    pub(crate) fn has_meter(&self) -> bool {
        self.sink.as_ref().is_some_and(|sink| sink.meter.is_some())
    }

    /// Splices up to `most` bytes from a stream into the sink. `None` if that is not possible: no bytes have arrived,
    /// the sink is full, or its reader is gone; a following `read` of the stream finds out which.
    pub(crate) fn move_in(&mut self, from: &OwnedFd, most: usize) -> Option<usize> {
        let sink = self.sink.as_mut().filter(|sink| sink.queue.is_empty() && !sink.ending)?;
        let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
        let count = splice(from, None, &sink.watched.shared.fd, None, most, flags).ok().filter(|count| *count > 0)?;
        sink.owed = sink.owed.saturating_add(u32::try_from(count).unwrap_or(0));
        Some(count)
    }

    /// Writes queued bytes to the sink.
    pub(crate) fn drain(&mut self, outbox: &mut Outbox, epoll: &OwnedFd) {
        let Some(sink) = &mut self.sink else { return };
        while !sink.queue.is_empty() {
            let (front, _) = sink.queue.as_slices();
            match rustix::io::write(&sink.watched.shared.fd, front) {
                Ok(count) => {
                    sink.queue.drain(..count);
                    sink.wrote(count);
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    sink.watched.arm(epoll, Role::Sink.key(self.id), EventFlags::OUT);
                    break;
                }
                Err(_) => {
                    // The reader is gone: drop the rest, as a shell does.
                    sink.wrote(sink.queue.len());
                    sink.queue.clear();
                    sink.ending = true;
                }
            }
        }
        let empty = sink.queue.is_empty();
        let counted = sink.meter.is_some() && !sink.ending;
        if !counted && (sink.owed >= GRANT || (empty && sink.owed > 0)) {
            outbox.push(self.id.channel, &Event::Credit(sink.owed));
            sink.owed = 0;
        }
        if !empty {
            return;
        }
        sink.watched.disarm(epoll);
        match (sink.ending, sink.end) {
            (true, SinkEnd::Close) => self.sink = None,
            (true, SinkEnd::Shutdown) => {
                let _closed_anyway =
                    rustix::net::shutdown(sink.watched.shared.fd.as_fd(), rustix::net::Shutdown::Write);
                self.sink = None;
            }
            (true, SinkEnd::Terminal) => sink.ending = false,
            (false, _) => {}
        }
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
