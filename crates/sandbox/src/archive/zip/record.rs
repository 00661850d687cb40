//! Reads the fixed-size records of a zip archive.

use std::io::{self, Read, Seek, SeekFrom};

use super::directory::Entry;

/// Size of a member's local header without name and extra field.
pub(super) const LOCAL: usize = 30;
const LOCAL_MARK: u32 = 0x0403_4b50;
const ZIP64_EXTRA: u16 = 1;
/// Placeholder for a number that is in the zip64 field.
pub(super) const ELSEWHERE_16: u64 = 0xffff;
pub(super) const ELSEWHERE_32: u64 = 0xffff_ffff;

/// Encrypted, patched, strongly encrypted, or with a masked directory.
const REFUSED_FLAGS: u16 = 1 | 1 << 5 | 1 << 6 | 1 << 13;
/// Sizes and checksum come after the content.
const LATE: u16 = 1 << 3;

/// Why an archive cannot be read.
pub(super) enum Fault {
    /// An I/O error, or the end of the input.
    Unreadable(io::Error),
    /// The archive breaks a rule.
    Wrong(&'static str),
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self::Unreadable(error)
    }
}

/// Reads the numbers of a record in order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    /// The next `count` bytes; `None` if there are fewer.
    pub(super) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(head)
    }

    /// The next number of `width` bytes.
    pub(super) fn number(&mut self, width: usize) -> Option<u64> {
        self.bytes(width).map(|bytes| bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
    }

    /// The next two-byte number.
    pub(super) fn short(&mut self) -> Option<u16> {
        self.number(2).and_then(|number| u16::try_from(number).ok())
    }

    /// The next four-byte number.
    pub(super) fn long(&mut self) -> Option<u32> {
        self.number(4).and_then(|number| u32::try_from(number).ok())
    }
}

/// Replaces placeholders by the numbers of the zip64 field, in order.
pub(super) fn widen(extra: &[u8], numbers: &mut [&mut u64]) -> Result<(), &'static str> {
    let wrong = "has a broken extra field";
    if numbers.iter().all(|number| **number != ELSEWHERE_32) {
        return Ok(());
    }
    let mut fields = Fields(extra);
    while !fields.0.is_empty() {
        let (id, length) = (fields.short().ok_or(wrong)?, fields.short().ok_or(wrong)?);
        let mut own = Fields(fields.bytes(usize::from(length)).ok_or(wrong)?);
        if id != ZIP64_EXTRA {
            continue;
        }
        for number in numbers.iter_mut().filter(|number| ***number == ELSEWHERE_32) {
            **number = own.number(8).ok_or("has a broken zip64 field")?;
        }
        return Ok(());
    }
    Err("has no zip64 field for its size or offset")
}

/// Refuses members whose flags say that they are encrypted or patched.
pub(super) fn judge_flags(flags: u16) -> Result<(), &'static str> {
    if flags & REFUSED_FLAGS == 0 { Ok(()) } else { Err("is encrypted or patched") }
}

/// The header before a member.
#[derive(Debug)]
pub(super) struct Local {
    flags: u16,
    method: u16,
    crc: u32,
    packed: u64,
    size: u64,
    name: Vec<u8>,
    /// Size of its name and extra field.
    pub(super) variable: u64,
}

impl Local {
    pub(super) fn read(input: &mut (impl Read + Seek), offset: u64) -> Result<Self, Fault> {
        input.seek(SeekFrom::Start(offset))?;
        let mut fixed = [0; LOCAL];
        input.read_exact(&mut fixed)?;
        let (mut local, name, extra) = Self::parse(&fixed).ok_or(Fault::Wrong("has no header where it should be"))?;
        let mut rest = vec![0; name + extra];
        input.read_exact(&mut rest)?;
        widen(&rest[name..], &mut [&mut local.size, &mut local.packed]).map_err(Fault::Wrong)?;
        rest.truncate(name);
        local.name = rest;
        Ok(local)
    }

    fn parse(fixed: &[u8]) -> Option<(Self, usize, usize)> {
        let mut fields = Fields(fixed);
        if fields.long()? != LOCAL_MARK {
            return None;
        }
        let _version = fields.short()?;
        let (flags, method) = (fields.short()?, fields.short()?);
        let _modified = fields.long()?;
        let crc = fields.long()?;
        let (packed, size) = (fields.number(4)?, fields.number(4)?);
        let (name, extra) = (usize::from(fields.short()?), usize::from(fields.short()?));
        let variable = (name + extra) as u64;
        Some((Self { flags, method, crc, packed, size, name: Vec::new(), variable }, name, extra))
    }

    /// Checks that the local header and the directory say the same.
    pub(super) fn agrees_with(&self, entry: &Entry) -> Result<(), &'static str> {
        judge_flags(self.flags)?;
        if self.name != entry.raw_name {
            return Err("has another name in its own header");
        }
        if self.method != entry.method || self.flags & LATE != entry.flags & LATE {
            return Err("has another compression method in its own header");
        }
        let late = self.flags & LATE != 0 && (self.crc, self.packed, self.size) == (0, 0, 0);
        let late_sizes = self.flags & LATE != 0 && self.crc == 0;
        let equal = (self.packed, self.size) == (entry.packed, entry.size);
        if late || (equal && (self.crc == entry.crc || late_sizes)) {
            return Ok(());
        }
        Err("has another size or checksum in its own header")
    }
}
