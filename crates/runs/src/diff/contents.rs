//! Old and new content of files, bounded, for regular files only.

use std::{fs::File, io, os::unix::fs::FileExt};

use sandbar_host_files::{ConfinedDir, as_path, read_up_to};

use crate::{
    index::{Digest, IndexEntry, PathBytes},
    store::RunDir,
};

/// Largest file that is compared line by line.
pub(crate) const TEXT_LIMIT: u64 = 8 << 20;

/// Bytes that are searched for a zero byte.
const SNIFFED: usize = 8000;

/// Whether git takes these bytes for a binary file.
pub(crate) fn is_binary(bytes: &[u8]) -> bool {
    bytes[..bytes.len().min(SNIFFED)].contains(&0)
}

/// The content of one side of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Content {
    Text(Vec<u8>),
    /// Content that cannot be compared by lines.
    Opaque(OpaqueReason),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OpaqueReason {
    Binary,
    TooLarge,
    /// The old content is not stored any more.
    Unknown,
}

impl Content {
    fn of(bytes: Vec<u8>) -> Self {
        if is_binary(&bytes) { Self::Opaque(OpaqueReason::Binary) } else { Self::Text(bytes) }
    }
}

/// The places of both versions.
#[derive(Debug)]
pub(super) struct Versions {
    copy: ConfinedDir,
    stored: Option<File>,
    source: Option<ConfinedDir>,
}

impl Versions {
    pub(super) fn open(run: &RunDir, source: Option<&PathBytes>) -> io::Result<Self> {
        let source = source.and_then(|path| ConfinedDir::open(as_path(&path.0)).ok());
        Ok(Self { copy: ConfinedDir::open(&run.workspace())?, stored: File::open(run.contents_path()).ok(), source })
    }

    /// The content of a path at the start.
    pub(super) fn before(&self, path: &PathBytes, entry: Option<&IndexEntry>) -> Content {
        match entry {
            None | Some(IndexEntry::Dir { .. }) => Content::Text(Vec::new()),
            Some(IndexEntry::Link { to }) => Content::Text(to.0.clone()),
            Some(IndexEntry::File { size: 0, .. }) => Content::Text(Vec::new()),
            Some(IndexEntry::File { size, .. }) if *size > TEXT_LIMIT => Content::Opaque(OpaqueReason::TooLarge),
            Some(IndexEntry::File { size, sha256, at, .. }) => {
                let stored = at.and_then(|at| self.stored_at(at, *size));
                let found = stored.or_else(|| read_up_to(self.source.as_ref()?.file(&path.0).ok()?.0, *size + 1).ok());
                let is_it = |bytes: &Vec<u8>| sha256.is_some_and(|sum| Digest::of(bytes) == sum);
                found.filter(is_it).map_or(Content::Opaque(OpaqueReason::Unknown), Content::of)
            }
        }
    }

    fn stored_at(&self, at: u64, size: u64) -> Option<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(size).ok()?];
        self.stored.as_ref()?.read_exact_at(&mut bytes, at).ok()?;
        Some(bytes)
    }

    /// The content of a path now.
    pub(super) fn now(&self, path: &PathBytes, entry: Option<&IndexEntry>) -> io::Result<Content> {
        Ok(match entry {
            None | Some(IndexEntry::Dir { .. }) => Content::Text(Vec::new()),
            Some(IndexEntry::Link { to }) => Content::Text(to.0.clone()),
            Some(IndexEntry::File { size, .. }) if *size > TEXT_LIMIT => Content::Opaque(OpaqueReason::TooLarge),
            Some(IndexEntry::File { .. }) => {
                let bytes = read_up_to(self.copy.file(&path.0)?.0, TEXT_LIMIT + 1)?;
                // The file may have grown since the comparison.
                if bytes.len() as u64 > TEXT_LIMIT {
                    Content::Opaque(OpaqueReason::TooLarge)
                } else {
                    Content::of(bytes)
                }
            }
        })
    }
}
