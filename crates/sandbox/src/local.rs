//! Files of the host on their way into a workspace: opened by handle below a trusted directory, read once, hashed.

mod ignored;
mod pieces;
mod read;
mod roots;
#[cfg(test)]
mod tests;
mod walk;

pub(crate) use read::{Feed, NOBODY_READS, file, tree};
pub(crate) use roots::Roots;

use crate::Symlinks;

/// How a tree is read.
#[derive(Clone, Debug)]
pub(crate) struct TreeOptions {
    /// Patterns in the language of `.gitignore` files.
    pub(crate) ignore: Vec<String>,
    /// Whether the tree's own `.gitignore` files count too.
    pub(crate) gitignore: bool,
    /// What becomes of links.
    pub(crate) links: Symlinks,
    /// How many bytes may be read in all.
    pub(crate) max_bytes: u64,
    /// How many files may be open at once.
    pub(crate) files: usize,
}

/// What was read, and what was not.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// Every file: its path below the tree's root, its bytes, its digest.
    pub(crate) files: Vec<(Vec<u8>, u64, sandbar_machine::Sha256)>,
    /// What was left out, and why.
    pub(crate) left_out: Vec<(Vec<u8>, &'static str)>,
}
