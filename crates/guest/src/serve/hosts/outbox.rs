//! Frames to the host: written at once if the stream takes them, queued in order if not.

use std::{cell::Cell, collections::VecDeque, fs::File, io, os::fd::OwnedFd, rc::Rc};

use rustix::{
    io::{Errno, IoSlice},
    pipe::{SpliceFlags, splice},
};
use sandbar_guest::protocol::Event;

/// Queued bytes above which nothing more is read from processes and files.
const FULL: usize = 1024 * 1024;

/// A descriptor whose bytes may be spliced to the stream.
pub(crate) struct Shared {
    pub(crate) fd: OwnedFd,
    /// Bytes in it that were announced to the host. Until they are sent, it must not be read elsewhere.
    pub(crate) queued: Cell<usize>,
}

/// A queued piece.
enum Part {
    Bytes {
        bytes: Vec<u8>,
        sent: usize,
    },
    /// Part of a file, sent by `sendfile`.
    File {
        file: Rc<File>,
        offset: u64,
        left: usize,
    },
    /// Bytes in a pipe, sent by `splice`.
    Pipe {
        pipe: Rc<Shared>,
        left: usize,
    },
}

pub(crate) struct Outbox {
    /// `None` once the host is gone; then everything is dropped.
    stream: Option<OwnedFd>,
    parts: VecDeque<Part>,
    waiting: usize,
}

impl Outbox {
    pub(crate) fn new(stream: OwnedFd) -> Self {
        Self { stream: Some(stream), parts: VecDeque::new(), waiting: 0 }
    }

    /// An outbox without a host, which drops everything.
    pub(crate) fn nowhere() -> Self {
        Self { stream: None, parts: VecDeque::new(), waiting: 0 }
    }

    pub(crate) fn stream(&self) -> Option<&OwnedFd> {
        self.stream.as_ref()
    }

