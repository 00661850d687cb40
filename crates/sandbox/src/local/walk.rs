//! Reads a tree of the host: each entry once, by handle, with its ignore rules and the manifest's rules for links applied.

use std::{io, os::fd::OwnedFd};

use rustix::{fs::FileType, io::Errno};
use sandbar_host_files::{
    Descend, Dialect, Patterns, Refusal, Rules, Trust, Visitor, WalkEntry, WalkOptions, permissions,
};

use super::TreeOptions;
use crate::{Symlinks, archive::stays_inside, staging::is_leftover};

/// Largest depth of nested directories.
const DEPTH_LIMIT: usize = 128;

/// One item of a tree, in the order of a sorted pre-order walk.
pub(super) enum TreeItem {
    /// A directory and its permission bits.
    Dir { mode: u32 },
    /// A regular file, open for reading.
    File { file: std::fs::File, mode: u32, size: u64, modified: u64 },
    /// A symbolic link that stays inside.
    Link { to: Vec<u8> },
    /// An item that is left out, and why.
    LeftOut(&'static str),
}

/// Why reading a tree failed, and at which path.
pub(super) struct TreeError {
    pub(super) path: Vec<u8>,
    pub(super) reason: String,
}

/// Callback for each item.
type Visit<'a> = &'a mut dyn FnMut(&[u8], TreeItem) -> Result<(), TreeError>;

/// Calls `visit` for everything below `root`, until it fails.
pub(super) fn walk(root: &OwnedFd, options: &TreeOptions, visit: Visit<'_>) -> Result<(), TreeError> {
    let patterns = Patterns::new(&options.ignore).map_err(|reason| TreeError { path: Vec::new(), reason })?;
    let dialect = if options.gitignore { Dialect::GitIgnore } else { Dialect::None };
    let rules = Rules { dialect, trust: Trust::Hint, outer: &[], patterns: Some(&patterns) };
    let limits = WalkOptions { entries: usize::MAX, depth: DEPTH_LIMIT, rules };
    sandbar_host_files::walk(root, &limits, &mut Items { links: options.links, visit })
}

/// Turns the entries of a walk into items.
struct Items<'a> {
    links: Symlinks,
    visit: Visit<'a>,
}

impl Visitor for Items<'_> {
    type Stop = TreeError;

    fn visit(&mut self, entry: &WalkEntry<'_>) -> Result<Descend, TreeError> {
        let path = entry.path;
        if entry.is_ignored {
            return Ok(Descend::Skip);
        }
        let item = match entry.kind {
            _ if is_leftover(entry.name.as_bytes()) => {
                TreeItem::LeftOut("sandbar left it there when it was interrupted")
            }
            FileType::Directory => return Ok(Descend::Into),
            FileType::RegularFile => {
                // Without an error number, the entry is not a regular file any more.
                let failed = |error: io::Error| match error.raw_os_error() {
                    Some(_) => broken(path, error),
                    None => changed(path),
                };
                let (file, stat) = entry.file().map_err(failed)?;
                let (size, modified) = (stat.st_size.unsigned_abs(), stat.st_mtime.unsigned_abs());
                TreeItem::File { file, mode: permissions(&stat), size, modified }
            }
            FileType::Symlink => self.link(path, entry.link().map_err(|error| broken(path, error))?)?,
            _ => TreeItem::LeftOut("it is a FIFO, a socket or a device"),
        };
        (self.visit)(path, item)?;
        Ok(Descend::Skip)
    }

    fn enter(&mut self, path: &[u8], dir: &OwnedFd) -> Result<(), TreeError> {
        let stat = rustix::fs::fstat(dir).map_err(|error| broken(path, error.into()))?;
        (self.visit)(path, TreeItem::Dir { mode: permissions(&stat) })
    }

    fn unreadable(&mut self, path: &[u8], error: io::Error) -> Result<(), TreeError> {
        Err(broken(path, error))
    }

    fn refused(&self, refusal: Refusal) -> TreeError {
        let (path, reason) = match refusal {
            Refusal::Rules(error) => (error.path.into_os_string().into_encoded_bytes(), "cannot follow its patterns"),
            Refusal::TooManyEntries => (Vec::new(), "has too many entries"),
        };
        TreeError { path, reason: reason.to_owned() }
    }
}

impl Items<'_> {
    fn link(&self, path: &[u8], to: Vec<u8>) -> Result<TreeItem, TreeError> {
        let depth = path.iter().filter(|byte| **byte == b'/').count();
        match (stays_inside(&to, depth), self.links) {
            (_, Symlinks::Drop) => return Ok(TreeItem::LeftOut("it is a symbolic link")),
            (true, Symlinks::Preserve | Symlinks::Reject) => return Ok(TreeItem::Link { to }),
            (false, Symlinks::Preserve) => {
                return Ok(TreeItem::LeftOut("it is a symbolic link that leads out of the tree"));
            }
            (false, Symlinks::Reject) => {}
        }
        let to = String::from_utf8_lossy(&to).into_owned();
        let reason = format!(
            "is a symbolic link that leads out of the tree, to {to:?}; \"symlinks\": \"preserve\" leaves it out"
        );
        Err(TreeError { path: path.to_vec(), reason })
    }
}

pub(super) fn changed(path: &[u8]) -> TreeError {
    TreeError {
        path: path.to_vec(),
        reason: "path_changed_during_copy: it changed while it was being copied".to_owned(),
    }
}

fn broken(path: &[u8], error: io::Error) -> TreeError {
    let swapped = [Errno::NOENT, Errno::LOOP, Errno::NOTDIR].map(Errno::raw_os_error);
    if error.raw_os_error().is_some_and(|code| swapped.contains(&code)) {
        return changed(path);
    }
    TreeError { path: path.to_vec(), reason: error.to_string() }
}
