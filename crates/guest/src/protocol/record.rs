//! Encoding of file metadata: the bulk data of `Stat`, `List` and `Scan`.

use super::{
    WireError,
    wire::{Reader, Writer},
};

/// Longest encoded record in bytes: two paths and a digest.
const MAX_RECORD: usize = 16 * 1024;

/// Type of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    #[default]
    File,
    /// A directory.
    Dir,
    /// A symbolic link.
    Symlink,
    /// Anything else.
    Other,
}

/// Metadata of one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Name, or path relative to the root of the tree.
    pub path: Vec<u8>,
    /// File type.
    pub kind: Kind,
    /// Size in bytes of a regular file; 0 for other types.
    pub size: u64,
    /// Permission bits.
    pub mode: u32,
    /// Time of the last change in nanoseconds since 1970.
    pub modified_ns: i64,
    /// Owner's uid.
    pub uid: u32,
    /// Group's gid.
    pub gid: u32,
    /// Target of a symbolic link.
    pub link: Option<Vec<u8>>,
    /// SHA-256 digest of a regular file, if requested.
    pub sha256: Option<[u8; 32]>,
}

impl Record {
    /// Appends the record, its length first.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut body = Vec::with_capacity(self.path.len() + 64);
        let mut to = Writer(&mut body);
        to.bytes(&self.path);
        to.u8(match self.kind {
            Kind::File => 0,
            Kind::Dir => 1,
            Kind::Symlink => 2,
            Kind::Other => 3,
        });
        to.u64(self.size);
        to.u32(self.mode);
        to.i64(self.modified_ns);
        to.u32(self.uid);
        to.u32(self.gid);
        to.option(self.link.as_ref(), |to, link| to.bytes(link));
        to.option(self.sha256.as_ref(), |to, digest| to.bytes(digest));
        Writer(out).bytes(&body);
    }

    fn decode(body: &[u8]) -> Result<Self, WireError> {
        let mut from = Reader(body);
        let record = Self {
            path: from.string()?,
            kind: match from.u8()? {
                0 => Kind::File,
                1 => Kind::Dir,
                2 => Kind::Symlink,
                3 => Kind::Other,
                _ => return Err(WireError("a choice is unknown")),
            },
            size: from.u64()?,
            mode: from.u32()? & 0o7777,
            modified_ns: from.i64()?,
            uid: from.u32()?,
            gid: from.u32()?,
            link: from.option(Reader::string)?,
            sha256: from
                .option(Reader::bytes)?
                .map(|digest| digest.try_into().map_err(|_| WireError("a digest is not 32 bytes")))
                .transpose()?,
        };
        from.end()?;
        Ok(record)
    }
}

/// Decodes records from a stream that arrives in pieces of any size.
#[derive(Debug, Default)]
pub struct Records {
    pending: Vec<u8>,
}

impl Records {
    /// Adds a piece and appends the records it completes to `into`.
    ///
    /// # Errors
    /// When the bytes are not records.
    pub fn feed(&mut self, piece: &[u8], into: &mut Vec<Record>) -> Result<(), WireError> {
        self.pending.extend_from_slice(piece);
        let mut rest = self.pending.as_slice();
        while let Some((prefix, after)) = rest.split_first_chunk::<4>() {
            let length = u32::from_le_bytes(*prefix) as usize;
            if length > MAX_RECORD {
                return Err(WireError("a record is too long"));
            }
            let Some((body, after)) = after.split_at_checked(length) else { break };
            into.push(Record::decode(body)?);
            rest = after;
        }
        let used = self.pending.len() - rest.len();
        self.pending.drain(..used);
        Ok(())
    }

    /// Whether no partial record is pending.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.pending.is_empty()
    }
}
