//! What files hold and held, as far as a diff can show it: bounded, and only of regular files.

use std::{fs::File, io, os::unix::fs::FileExt};

use super::{
    beneath::{Beneath, as_path, read_up_to},
    index::{Entry, Name, Sum},
    store::RunDir,
};

/// A larger file is not shown line by line.
pub(super) const TEXT_LIMIT: u64 = 8 << 20;

/// So far a zero byte is looked for, which no text has.
const SNIFFED: usize = 8000;

/// As git tells it.
pub(super) fn is_binary(bytes: &[u8]) -> bool {
    bytes[..bytes.len().min(SNIFFED)].contains(&0)
}

/// What one side of a change holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Content {
    Text(Vec<u8>),
    /// Not text, or too much of it.
    Opaque(Why),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    Binary,
    TooLarge,
    /// It is nowhere to be found any more.
    Unknown,
}

impl Content {
    fn of(bytes: Vec<u8>) -> Self {
        if is_binary(&bytes) { Self::Opaque(Why::Binary) } else { Self::Text(bytes) }
    }
}

/// Where both sides are found.
pub(super) struct Sides {
    pub(super) copy: Beneath,
    kept: Option<File>,
    source: Option<Beneath>,
}

impl Sides {
    pub(super) fn open(run: &RunDir, source: Option<&Name>) -> io::Result<Self> {
        let source = source.and_then(|path| Beneath::open(as_path(&path.0)).ok());
        Ok(Self { copy: Beneath::open(&run.workspace())?, kept: File::open(run.contents_path()).ok(), source })
    }

    /// What was at a path in the beginning.
    pub(super) fn before(&self, path: &Name, entry: Option<&Entry>) -> Content {
        match entry {
            None | Some(Entry::Dir { .. }) => Content::Text(Vec::new()),
            Some(Entry::Link { to }) => Content::Text(to.0.clone()),
            Some(Entry::File { size: 0, .. }) => Content::Text(Vec::new()),
            Some(Entry::File { size, .. }) if *size > TEXT_LIMIT => Content::Opaque(Why::TooLarge),
            Some(Entry::File { size, sha256, at, .. }) => {
                let kept = at.and_then(|at| self.kept_at(at, *size));
                let found = kept.or_else(|| read_up_to(self.source.as_ref()?.file(&path.0).ok()?.0, *size + 1).ok());
                let is_it = |bytes: &Vec<u8>| sha256.is_some_and(|sum| Sum::of(bytes) == sum);
                found.filter(is_it).map_or(Content::Opaque(Why::Unknown), Content::of)
            }
        }
    }

    fn kept_at(&self, at: u64, size: u64) -> Option<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(size).ok()?];
        self.kept.as_ref()?.read_exact_at(&mut bytes, at).ok()?;
        Some(bytes)
    }

    /// What is there now.
    pub(super) fn now(&self, path: &Name, entry: Option<&Entry>) -> io::Result<Content> {
        Ok(match entry {
            None | Some(Entry::Dir { .. }) => Content::Text(Vec::new()),
            Some(Entry::Link { to }) => Content::Text(to.0.clone()),
            Some(Entry::File { size, .. }) if *size > TEXT_LIMIT => Content::Opaque(Why::TooLarge),
            Some(Entry::File { .. }) => {
                let bytes = read_up_to(self.copy.file(&path.0)?.0, TEXT_LIMIT + 1)?;
                // It may have grown since it was looked at.
                if bytes.len() as u64 > TEXT_LIMIT { Content::Opaque(Why::TooLarge) } else { Content::of(bytes) }
            }
        })
    }
}
