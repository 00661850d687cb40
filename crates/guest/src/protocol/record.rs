//! Encoding of file metadata: the bulk data of `Stat`, `List` and `Scan`.

use super::{
    WireError,
    wire::{self, Wire, read_bytes},
};

/// Longest encoded record in bytes: two paths and a digest.
const MAX_RECORD: usize = 16 * 1024;

wire! {
    /// Type of a file.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum Kind {
        /// A regular file.
        #[default]
        File = 0,
        /// A directory.
        Dir = 1,
        /// A symbolic link.
        Symlink = 2,
        /// Anything else.
        Other = 3,
    }
    unknown "a choice is unknown";
}

wire! {
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
}

impl Record {
    /// Appends the record, its length first.
    pub fn encode(&self, out: &mut Vec<u8>) {
        u8::write_list(&wire::encode(self), out);
    }

    fn decode(body: &[u8]) -> Result<Self, WireError> {
        let mut record: Self = wire::decode(body)?;
        record.mode &= 0o7777;
        Ok(record)
    }
}

/// A digest.
impl Wire<'_> for [u8; 32] {
    fn write(&self, to: &mut Vec<u8>) {
        u8::write_list(self, to);
    }

    fn read(from: &mut &[u8]) -> Result<Self, WireError> {
        read_bytes(from)?.try_into().map_err(|_| WireError("a digest is not 32 bytes"))
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
