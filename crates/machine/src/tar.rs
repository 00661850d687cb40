//! Strict reading and writing of tar streams with bounded memory.
//!
//! Programs disagree about the meaning of headers (two names for one member, two sizes, trailing slashes). Therefore no header
//! is copied: members are parsed strictly and written again in the one form that all programs agree on.

use bytes::{Buf, Bytes, BytesMut};

use crate::{MachineError, Result};

const BLOCK: usize = 512;
/// Maximum size of the long names and pax records before one member.
const EXTENSION_LIMIT: u64 = 64 << 10;

/// Type of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Dir,
    /// A symbolic link.
    Symlink,
    /// Another name of an earlier member.
    HardLink,
    /// Any other type, with its type flag.
    Other(u8),
}

/// Header of one member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Path as it is in the archive, not checked.
    pub path: Vec<u8>,
    /// Type of the member.
    pub kind: Kind,
    /// Target of a symbolic or hard link; empty otherwise.
    pub link: Vec<u8>,
    /// Permission bits.
    pub mode: u32,
    /// Size in bytes of the content that follows.
    pub size: u64,
    /// Modification time in seconds since 1970.
    pub modified: u64,
    /// Owner's uid.
    pub uid: u64,
    /// Group's gid.
    pub gid: u64,
}

impl Member {
    /// A member without content that belongs to root, with the time 0.
    #[must_use]
    pub fn new(kind: Kind, path: &[u8], mode: u32) -> Self {
        let (path, link) = (path.to_vec(), Vec::new());
        Self { path, kind, link, mode, size: 0, modified: 0, uid: 0, gid: 0 }
    }

    /// The header blocks in GNU format, which all common programs read.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        let mut path = self.path.clone();
        if self.kind == Kind::Dir {
            path.push(b'/');
        }
        long_name(&mut out, b'K', &self.link);
        long_name(&mut out, b'L', &path);
        out.extend_from_slice(&self.block(&path));
        out.freeze()
    }

    fn block(&self, path: &[u8]) -> [u8; BLOCK] {
        let mut block = [0; BLOCK];
        text(&mut block[..100], path);
        number(&mut block[100..108], u64::from(self.mode));
        number(&mut block[108..116], self.uid);
        number(&mut block[116..124], self.gid);
        number(&mut block[124..136], self.size);
        number(&mut block[136..148], self.modified);
        block[156] = match self.kind {
            Kind::File => b'0',
            Kind::HardLink => b'1',
            Kind::Symlink => b'2',
            Kind::Dir => b'5',
            Kind::Other(flag) => flag,
        };
        text(&mut block[157..257], &self.link);
        block[257..265].copy_from_slice(b"ustar  \0");
        let sum = checksum(&block);
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        block
    }
}

/// The two empty blocks that end an archive.
#[must_use]
pub fn end() -> Bytes {
    Bytes::from_static(&[0; 2 * BLOCK])
}

/// Number of zero bytes that follow content of this size.
#[must_use]
pub fn padding(size: u64) -> usize {
    // The remainder is below 512.
    (size.wrapping_neg() % BLOCK as u64) as usize
}

fn long_name(out: &mut BytesMut, flag: u8, name: &[u8]) {
    if name.len() < 100 {
        return;
    }
    let mut header = Member::new(Kind::Other(flag), b"././@LongLink", 0o644);
    header.size = name.len() as u64 + 1;
    out.extend_from_slice(&header.block(&header.path));
    out.extend_from_slice(name);
    out.extend_from_slice(&[0]);
    out.resize(out.len() + padding(header.size), 0);
}

fn text(field: &mut [u8], value: &[u8]) {
    // A name of 100 bytes or more is written in full by `long_name`, so it may be truncated here.
    let fits = value.len().min(field.len() - 1);
    field[..fits].copy_from_slice(&value[..fits]);
}

fn number(field: &mut [u8], value: u64) {
    let octal = format!("{value:0width$o}", width = field.len() - 1);
    if octal.len() < field.len() {
        field[..octal.len()].copy_from_slice(octal.as_bytes());
        return;
    }
    // The binary form: the value in the last eight bytes, and the top bit of the field set. No field is shorter than eight.
    let start = field.len() - 8;
    field[start..].copy_from_slice(&value.to_be_bytes());
    field[0] |= 0x80;
}

/// The checksum of a header: the sum of its bytes, with the checksum field counted as spaces.
fn checksum(block: &[u8]) -> u64 {
    let own = 148..156;
    block.iter().enumerate().map(|(at, byte)| if own.contains(&at) { 32 } else { u64::from(*byte) }).sum()
}

/// Event of a [`Reader`].
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// A member begins.
    Member(Member),
    /// A part of the member's content.
    Data(Bytes),
    /// The member is complete.
    Done,
}

