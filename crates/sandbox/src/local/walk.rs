//! Walks a tree of the host by directory handles: sorted, without following links, without opening a path twice.

use std::{
    ffi::{CString, OsStr},
    io::Read,
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
};

use rustix::{
    fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat},
    io::Errno,
};

use super::{
    TreeOptions,
    ignore_rules::{IgnoreRules, PATTERN_FILE_LIMIT},
};
use crate::{Symlinks, archive::stays_inside, staging::is_leftover};

/// Largest depth of nested directories; each level holds a descriptor.
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
    let rules = IgnoreRules::new(&options.ignore).map_err(|reason| TreeError { path: Vec::new(), reason })?;
    let mut walk = Walk { options, rules, visit };
    let root = root.try_clone().map_err(|error| broken(b"", error))?;
    walk.directory(root, &mut Vec::new(), 0)
}

struct Walk<'a> {
    options: &'a TreeOptions,
    rules: IgnoreRules,
    visit: Visit<'a>,
}

impl Walk<'_> {
    fn directory(&mut self, dir: OwnedFd, path: &mut Vec<u8>, depth: usize) -> Result<(), TreeError> {
        if depth > DEPTH_LIMIT {
            return Err(TreeError {
                path: path.clone(),
                reason: format!("is more than {DEPTH_LIMIT} directories deep"),
            });
        }
        let names = names(&dir, path)?;
        let has_patterns = self.options.gitignore && names.iter().any(|(name, _)| name.as_bytes() == b".gitignore");
        if has_patterns && let Some(text) = pattern_file(&dir) {
            self.rules.enter(depth, Path::new(OsStr::from_bytes(path)), &text);
        }
        for (name, kind) in names {
            let length = path.len();
            if length > 0 {
                path.push(b'/');
            }
            path.extend_from_slice(name.as_bytes());
            self.entry(&dir, (&name, kind), path, depth)?;
            path.truncate(length);
        }
        self.rules.leave(depth);
        Ok(())
    }

    fn entry(
        &mut self,
        dir: &OwnedFd,
        (name, kind): (&CString, FileType),
        path: &mut Vec<u8>,
        depth: usize,
    ) -> Result<(), TreeError> {
        // Some file systems do not report the type in a directory listing.
        let kind = match kind {
            FileType::Unknown => {
                let stat = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW);
                FileType::from_raw_mode(stat.map_err(|error| broken(path, error))?.st_mode)
            }
            known => known,
        };
        if self.rules.is_ignored(Path::new(OsStr::from_bytes(path)), kind == FileType::Directory) {
            return Ok(());
        }
        if is_leftover(name.as_bytes()) {
            return (self.visit)(path, TreeItem::LeftOut("sandbar left it there when it was interrupted"));
        }
        match kind {
            FileType::Directory => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let child = open(dir, name, flags, path)?;
                let stat = check_kind(&child, kind, path)?;
                (self.visit)(path, TreeItem::Dir { mode: bits(&stat) })?;
                self.directory(child, path, depth + 1)
            }
            FileType::RegularFile => {
                let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::CLOEXEC;
                let file = open(dir, name, flags, path)?;
                let stat = check_kind(&file, kind, path)?;
                let (size, modified) = (stat.st_size.unsigned_abs(), stat.st_mtime.unsigned_abs());
                (self.visit)(path, TreeItem::File { file: file.into(), mode: bits(&stat), size, modified })
            }
            FileType::Symlink => self.link(dir, name, path),
            _ => (self.visit)(path, TreeItem::LeftOut("it is a FIFO, a socket or a device")),
        }
    }

    fn link(&mut self, dir: &OwnedFd, name: &CString, path: &[u8]) -> Result<(), TreeError> {
        let to = rustix::fs::readlinkat(dir, name, Vec::new()).map_err(|error| broken(path, error))?.into_bytes();
        let depth = path.iter().filter(|byte| **byte == b'/').count();
        match (stays_inside(&to, depth), self.options.links) {
            (_, Symlinks::Drop) => return (self.visit)(path, TreeItem::LeftOut("it is a symbolic link")),
            (true, Symlinks::Preserve | Symlinks::Reject) => return (self.visit)(path, TreeItem::Link { to }),
            (false, Symlinks::Preserve) => {
                return (self.visit)(path, TreeItem::LeftOut("it is a symbolic link that leads out of the tree"));
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

/// Permission bits. The width of `st_mode` depends on the system.
fn bits(stat: &Stat) -> u32 {
    #[cfg(target_os = "linux")]
    let mode = stat.st_mode;
    #[cfg(not(target_os = "linux"))]
    let mode = u32::from(stat.st_mode);
    mode & 0o777
}

fn names(dir: &OwnedFd, path: &[u8]) -> Result<Vec<(CString, FileType)>, TreeError> {
    let mut names = Vec::new();
    for entry in Dir::read_from(dir).map_err(|error| broken(path, error))? {
        let entry = entry.map_err(|error| broken(path, error))?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            names.push((entry.file_name().to_owned(), entry.file_type()));
        }
    }
    names.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
    Ok(names)
}

fn pattern_file(dir: &OwnedFd) -> Option<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file: std::fs::File = rustix::fs::openat(dir, ".gitignore", flags, Mode::empty()).ok()?.into();
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut text = Vec::new();
    file.take(PATTERN_FILE_LIMIT).read_to_end(&mut text).ok()?;
    Some(text)
}

fn open(dir: &OwnedFd, name: &CString, flags: OFlags, path: &[u8]) -> Result<OwnedFd, TreeError> {
    rustix::fs::openat(dir, name, flags, Mode::empty()).map_err(|error| broken(path, error))
}

/// Checks that the opened file still has the type that was listed.
fn check_kind(opened: &impl AsFd, kind: FileType, path: &[u8]) -> Result<Stat, TreeError> {
    let stat = rustix::fs::fstat(opened).map_err(|error| broken(path, error))?;
    if FileType::from_raw_mode(stat.st_mode) != kind {
        return Err(changed(path));
    }
    Ok(stat)
}

pub(super) fn changed(path: &[u8]) -> TreeError {
    TreeError {
        path: path.to_vec(),
        reason: "path_changed_during_copy: it changed while it was being copied".to_owned(),
    }
}

fn broken(path: &[u8], error: impl Into<std::io::Error>) -> TreeError {
    let error = error.into();
    let swapped = [Errno::NOENT, Errno::LOOP, Errno::NOTDIR].map(Errno::raw_os_error);
    if error.raw_os_error().is_some_and(|code| swapped.contains(&code)) {
        return changed(path);
    }
    TreeError { path: path.to_vec(), reason: error.to_string() }
}
