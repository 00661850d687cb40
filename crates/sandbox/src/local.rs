//! Copies files of the host into a workspace: opens them by handle below a trusted directory, reads them once, hashes them.

mod pieces;
mod read;
mod roots;
#[cfg(test)]
mod tests;
mod walk;

pub(crate) use read::{Feed, READER_GONE, file, tree};
pub(crate) use roots::Roots;

use crate::Symlinks;

/// Options for reading a tree.
#[derive(Clone, Debug)]
pub(crate) struct TreeOptions {
    /// Patterns in `.gitignore` syntax.
    pub(crate) ignore: Vec<String>,
    /// Whether the tree's own `.gitignore` files apply too.
    pub(crate) gitignore: bool,
    /// How links are handled.
    pub(crate) links: Symlinks,
    /// Limit of all files together, in bytes.
    pub(crate) max_bytes: u64,
    /// Number of reading threads.
    pub(crate) files: usize,
}

/// Files that were read, and files that were left out.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// Every file: its path below the tree's root, its size in bytes, its digest.
    pub(crate) files: Vec<(Vec<u8>, u64, sandbar_machine::Sha256)>,
    /// Paths that were left out, and why.
    pub(crate) left_out: Vec<(Vec<u8>, &'static str)>,
}