#[derive(Debug)]
enum State {
    Header,
    Content { left: u64, padding: usize },
    Padding(usize),
    Ended,
}

/// Parser of a tar stream. It buffers at most the extension headers of one member.
#[derive(Debug)]
pub struct Reader {
    buffer: BytesMut,
    state: State,
    extension: Extension,
}

/// Values from the extension headers before a member's header.
#[derive(Debug, Default)]
struct Extension {
    used: u64,
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
}

impl Default for Reader {
    fn default() -> Self {
        Self::new()
    }
}

impl Reader {
    /// A parser at the beginning of an archive.
    #[must_use]
    pub fn new() -> Self {
        Self { buffer: BytesMut::new(), state: State::Header, extension: Extension::default() }
    }

    /// Parses the next bytes. Bytes after the end of the archive are ignored.
    ///
    /// # Errors
    /// [`MachineError::Invalid`] if the stream is not a tar archive or uses an extension that is not supported.
    pub fn push(&mut self, piece: &[u8]) -> Result<Vec<Event>> {
        let mut events = Vec::new();
        if matches!(self.state, State::Ended) {
            return Ok(events);
        }
        self.buffer.extend_from_slice(piece);
        while self.step(&mut events)? {}
        Ok(events)
    }

    /// Checks that the end of the archive was reached. Call this at the end of the stream.
    ///
    /// # Errors
    /// [`MachineError::Invalid`] if the archive is truncated.
    pub fn finish(&self) -> Result<()> {
        match self.state {
            State::Ended => Ok(()),
            _ => Err(malformed("ends early")),
        }
    }

    fn step(&mut self, events: &mut Vec<Event>) -> Result<bool> {
        match &mut self.state {
            State::Header => self.header(events),
            State::Content { left, padding } => {
                if *left == 0 {
                    events.push(Event::Done);
                    self.state = State::Padding(*padding);
                    return Ok(true);
                }
                let here = usize::try_from(*left).unwrap_or(usize::MAX).min(self.buffer.len());
                if here == 0 {
                    return Ok(false);
                }
                *left -= here as u64;
                events.push(Event::Data(self.buffer.split_to(here).freeze()));
                Ok(true)
            }
            State::Padding(left) => {
                let here = (*left).min(self.buffer.len());
                self.buffer.advance(here);
                *left -= here;
                if *left > 0 {
                    return Ok(false);
                }
                self.state = State::Header;
                Ok(true)
            }
            State::Ended => {
                self.buffer.clear();
                Ok(false)
            }
        }
    }

    fn header(&mut self, events: &mut Vec<Event>) -> Result<bool> {
        let Some(block) = self.buffer.get(..BLOCK) else { return Ok(false) };
        if block.iter().all(|byte| *byte == 0) {
            self.state = State::Ended;
            return Ok(true);
        }
        if parse_number(&block[148..156])? != checksum(block) {
            return Err(malformed("has a header with a wrong checksum"));
        }
        let (flag, size) = (block[156], parse_number(&block[124..136])?);
        if matches!(flag, b'x' | b'g' | b'L' | b'K') {
            return self.extension(flag, size);
        }
        let member = std::mem::take(&mut self.extension).complete(block)?;
        self.buffer.advance(BLOCK);
        self.state = State::Content { left: member.size, padding: padding(member.size) };
        events.push(Event::Member(member));
        Ok(true)
    }

    fn extension(&mut self, flag: u8, size: u64) -> Result<bool> {
        let total = self.extension.used.saturating_add(size);
        if total > EXTENSION_LIMIT {
            return Err(malformed("has a name longer than any system allows"));
        }
        // This cannot truncate: the size is below the limit.
        let length = size as usize;
        let whole = BLOCK + length + padding(size);
        if self.buffer.len() < whole {
            return Ok(false);
        }
        let blocks = self.buffer.split_to(whole);
        let content = &blocks[BLOCK..BLOCK + length];
        self.extension.used = total;
        match flag {
            b'L' => self.extension.path = Some(until_nul(content).to_vec()),
            b'K' => self.extension.link = Some(until_nul(content).to_vec()),
            b'g' => Extension::default().pax(content, &["path", "linkpath", "size"])?,
            _ => self.extension.pax(content, &[])?,
        }
        Ok(true)
    }
}

impl Extension {
    /// Parses pax records. Keys in `refused` are errors: in a global header they would change every later member.
    fn pax(&mut self, mut records: &[u8], refused: &[&str]) -> Result<()> {
        while !records.is_empty() {
            let (key, value, rest) = pax_record(records).ok_or_else(|| malformed("has a broken pax record"))?;
            records = rest;
            if refused.iter().any(|name| name.as_bytes() == key) || key.starts_with(b"GNU.sparse") {
                return Err(malformed("uses a pax record that is not supported"));
            }
            match key {
                b"path" => self.path = Some(value.to_vec()),
                b"linkpath" => self.link = Some(value.to_vec()),
                b"size" => self.size = Some(decimal(value).ok_or_else(|| malformed("has a broken size"))?),
                _ => {}
            }
        }
        Ok(())
    }

