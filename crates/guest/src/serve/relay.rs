//! Bytes between a channel and the descriptors of a process, a worker or a connection, each side held by credit.

mod home;

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

use super::{
    backlog::Backlog,
    link::Id,
    outbox::{Outbox, Shared},
};

/// Which of a channel's descriptors became ready.
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

/// A descriptor that is watched only while there is something to do with it.
struct Watched {
    /// Shared with the outbox, where bytes of it may wait.
    shared: Rc<Shared>,
    armed: bool,
    kind: SourceKind,
}

/// How bytes leave a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SourceKind {
    /// They are read.
    Stream,
    /// The kernel can move them, if there are many.
    Pipe,
    /// The same, after the pipe was made larger because it was found full.
    LargePipe,
}

/// What is worth moving, and how large a pipe becomes whose writer is faster than we are.
const WORTH_MOVING: usize = 16 * 1024;
const FULL_PIPE: usize = 64 * 1024;
const LARGE_PIPE: usize = 256 * 1024;
/// Room for everything that may be on its way at once.
pub(super) const BULK_PIPE: usize = BULK_WINDOW as usize;

impl Watched {
    fn new(fd: OwnedFd, kind: SourceKind) -> Self {
        Self { shared: Rc::new(Shared { fd, queued: Cell::new(0) }), armed: false, kind }
    }

    /// Whether bytes of it still wait in the outbox: nothing may be read before they have gone.
    fn is_moving(&self) -> bool {
        self.shared.queued.get() > 0
    }

    /// How many bytes are in it, if it can tell: a terminal may have more on the way.
    fn holds(&self) -> Option<usize> {
        if self.kind == SourceKind::Stream {
            return None;
        }
        let all = usize::try_from(rustix::io::ioctl_fionread(&self.shared.fd).ok()?).ok()?;
        Some(all.saturating_sub(self.shared.queued.get()))
    }

    /// How many bytes the kernel can move from it now, if that is worth it.
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

/// Bytes waiting for a process that does not read as fast as they come.
struct Sink {
    watched: Watched,
    queue: VecDeque<u8>,
    ending: bool,
    /// The last byte taken in; a terminal's end-of-file character means the end only at the start of a line.
    last: Option<u8>,
    /// Bytes written since the host was last granted credit.
    owed: u32,
    /// How many of the queue's bytes came from a host that is gone: they cost the present one nothing.
    inherited: usize,
    /// Bytes the host may have on their way here.
    window: usize,
    /// Where whoever reads says how much it has read; credit then is for what was read, not for what was written.
    meter: Option<OwnedFd>,
    end: SinkEnd,
}

impl Sink {
    /// Writes what the process takes at once; what is wrong with it shows again when the rest is written.
    fn write_now(&mut self, bytes: &[u8]) -> usize {
        let count = rustix::io::write(&self.watched.shared.fd, bytes).unwrap_or(0);
        self.wrote(count);
        count
    }

    /// Counts what the process, or nobody, took.
    fn wrote(&mut self, count: usize) {
        let own = count.saturating_sub(self.inherited);
        self.inherited = self.inherited.saturating_sub(count);
        self.owed = self.owed.saturating_add(u32::try_from(own).unwrap_or(0));
    }
}

/// What the end of input means to whoever reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SinkEnd {
    /// The descriptor closes.
    Close,
    /// A terminal: the end-of-file character.
    Terminal,
    /// A connection: half of it closes.
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
    /// What the host has not confirmed, where that outlives it.
    backlog: Option<Backlog>,
    /// Nobody is at the far end: everything goes to the backlog.
    orphan: bool,
    /// Whether everything has been passed on that each source held when this was last asked for.
    dry: [bool; 2],
    /// How much of that is left, where a source can tell.
    rest: [Option<usize>; 2],
}

