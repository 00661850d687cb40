//! Input of a process, a worker or a connection: what it does not take yet is queued, and credit follows what it takes.

use std::{
    collections::VecDeque,
    io,
    os::fd::{AsFd, OwnedFd},
};

use rustix::{
    event::epoll::{self, EventFlags},
    io::Errno,
    pipe::{SpliceFlags, splice},
};
use sandbar_guest::protocol::{Event, INPUT_WINDOW};

use super::{Relay, Role, SourceKind, Watched};
use crate::serve::hosts::outbox::Outbox;

/// Credit is granted in pieces of at least this size, to avoid many small frames.
const GRANT: u32 = 64 * 1024;
/// Bytes in flight to a bulk sink.
pub(super) const BULK_WINDOW: u32 = 1024 * 1024;

/// Pipe size that holds all bytes in flight.
pub(crate) const BULK_PIPE: usize = BULK_WINDOW as usize;

/// The input of a process: bytes that it has not read yet.
pub(super) struct Sink {
    pub(super) watched: Watched,
    pub(super) queue: VecDeque<u8>,
    ending: bool,
    /// Last byte received; a terminal's end-of-file character means the end only at the start of a line.
    last: Option<u8>,
    /// Bytes written since credit was last granted to the host.
    pub(super) owed: u32,
    /// Number of queued bytes from an earlier host: they cost the current host no credit.
    pub(super) inherited: usize,
    /// Bytes that the host may have in flight.
    pub(super) window: usize,
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

impl Relay {
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

    /// Whether input can still be written.
    pub(crate) fn has_sink(&self) -> bool {
        self.sink.is_some()
    }

    /// Whether the process still takes input.
    pub(crate) fn takes_input(&self) -> bool {
        self.sink.as_ref().is_some_and(|sink| !sink.ending)
    }

    /// Closes the input: no process is left to read it.
    pub(crate) fn close_sink(&mut self, epoll: &OwnedFd) {
        if let Some(mut sink) = self.sink.take() {
            sink.watched.disarm(epoll);
        }
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