    fn complete(self, block: &[u8]) -> Result<Member> {
        let own_name = until_nul(&block[..100]);
        // Only the POSIX format has a prefix; the GNU format has other fields there.
        let prefix = if &block[257..263] == b"ustar\0" { until_nul(&block[345..500]) } else { b"" };
        let joined = if prefix.is_empty() { own_name.to_vec() } else { [prefix, b"/", own_name].concat() };
        let path = self.path.unwrap_or(joined);
        let kind = match block[156] {
            b'0' | 0 | b'7' if path.ends_with(b"/") => Kind::Dir,
            b'0' | 0 | b'7' => Kind::File,
            b'1' => Kind::HardLink,
            b'2' => Kind::Symlink,
            b'5' => Kind::Dir,
            other => Kind::Other(other),
        };
        let size = match self.size {
            Some(size) => size,
            None => parse_number(&block[124..136])?,
        };
        if size > 0 && kind != Kind::File {
            return Err(malformed("has content for something that is not a file"));
        }
        let link = self.link.unwrap_or_else(|| until_nul(&block[157..257]).to_vec());
        Ok(Member {
            path,
            kind,
            link,
            // This cannot truncate: the mask leaves twelve bits.
            mode: (parse_number(&block[100..108])? & 0o7777) as u32,
            size,
            modified: parse_number(&block[136..148])?,
            uid: parse_number(&block[108..116])?,
            gid: parse_number(&block[116..124])?,
        })
    }
}

/// The key and the value of the first record, and the remaining records.
fn pax_record(records: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let space = records.iter().position(|byte| *byte == b' ')?;
    let length = usize::try_from(decimal(&records[..space])?).ok()?;
    let (record, rest) = records.split_at_checked(length)?;
    let body = record.get(space + 1..)?.strip_suffix(b"\n")?;
    let equals = body.iter().position(|byte| *byte == b'=')?;
    Some((&body[..equals], &body[equals + 1..], rest))
}

fn decimal(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

fn until_nul(field: &[u8]) -> &[u8] {
    field.split(|byte| *byte == 0).next().unwrap_or_default()
}

fn parse_number(field: &[u8]) -> Result<u64> {
    let broken = || malformed("has a broken number");
    if field[0] & 0x80 != 0 {
        let value =
            field[1..].iter().try_fold(0u64, |sum, byte| sum.checked_mul(256).map(|sum| sum | u64::from(*byte)));
        // A negative number would begin with 0xff.
        return value.filter(|_| field[0] == 0x80).ok_or_else(broken);
    }
    let digits = until_nul(field).trim_ascii();
    if digits.is_empty() {
        return Ok(0);
    }
    let digits = std::str::from_utf8(digits).map_err(|_not_digits| broken())?;
    u64::from_str_radix(digits, 8).map_err(|_not_octal| broken())
}

/// The error for an invalid archive.
pub(crate) fn malformed(reason: &str) -> MachineError {
    MachineError::invalid("the archive", reason)
}

/// Passes members of a stream on, as a closure decides: unchanged, changed, left out (`None`), or an error.
pub(crate) struct MemberFilter<C> {
    reader: Reader,
    check: C,
    /// Size of the current member, if it is passed on.
    passing: Option<u64>,
}

impl<C: FnMut(Member) -> Result<Option<Member>>> MemberFilter<C> {
    pub(crate) fn new(check: C) -> Self {
        Self { reader: Reader::new(), check, passing: None }
    }

    /// The bytes to pass on for these bytes; may be empty.
    pub(crate) fn push(&mut self, piece: &[u8]) -> Result<Bytes> {
        let mut out = BytesMut::with_capacity(piece.len());
        for event in self.reader.push(piece)? {
            match event {
                Event::Member(member) => {
                    let checked = (self.check)(member)?;
                    self.passing = checked.as_ref().map(|member| member.size);
                    if let Some(member) = checked {
                        out.extend_from_slice(&member.encode());
                    }
                }
                Event::Data(data) if self.passing.is_some() => out.extend_from_slice(&data),
                Event::Data(_left_out) => {}
                Event::Done => {
                    let zeros = self.passing.take().map_or(0, padding);
                    out.resize(out.len() + zeros, 0);
                }
            }
        }
        Ok(out.freeze())
    }

    /// The end of the archive, if the input was complete.
    pub(crate) fn finish(&self) -> Result<Bytes> {
        self.reader.finish()?;
        Ok(end())
    }
}
