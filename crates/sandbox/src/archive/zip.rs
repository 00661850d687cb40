//! One pass through a zip archive, with strict rules: no two programs may read different contents from it.
//!
//! The directory at the end and the header of each member must agree, members must not overlap, and content must have
//! the announced length and checksum.
//!
//! The crate `zip` cannot keep these rules. It tries earlier end records if the last one is wrong, reads the whole
//! directory before its size can be judged, drops all but one member of a name, replaces names by those of an extra
//! field, and shows neither disk numbers nor bytes after a compressed stream.

mod directory;
mod record;

use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};

use flate2::{Crc, bufread::DeflateDecoder};
use sandbar_machine::tar::{Kind, Member};

use self::{
    directory::{Directory, Entry},
    record::{Fault, LOCAL, Local},
};
use super::{Summary, broken, cleaner::Cleaner, tarball::unreadable};
use crate::{Result, SandboxError};

const PIECE: usize = 64 << 10;
/// Longest target of a symbolic link.
const LINK_LIMIT: u64 = 4000;

const STORED: u16 = 0;
const DEFLATED: u16 = 8;

/// Passes every member to the cleaner.
pub(super) fn pass(input: &mut (impl Read + Seek), cleaner: &mut Cleaner) -> Result<Summary> {
    let directory = Directory::find(input).map_err(|fault| whole(cleaner, fault))?;
    cleaner.expect_members(directory.count)?;
    let entries = directory.entries(input).map_err(|fault| whole(cleaner, fault))?;
    let total = entries.iter().fold(0u64, |sum, entry| sum.saturating_add(entry.size));
    cleaner.expect_bytes(total)?;
    let starts = contents(input, &directory, &entries, cleaner)?;
    let mut buffer = vec![0; PIECE];
    for (entry, start) in entries.iter().zip(starts) {
        input.seek(SeekFrom::Start(start)).map_err(|error| unreadable(cleaner.archive(), error))?;
        // Most members are small; so are their buffers.
        let capacity = usize::try_from(entry.packed).unwrap_or(PIECE).clamp(1, PIECE);
        let raw = BufReader::with_capacity(capacity, input.by_ref().take(entry.packed));
        member(raw, entry, &mut buffer, cleaner)?;
    }
    cleaner.finish()
}

fn whole(cleaner: &Cleaner, fault: Fault) -> SandboxError {
    match fault {
        Fault::Unreadable(error) => unreadable(cleaner.archive(), error),
        Fault::Wrong(reason) => broken(cleaner.archive(), reason),
    }
}

/// Offset of each entry's content. Reads every local header and refuses members that overlap: with shared bytes, a
/// small archive can expand to a very large tree.
fn contents(
    input: &mut (impl Read + Seek),
    directory: &Directory,
    entries: &[Entry],
    cleaner: &Cleaner,
) -> Result<Vec<u64>> {
    let mut starts = Vec::with_capacity(entries.len());
    let mut ranges = Vec::with_capacity(entries.len());
    for entry in entries {
        let refuse = |fault| match fault {
            Fault::Unreadable(error) => unreadable(cleaner.archive(), error),
            Fault::Wrong(reason) => cleaner.refuse(&entry.name, reason),
        };
        let local = Local::read(input, entry.offset).map_err(refuse)?;
        local.agrees_with(entry).map_err(|reason| refuse(Fault::Wrong(reason)))?;
        let start = entry.offset.saturating_add(LOCAL as u64).saturating_add(local.variable);
        let end = start.saturating_add(entry.packed);
        if end > directory.start {
            return Err(cleaner.refuse(&entry.name, "reaches into the archive's directory"));
        }
        starts.push(start);
        ranges.push((entry.offset, end));
    }
    ranges.sort_unstable();
    if ranges.windows(2).any(|pair| pair[0].1 > pair[1].0) {
        return Err(broken(cleaner.archive(), "has members that share their bytes"));
    }
    Ok(starts)
}

/// Passes on one member, and checks its content against its header.
fn member(raw: BufReader<impl Read>, entry: &Entry, buffer: &mut [u8], cleaner: &mut Cleaner) -> Result<()> {
    let mut header = Member::new(entry.kind, &entry.name, entry.mode);
    header.modified = entry.modified;
    if entry.kind == Kind::Dir && entry.size > 0 {
        return Err(cleaner.refuse(&entry.name, "is a directory with content"));
    }
    if entry.kind != Kind::Symlink {
        header.size = entry.size;
        cleaner.begin(&header)?;
        content(raw, entry, buffer, cleaner, |cleaner, piece| cleaner.data(piece))?;
        return cleaner.end();
    }
    if entry.size > LINK_LIMIT {
        return Err(cleaner.refuse(&entry.name, "is a symbolic link with an empty, invalid or too long target"));
    }
    let mut target = Vec::new();
    content(raw, entry, buffer, cleaner, |_cleaner, piece| {
        target.extend_from_slice(piece);
        Ok(())
    })?;
    header.link = target;
    cleaner.begin(&header)?;
    cleaner.end()
}

/// Decompresses the content, and stops at the first byte over the announced size.
fn content(
    raw: BufReader<impl Read>,
    entry: &Entry,
    buffer: &mut [u8],
    cleaner: &mut Cleaner,
    mut take: impl FnMut(&mut Cleaner, &[u8]) -> Result<()>,
) -> Result<()> {
    let mut content = match entry.method {
        STORED => Content::Stored(raw),
        DEFLATED => Content::Deflated(DeflateDecoder::new(raw)),
        other => {
            return Err(cleaner.refuse(&entry.name, format!("is compressed by method {other}, which is not known")));
        }
    };
    let (mut left, mut crc) = (entry.size, Crc::new());
    loop {
        let got = match content.read(buffer) {
            Ok(0) => break,
            Ok(got) => got,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) if error.raw_os_error().is_some() => return Err(unreadable(cleaner.archive(), error)),
            Err(error) => return Err(cleaner.refuse(&entry.name, "is damaged").because(error)),
        };
        left = left.checked_sub(got as u64).ok_or_else(|| cleaner.refuse(&entry.name, "is larger than it says"))?;
        crc.update(&buffer[..got]);
        take(cleaner, &buffer[..got])?;
    }
    if left > 0 {
        return Err(cleaner.refuse(&entry.name, "is smaller than it says"));
    }
    if content.has_trailing_data() {
        return Err(cleaner.refuse(&entry.name, "has data after its end"));
    }
    if crc.sum() != entry.crc {
        return Err(cleaner.refuse(&entry.name, "has a wrong checksum"));
    }
    Ok(())
}

enum Content<R: Read> {
    Stored(BufReader<R>),
    Deflated(DeflateDecoder<BufReader<R>>),
}

impl<R: Read> Content<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Stored(raw) => raw.read(buffer),
            Self::Deflated(decoder) => decoder.read(buffer),
        }
    }

    /// Whether data follows the end of the compressed stream.
    fn has_trailing_data(self) -> bool {
        match self {
            Self::Stored(_) => false,
            Self::Deflated(decoder) => decoder.into_inner().fill_buf().is_ok_and(|rest| !rest.is_empty()),
        }
    }
}