    /// Closes the outbox: queued bytes are dropped, and bytes in pipes stay there for other readers.
    pub(crate) fn shut(&mut self) {
        self.stream = None;
        self.waiting = 0;
        for part in self.parts.drain(..) {
            if let Part::Pipe { pipe, left } = part {
                pipe.queued.update(|queued| queued.saturating_sub(left));
            }
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.waiting > FULL
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// Appends bytes to the last piece.
    fn append(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        if self.stream.is_none() {
            return;
        }
        if !matches!(self.parts.back(), Some(Part::Bytes { .. })) {
            self.parts.push_back(Part::Bytes { bytes: Vec::new(), sent: 0 });
        }
        if let Some(Part::Bytes { bytes, .. }) = self.parts.back_mut() {
            let before = bytes.len();
            write(bytes);
            self.waiting += bytes.len() - before;
        }
    }

    /// Queues an event for the next flush.
    pub(crate) fn push(&mut self, channel: u32, event: &Event<'_>) {
        self.append(|bytes| event.encode(channel, bytes));
    }

    /// Sends bulk bytes, without copying them if nothing is queued.
    pub(crate) fn bulk(&mut self, channel: u32, error: bool, bytes: &[u8]) -> io::Result<()> {
        let (Ok(length), Some(stream)) = (u32::try_from(bytes.len()), &self.stream) else { return Ok(()) };
        let header = Event::bulk_header(channel, length, error);
        let mut written = 0;
        // Small pieces are queued, so that the next event (an exit, for example) leaves in the same call.
        if self.is_empty() && bytes.len() >= 32 * 1024 {
            written = match rustix::io::writev(stream, &[IoSlice::new(&header), IoSlice::new(bytes)]) {
                Ok(count) => count,
                Err(Errno::AGAIN | Errno::INTR) => 0,
                Err(error) => return Err(error.into()),
            };
        }
        self.append(|waiting| {
            waiting.extend(header.iter().skip(written));
            waiting.extend_from_slice(bytes.get(written.saturating_sub(header.len())..).unwrap_or_default());
        });
        Ok(())
    }

    /// Queues a part of a file as one frame. If the file shrinks meanwhile, zeros fill the frame: its length was
    /// announced.
    pub(crate) fn file(&mut self, channel: u32, file: Rc<File>, offset: u64, length: u32) {
        if self.stream.is_none() {
            return;
        }
        let header = Event::bulk_header(channel, length, false);
        self.append(|bytes| bytes.extend_from_slice(&header));
        self.parts.push_back(Part::File { file, offset, left: length as usize });
        self.waiting += length as usize;
    }

    /// Queues bytes in a pipe as one frame.
    pub(crate) fn pipe(&mut self, channel: u32, error: bool, pipe: Rc<Shared>, length: u32) {
        if self.stream.is_none() {
            return;
        }
        let header = Event::bulk_header(channel, length, error);
        self.append(|bytes| bytes.extend_from_slice(&header));
        pipe.queued.update(|queued| queued + length as usize);
        self.parts.push_back(Part::Pipe { pipe, left: length as usize });
        self.waiting += length as usize;
    }

    /// Writes what the stream takes; `true` when the queue is empty.
    pub(crate) fn flush(&mut self) -> io::Result<bool> {
        while let Some(part) = self.parts.front_mut().filter(|_| self.waiting > 0) {
            let Some(stream) = &self.stream else { return Ok(true) };
            let (count, done) = match part {
                Part::Bytes { bytes, sent } => {
                    let rest = bytes.get(*sent..).unwrap_or_default();
                    let count = if rest.is_empty() { Ok(0) } else { rustix::io::write(stream, rest) };
                    (count, rest.len())
                }
                Part::File { file, offset, left } => {
                    (rustix::fs::sendfile(stream, &**file, Some(offset), *left), *left)
                }
                Part::Pipe { pipe, left } => {
                    let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
                    (splice(&pipe.fd, None, stream, None, *left, flags), *left)
                }
            };
            let count = match (count, &mut *part) {
                (Ok(0) | Err(Errno::INVAL | Errno::NOSYS | Errno::IO), Part::File { file, offset, left }) => {
                    *part = Part::Bytes { bytes: read_instead(file, *offset, *left), sent: 0 };
                    continue;
                }
                (Ok(0) | Err(Errno::INVAL | Errno::NOSYS), Part::Pipe { pipe, left }) => {
                    let bytes = take_instead(&pipe.fd, *left);
                    pipe.queued.update(|queued| queued - *left);
                    *part = Part::Bytes { bytes, sent: 0 };
                    continue;
                }
                (Ok(count), Part::Bytes { sent, .. }) => {
                    *sent += count;
                    count
                }
                (Ok(count), Part::File { left, .. }) => {
                    *left -= count;
                    count
                }
                (Ok(count), Part::Pipe { pipe, left }) => {
                    pipe.queued.update(|queued| queued - count);
                    *left -= count;
                    count
                }
                (Err(Errno::INTR), _) => continue,
                (Err(Errno::AGAIN), _) => return Ok(false),
                (Err(error), _) => return Err(error.into()),
            };
            self.waiting -= count;
            if count == done {
                self.finish_part();
            }
        }
        Ok(true)
    }

    /// Removes a written piece; a small last buffer is reused.
    fn finish_part(&mut self) {
        match self.parts.front_mut() {
            Some(Part::Bytes { bytes, sent }) if self.waiting == 0 && bytes.capacity() <= FULL / 4 => {
                bytes.clear();
                *sent = 0;
            }
            _ => drop(self.parts.pop_front()),
        }
    }
}

/// Reads a pipe whose bytes cannot be spliced to the stream.
fn take_instead(pipe: &OwnedFd, left: usize) -> Vec<u8> {
    let mut bytes = vec![0; left];
    let mut got = 0;
    while let Some(rest) = bytes.get_mut(got..).filter(|rest| !rest.is_empty()) {
        match rustix::io::read(pipe, rest) {
            Ok(count @ 1..) => got += count,
            Err(Errno::INTR) => {}
            Ok(_) | Err(_) => break,
        }
    }
    bytes
}

/// Reads a file that cannot be sent by `sendfile`, or that shrank.
fn read_instead(file: &File, offset: u64, left: usize) -> Vec<u8> {
    use std::os::unix::fs::FileExt;
    let mut bytes = vec![0; left];
    let mut got = 0;
    while let Some(rest) = bytes.get_mut(got..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, offset + got as u64) {
            Ok(count @ 1..) => got += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(_) | Err(_) => break,
        }
    }
    bytes
}

#[cfg(test)]
mod tests;
