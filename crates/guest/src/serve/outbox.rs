//! Frames on their way to the host: written at once when the stream takes them, kept in order when it does not.

use std::{io, os::fd::OwnedFd};

use rustix::io::{Errno, IoSlice};
use sandbar_guest::protocol::Event;

/// Above this many waiting bytes nothing more is read from processes and files.
const FULL: usize = 1024 * 1024;

pub(crate) struct Outbox {
    stream: OwnedFd,
    waiting: Vec<u8>,
    sent: usize,
}

impl Outbox {
    pub(crate) fn new(stream: OwnedFd) -> Self {
        Self { stream, waiting: Vec::new(), sent: 0 }
    }

    pub(crate) fn stream(&self) -> &OwnedFd {
        &self.stream
    }

    pub(crate) fn is_full(&self) -> bool {
        self.waiting.len() - self.sent > FULL
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.len() == self.sent
    }

    /// Queues an event; it leaves with the next flush.
    pub(crate) fn push(&mut self, channel: u32, event: &Event<'_>) {
        event.encode(channel, &mut self.waiting);
    }

    /// Sends bulk bytes, without copying them when nothing waits before them.
    pub(crate) fn bulk(&mut self, channel: u32, error: bool, bytes: &[u8]) -> io::Result<()> {
        let Ok(length) = u32::try_from(bytes.len()) else { return Ok(()) };
        let header = Event::bulk_header(channel, length, error);
        let mut written = 0;
        // Small pieces are worth gathering: what follows them (an exit, say) then leaves in the same call.
        if self.is_empty() && bytes.len() >= 4096 {
            written = match rustix::io::writev(&self.stream, &[IoSlice::new(&header), IoSlice::new(bytes)]) {
                Ok(count) => count,
                Err(Errno::AGAIN | Errno::INTR) => 0,
                Err(error) => return Err(error.into()),
            };
        }
        self.waiting.extend(header.iter().skip(written));
        self.waiting.extend_from_slice(bytes.get(written.saturating_sub(header.len())..).unwrap_or_default());
        Ok(())
    }

    /// Writes what the stream takes; `true` when all of it went.
    pub(crate) fn flush(&mut self) -> io::Result<bool> {
        while let Some(rest) = self.waiting.get(self.sent..).filter(|rest| !rest.is_empty()) {
            match rustix::io::write(&self.stream, rest) {
                Ok(count) => self.sent += count,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    if self.sent >= FULL {
                        self.waiting.drain(..self.sent);
                        self.sent = 0;
                    }
                    return Ok(false);
                }
                Err(error) => return Err(error.into()),
            }
        }
        self.waiting.clear();
        self.sent = 0;
        if self.waiting.capacity() > 2 * FULL {
            self.waiting.shrink_to(FULL / 4);
        }
        Ok(true)
    }
}