/// Granting credit in pieces this large keeps small frames rare.
const GRANT: u32 = 64 * 1024;
/// What may be on its way to a sink for bulk.
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

    /// A pipe for bulk: the kernel can move bytes into it, and more of them may be on their way. So that they fit into the
    /// pipe, credit follows the `meter`: an eventfd to which whoever reads adds what it has read.
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

    /// Grants what has been read from the sink since; `false` when nobody counts that.
    pub(crate) fn read_meter(&mut self, outbox: &mut Outbox) -> bool {
        let Some(sink) = &mut self.sink else { return false };
        let Some(meter) = &sink.meter else { return false };
        let mut count = [0; 8];
        if rustix::io::read(meter, &mut count).is_ok() {
            // Never more than was written, whatever the worker says.
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

    /// Counts bytes sent by other means.
    pub(crate) fn spend(&mut self, count: usize) {
        self.credit = self.credit.saturating_sub(count as u64);
    }

    /// Whether input can still be written.
    pub(crate) fn has_sink(&self) -> bool {
        self.sink.is_some()
    }

    /// The host granted more.
    pub(crate) fn grant(&mut self, more: u32, epoll: &OwnedFd) {
        self.credit = self.credit.saturating_add(u64::from(more));
        if let Some(backlog) = &mut self.backlog {
            backlog.confirm(more as usize);
        }
        self.rearm(epoll);
    }

    /// How many bytes may be read from the sources now.
    fn wanted(&self) -> u64 {
        let most = MAX_DATA as u64;
        match &self.backlog {
            _ if self.discard || self.orphan => most,
            Some(backlog) if !backlog.is_sent() => 0,
            Some(backlog) => self.credit.min(backlog.room() as u64).min(most),
            None => self.credit.min(most),
        }
    }

    /// From now on what comes is read and thrown away, as a shell's `>/dev/null` would.
    pub(crate) fn discard(&mut self, epoll: &OwnedFd) {
        self.discard = true;
        (self.backlog, self.orphan) = (None, false);
        self.rearm(epoll);
    }

    /// Watches again what was let go for want of credit or room.
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

    /// Whether nothing can come any more.
    pub(crate) fn is_silent(&self) -> bool {
        self.out.is_none() && self.err.is_none() && !self.is_behind()
    }

    /// Takes note of what sources hold now that a process has ended: what comes later is somebody else's.
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

    /// Whether everything there was has been passed on.
    pub(crate) fn is_dry(&self) -> bool {
        self.dry == [true, true] && !self.is_behind()
    }

    /// Passes on what a source has, within credit.
    pub(crate) fn pump(
        &mut self,
        role: Role,
        scratch: &mut [u8],
        outbox: &mut Outbox,
        epoll: &OwnedFd,
    ) -> io::Result<()> {
        let index = usize::from(role == Role::Err);
        // Some reads at a time: enough to be fast (a terminal gives 4 KB each), few enough to be fair.
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
                Ok(0) | Err(Errno::IO) => {
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
                Err(Errno::AGAIN) => {
                    self.dry[index] = true;
                    return Ok(());
                }
                Err(Errno::INTR) => {}
                Err(_) => {
                    watched.disarm(epoll);
                    *slot = None;
                    self.dry[index] = true;
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Takes bytes for the sink; what the process has no room for yet waits.
    pub(crate) fn feed(&mut self, bytes: &[u8], outbox: &mut Outbox, epoll: &OwnedFd) {
        match &mut self.sink {
            Some(sink) if !sink.ending => {
                sink.last = bytes.last().copied().or(sink.last);
                let taken = if sink.queue.is_empty() { sink.write_now(bytes) } else { 0 };
                sink.queue.extend(bytes.get(taken..).unwrap_or_default());
                self.drain(outbox, epoll);
            }
            // Nobody reads any more. The bytes are gone, but the host must not wait for credit for ever.
            _ => outbox.push(self.id.channel, &Event::Credit(u32::try_from(bytes.len()).unwrap_or(0))),
        }
    }

    /// No more bytes will come.
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

    /// How many more bytes the host may send: those that no process has taken yet count against its window.
    pub(crate) fn room(&self) -> usize {
        let taken = |sink: &Sink| sink.queue.len().saturating_sub(sink.inherited);
        self.sink.as_ref().map_or(INPUT_WINDOW as usize, |sink| sink.window.saturating_sub(taken(sink)))
    }

    /// Whether there is a sink for bulk.
    pub(crate) fn has_meter(&self) -> bool {
        self.sink.as_ref().is_some_and(|sink| sink.meter.is_some())
    }

    /// Lets the kernel move up to `most` bytes from a stream into the sink. `None` when it cannot: nothing has come, the
    /// sink is full, or nobody reads it any more; whoever reads the stream then finds out which.
    pub(crate) fn move_in(&mut self, from: &OwnedFd, most: usize) -> Option<usize> {
        let sink = self.sink.as_mut().filter(|sink| sink.queue.is_empty() && !sink.ending)?;
        let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
        let count = splice(from, None, &sink.watched.shared.fd, None, most, flags).ok().filter(|count| *count > 0)?;
        sink.owed = sink.owed.saturating_add(u32::try_from(count).unwrap_or(0));
        Some(count)
    }

    /// Writes what the sink takes.
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
                    // The reader is gone: like a shell, take the rest and drop it.
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

/// Reads from a source. A terminal whose last writer has just closed it can answer `EIO` although the bytes written last
/// are still on their way to its buffer. The second answer was asked for after the close, so it is final.
fn read(source: &OwnedFd, buffer: &mut [u8]) -> rustix::io::Result<usize> {
    match rustix::io::read(source, &mut *buffer) {
        Err(Errno::IO) => rustix::io::read(source, buffer),
        answer => answer,
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::File, io::Write as _, thread};

    use rustix::{
        fs::{Mode, OFlags},
        pty::{OpenptFlags, openpt, ptsname, unlockpt},
    };

    use super::*;

    /// One byte is written to a terminal, which is then closed, while another thread reads: `None` if the byte was lost.
    fn last_byte(delay: u32, read: fn(&OwnedFd, &mut [u8]) -> rustix::io::Result<usize>) -> Option<u8> {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        unlockpt(&master).expect("unlock");
        let path = ptsname(&master, Vec::new()).expect("its name");
        let flags = OFlags::RDWR | OFlags::NOCTTY;
        let mut slave = File::from(rustix::fs::open(path.as_c_str(), flags, Mode::empty()).expect("its other end"));
        rustix::io::ioctl_fionbio(&master, true).expect("non-blocking");
        let writer = thread::spawn(move || {
            (0..delay).for_each(|_| std::hint::spin_loop());
            slave.write_all(b"x").expect("write");
        });
        let mut buffer = [0; 8];
        let answer = loop {
            match read(&master, &mut buffer) {
                Err(Errno::AGAIN | Errno::INTR) => {}
                answer => break answer,
            }
        };
        writer.join().expect("the writer ends");
        answer.ok().filter(|count| *count > 0).map(|_| buffer[0])
    }

    #[test]
    fn what_was_written_right_before_a_terminal_closed_is_read() {
        for round in 0..5_000 {
            assert_eq!(last_byte(round % 2_000, read), Some(b'x'), "round {round}");
        }
    }
}
