//! Frames on their way to the host: written at once when the stream takes them, kept in order when it does not.

use std::{cell::Cell, collections::VecDeque, fs::File, io, os::fd::OwnedFd, rc::Rc};

use rustix::{
    io::{Errno, IoSlice},
    pipe::{SpliceFlags, splice},
};
use sandbar_guest::protocol::Event;

/// Above this many waiting bytes nothing more is read from processes and files.
const FULL: usize = 1024 * 1024;

/// A descriptor whose bytes the kernel may be moving for us.
pub(crate) struct Shared {
    pub(crate) fd: OwnedFd,
    /// Bytes that are in it and announced to the host already. Nobody else may read it meanwhile.
    pub(crate) queued: Cell<usize>,
}

/// Something that waits to be written.
enum Part {
    Bytes {
        bytes: Vec<u8>,
        sent: usize,
    },
    /// Part of a file, which the kernel moves without showing it to us.
    File {
        file: Rc<File>,
        offset: u64,
        left: usize,
    },
    /// Bytes that are in a pipe, moved likewise.
    Pipe {
        pipe: Rc<Shared>,
        left: usize,
    },
}

pub(crate) struct Outbox {
    /// `None` once the host is gone; what is sent then goes nowhere.
    stream: Option<OwnedFd>,
    parts: VecDeque<Part>,
    waiting: usize,
}

impl Outbox {
    pub(crate) fn new(stream: OwnedFd) -> Self {
        Self { stream: Some(stream), parts: VecDeque::new(), waiting: 0 }
    }

    /// Where what is sent goes nowhere.
    pub(crate) fn nowhere() -> Self {
        Self { stream: None, parts: VecDeque::new(), waiting: 0 }
    }

    pub(crate) fn stream(&self) -> Option<&OwnedFd> {
        self.stream.as_ref()
    }

    /// The host is gone: what waits for it is dropped, and what is in pipes stays there for others to read.
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

    /// Appends bytes to what waits last.
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

    /// Queues an event; it leaves with the next flush.
    pub(crate) fn push(&mut self, channel: u32, event: &Event<'_>) {
        self.append(|bytes| event.encode(channel, bytes));
    }

    /// Sends bulk bytes, without copying them when nothing waits before them.
    pub(crate) fn bulk(&mut self, channel: u32, error: bool, bytes: &[u8]) -> io::Result<()> {
        let (Ok(length), Some(stream)) = (u32::try_from(bytes.len()), &self.stream) else { return Ok(()) };
        let header = Event::bulk_header(channel, length, error);
        let mut written = 0;
        // Small pieces are worth gathering: what follows them (an exit, say) then leaves in the same call.
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

    /// Queues a part of a file as one frame. A file that shrinks meanwhile is filled up with zeros: the frame's length has
    /// been announced.
    pub(crate) fn file(&mut self, channel: u32, file: Rc<File>, offset: u64, length: u32) {
        if self.stream.is_none() {
            return;
        }
        let header = Event::bulk_header(channel, length, false);
        self.append(|bytes| bytes.extend_from_slice(&header));
        self.parts.push_back(Part::File { file, offset, left: length as usize });
        self.waiting += length as usize;
    }

    /// Queues bytes that are in a pipe already as one frame.
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

    /// Writes what the stream takes; `true` when all of it went.
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

    /// Lets go of a part that was written; a small buffer that is the last one is kept for what comes next.
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

/// For streams the kernel cannot move a pipe's bytes to.
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

/// For files the kernel cannot move by itself, or that have become shorter.
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
