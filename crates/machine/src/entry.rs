//! Descriptions of files: one directory entry, or the index of a whole tree.

use std::{ffi::OsString, fmt};

use serde::{Deserialize, Serialize};

/// Type of a directory entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A directory.
    Dir,
    /// A symbolic link.
    Symlink,
    /// A FIFO, socket or device.
    Other,
}

/// One directory entry. A symbolic link is described, not followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// File name without directories; `/` for the root.
    pub name: OsString,
    /// Type of the entry.
    pub kind: EntryKind,
    /// Size in bytes of a regular file; 0 for every other kind.
    pub size: u64,
    /// Permission bits, at most `0o7777`.
    pub mode: u32,
    /// Modification time in nanoseconds since 1970. The precision depends on the machine and can be whole seconds.
    pub modified_ns: i64,
    /// Owner's uid on the machine.
    pub uid: u32,
    /// Group's gid on the machine.
    pub gid: u32,
    /// Target of a symbolic link.
    pub link: Option<OsString>,
}

/// Metadata that shows whether a file was written since it was last read, without reading it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Size in bytes.
    pub size: u64,
    /// Permission bits.
    pub mode: u32,
    /// Modification time in nanoseconds since 1970.
    pub modified_ns: i64,
}

/// Condition for a write: what must be at the path, see [`Target::expected`](crate::Target::expected).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// The path does not exist.
    Nothing,
    /// A regular file with this metadata.
    File(Stamp),
}

impl Expected {
    /// Whether the result of a `stat` meets the condition.
    #[must_use]
    pub fn is(&self, found: Option<&DirEntry>) -> bool {
        match (self, found) {
            (Self::Nothing, None) => true,
            (Self::File(stamp), Some(entry)) => entry.kind == EntryKind::File && entry.stamp() == *stamp,
            _ => false,
        }
    }
}

impl DirEntry {
    /// Metadata for [`Expected::File`].
    #[must_use]
    pub fn stamp(&self) -> Stamp {
        Stamp { size: self.size, mode: self.mode, modified_ns: self.modified_ns }
    }
}

/// A SHA-256 digest.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Sha256(pub [u8; 32]);

impl fmt::Display for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Whether a scan reads the contents of files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hashes {
    /// Read metadata only.
    #[default]
    Skip,
    /// Compute the SHA-256 of every regular file.
    Sha256,
}

/// Options of a scan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScanOptions {
    /// Paths to leave out, with everything below them, relative to the root of the scan. They are not patterns.
    pub skip: Vec<OsString>,
    /// Whether to read the contents of files.
    pub hashes: Hashes,
}

/// One entry of a [`TreeIndex`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeEntry {
    /// Path relative to the root of the scan.
    pub path: OsString,
    /// Description of the entry.
    pub entry: DirEntry,
    /// Digest of a regular file, if [`Hashes::Sha256`] was requested.
    pub sha256: Option<Sha256>,
}

/// All entries below a directory: parents before children, siblings sorted by the bytes of their names. The root itself is not
/// listed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TreeIndex {
    /// Entries in that order.
    pub entries: Vec<TreeEntry>,
}
