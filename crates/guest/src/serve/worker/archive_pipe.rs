//! Reads an archive from a pipe: headers are read, the bytes of large files are spliced without copying.

use std::{
    cell::{Cell, RefCell},
    fs::File,
    io::{self, Read, Write},
    os::fd::OwnedFd,
};

use rustix::{
    io::Errno,
    pipe::{SpliceFlags, splice},
};

/// Bytes read at once while members are small: a call for each would cost more than its content.
const BUFFER: usize = 128 << 10;
/// Block size of a tar archive.
const BLOCK: usize = 512;
/// Files from this size on are spliced.
const LARGE: u64 = 8 << 10;

/// Bytes after which the writer of the pipe is told how much was read.
const COUNTED: u64 = 256 << 10;

/// Reading end of a pipe with an archive in it.
pub(crate) struct ArchivePipe {
    pipe: OwnedFd,
    /// Eventfd that counts the bytes taken from the pipe, and the count that was not reported yet.
    meter: Option<OwnedFd>,
    unsaid: Cell<u64>,
    held: RefCell<Buffered>,
    /// Bytes that were moved to a file, and that the archive reader still has to skip.
    passed: Cell<u64>,
    /// Whether members are currently large: then nothing is read ahead beyond the next header.
    careful: Cell<bool>,
    /// Whether the target supports `splice`.
    movable: Cell<bool>,
}

/// Bytes that were read ahead.
struct Buffered {
    room: Vec<u8>,
    start: usize,
    end: usize,
}

impl Buffered {
    fn bytes(&self) -> &[u8] {
        self.room.get(self.start..self.end).unwrap_or_default()
    }
}

impl ArchivePipe {
    pub(crate) fn new(pipe: OwnedFd, meter: Option<OwnedFd>) -> Self {
        let held = Buffered { room: vec![0; BUFFER], start: 0, end: 0 };
        Self {
            pipe,
            meter,
            unsaid: Cell::new(0),
            held: RefCell::new(held),
            passed: Cell::new(0),
            careful: Cell::new(false),
            movable: Cell::new(true),
        }
    }

    /// Moves the next `size` bytes into a file. For the archive reader they are still to come: it must skip them
    /// unread. Fewer bytes are moved if the archive ends early, which its reader then reports.
    pub(crate) fn move_out(&self, file: &mut File, size: u64) -> io::Result<()> {
        self.careful.set(size >= LARGE);
        let mut left = size;
        while left > 0 {
            let count = match self.movable.get() && left >= LARGE && self.held.borrow().bytes().is_empty() {
                true => self.splice(file, left)?,
                false => Some(self.copy(file, left)?),
            };
            match count {
                Some(0) => break,
                Some(count) => left -= count as u64,
                None => {}
            }
        }
        self.passed.set(self.passed.get() + (size - left));
        Ok(())
    }

    /// `None` if the call must be tried again, or replaced by a copy.
    fn splice(&self, file: &File, most: u64) -> io::Result<Option<usize>> {
        let most = usize::try_from(most).unwrap_or(usize::MAX).min(1 << 30);
        match splice(&self.pipe, None, file, None, most, SpliceFlags::MOVE) {
            Ok(count) => {
                self.count(count);
                Ok(Some(count))
            }
            Err(Errno::INTR) => Ok(None),
            Err(Errno::INVAL | Errno::NOSYS) => {
                self.movable.set(false);
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn count(&self, taken: usize) {
        let unsaid = self.unsaid.get() + taken as u64;
        self.unsaid.set(if unsaid < COUNTED { unsaid } else { 0 });
        if unsaid >= COUNTED
            && let Some(meter) = &self.meter
        {
            let _server_gone = rustix::io::write(meter, &unsaid.to_ne_bytes());
        }
    }

    fn copy(&self, file: &mut File, most: u64) -> io::Result<usize> {
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let mut held = self.held.borrow_mut();
        if held.bytes().is_empty() {
            self.fill(&mut held, most)?;
        }
        let bytes = held.bytes();
        let bytes = bytes.get(..most).unwrap_or(bytes);
        file.write_all(bytes)?;
        let count = bytes.len();
        held.start += count;
        Ok(count)
    }

    /// Reads ahead: as much as is available, or no further than the header that follows `wanted` bytes.
    fn fill(&self, held: &mut Buffered, wanted: usize) -> io::Result<()> {
        let ahead = match (self.careful.get(), wanted % BLOCK) {
            (false, _) => BUFFER,
            (true, 0) => wanted.min(BUFFER),
            (true, _) => wanted.saturating_add(BLOCK).min(BUFFER),
        };
        (held.start, held.end) = (0, 0);
        loop {
            match rustix::io::read(&self.pipe, held.room.get_mut(..ahead).unwrap_or_default()) {
                Ok(count) => {
                    held.end = count;
                    self.count(count);
                    return Ok(());
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Read for &ArchivePipe {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let passed = self.passed.get();
        if passed > 0 {
            // These bytes are in their file already. Skipped bytes are not looked at, so the buffer stays as it is.
            let count = usize::try_from(passed).unwrap_or(usize::MAX).min(into.len());
            self.passed.set(passed - count as u64);
            return Ok(count);
        }
        let mut held = self.held.borrow_mut();
        if held.bytes().is_empty() {
            self.fill(&mut held, into.len())?;
        }
        let bytes = held.bytes();
        let count = bytes.len().min(into.len());
        into.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        held.start += count;
        Ok(count)
    }
}
