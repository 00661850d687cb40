//! An archive on its way out of a pipe: headers are read, and the bytes of large files moved by the kernel, never seen.

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

/// What is read at once while members are small: a call each would cost more than what is in them.
const BUFFER: usize = 128 << 10;
/// The unit of an archive.
const BLOCK: usize = 512;
/// Files from this size on are moved.
const LARGE: u64 = 8 << 10;

/// After how many bytes whoever fills the pipe hears of it.
const COUNTED: u64 = 256 << 10;

/// The reading end of a pipe with an archive in it.
pub(crate) struct Intake {
    pipe: OwnedFd,
    /// Where to say how much was taken out of the pipe, and what was not said yet.
    meter: Option<OwnedFd>,
    unsaid: Cell<u64>,
    held: RefCell<Held>,
    /// Bytes that were moved, and that whoever reads the archive still has to pass over.
    passed: Cell<u64>,
    /// Whether members are large at the moment: then no more is read than has to be looked at.
    careful: Cell<bool>,
    /// Whether the kernel can move bytes to where they go.
    movable: Cell<bool>,
}

/// Bytes that were read ahead.
struct Held {
    room: Vec<u8>,
    start: usize,
    end: usize,
}

impl Held {
    fn bytes(&self) -> &[u8] {
        self.room.get(self.start..self.end).unwrap_or_default()
    }
}

impl Intake {
    pub(crate) fn new(pipe: OwnedFd, meter: Option<OwnedFd>) -> Self {
        let held = Held { room: vec![0; BUFFER], start: 0, end: 0 };
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

    /// Puts the next `size` bytes into a file. To whoever reads the archive they are still to come: it must pass over them
    /// without looking. Fewer are put when the archive ends early, which its reader then hears.
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

    /// `None` when it has to be tried again, or in another way.
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

    /// Reads ahead: as much as there is, or no further than the header that follows `wanted` bytes.
    fn fill(&self, held: &mut Held, wanted: usize) -> io::Result<()> {
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

impl Read for &Intake {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let passed = self.passed.get();
        if passed > 0 {
            // They are in their file by now. Nobody looks at what is passed over.
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
