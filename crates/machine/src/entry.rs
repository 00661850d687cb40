//! What is at a path: one entry of a directory, or the index of a whole tree.

use std::{ffi::OsString, fmt};

use serde::{Deserialize, Serialize};

/// What kind of thing an entry is.
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

/// One thing in a directory; symbolic links are described, not followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// Its name, without directories. `/` for the root.
    pub name: OsString,
    /// What it is.
    pub kind: EntryKind,
    /// Bytes, for a file.
    pub size: u64,
    /// Permission bits, `0o7777` at most.
    pub mode: u32,
    /// Last change of its content: nanoseconds since 1970.
    pub modified_ns: i64,
    /// Owner, as the machine numbers its users.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Where a symbolic link points.
    pub link: Option<OsString>,
}

/// What tells a file that was written since from one that was not, without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Bytes.
    pub size: u64,
    /// Permission bits.
    pub mode: u32,
    /// Last change of its content.
    pub modified_ns: i64,
}

/// What must be at a place for it to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// Nothing.
    Nothing,
    /// A file that looks like this.
    File(Stamp),
}

impl Expected {
    /// Whether that is what was found.
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
    /// How it looks now.
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

/// Whether a scan reads the files it finds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hashes {
    /// Sizes and times only.
    #[default]
    Skip,
    /// Every regular file's SHA-256.
    Sha256,
}

/// What a scan looks at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScanOptions {
    /// Relative paths left out, with everything below them.
    pub skip: Vec<OsString>,
    /// Whether files are read.
    pub hashes: Hashes,
}

/// One thing in a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeEntry {
    /// Relative to the tree's root.
    pub path: OsString,
    /// What is there.
    pub entry: DirEntry,
    /// Its digest, when asked for and a regular file.
    pub sha256: Option<Sha256>,
}

/// Everything below a directory, parents before children, siblings by name. The root itself is not listed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TreeIndex {
    /// The entries.
    pub entries: Vec<TreeEntry>,
}
