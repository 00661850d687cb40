//! A walk through a tree of the host's by directory handles: sorted, without following links, without opening a path twice.

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
    ignored::{Ignored, PATTERN_FILE_LIMIT},
};
use crate::{Symlinks, archive::stays_inside, staging::is_leftover};

/// Directories inside directories; each level holds a descriptor.
const DEPTH_LIMIT: usize = 128;

/// One thing found, in the order of a sorted pre-order walk.
pub(super) enum Found {
    /// A directory and its permission bits.
    Dir { mode: u32 },
    /// A regular file, open for reading.
    File { file: std::fs::File, mode: u32, size: u64, modified: u64 },
    /// A symbolic link that stays inside.
    Link { to: Vec<u8> },
    /// Something that stays behind, and why.
    LeftOut(&'static str),
}

/// Why a walk ended early: where, and what happened.
pub(super) struct Broken {
    pub(super) path: Vec<u8>,
    pub(super) reason: String,
}

/// Who is told about what is found.
type Each<'a> = &'a mut dyn FnMut(&[u8], Found) -> Result<(), Broken>;

/// Tells `each` everything below `root`, until it says stop.
pub(super) fn walk(root: &OwnedFd, options: &TreeOptions, each: Each<'_>) -> Result<(), Broken> {
    let ignored = Ignored::new(&options.ignore).map_err(|reason| Broken { path: Vec::new(), reason })?;
    let mut walk = Walk { options, ignored, each };
    let root = root.try_clone().map_err(|error| broken(b"", error))?;
    walk.directory(root, &mut Vec::new(), 0)
}

struct Walk<'a> {
    options: &'a TreeOptions,
    ignored: Ignored,
    each: Each<'a>,
}

impl Walk<'_> {
    fn directory(&mut self, dir: OwnedFd, path: &mut Vec<u8>, depth: usize) -> Result<(), Broken> {
        if depth > DEPTH_LIMIT {
            return Err(Broken { path: path.clone(), reason: format!("is more than {DEPTH_LIMIT} directories deep") });
        }
        let names = names(&dir, path)?;
        let has_patterns = self.options.gitignore && names.iter().any(|(name, _)| name.as_bytes() == b".gitignore");
        if has_patterns && let Some(text) = pattern_file(&dir) {
            self.ignored.enter(depth, Path::new(OsStr::from_bytes(path)), &text);
        }
        for (name, kind) in names {
            let length = path.len();
            if length > 0 {
                path.push(b'/');
            }
            path.extend_from_slice(name.as_bytes());
            self.one(&dir, (&name, kind), path, depth)?;
            path.truncate(length);
        }
        self.ignored.leave(depth);
        Ok(())
    }

    fn one(
        &mut self,
        dir: &OwnedFd,
        (name, kind): (&CString, FileType),
        path: &mut Vec<u8>,
        depth: usize,
    ) -> Result<(), Broken> {
        // Some file systems do not say it when they are listed.
        let kind = match kind {
            FileType::Unknown => {
                let stat = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW);
                FileType::from_raw_mode(stat.map_err(|error| broken(path, error))?.st_mode)
            }
            known => known,
        };
        if self.ignored.is_ignored(Path::new(OsStr::from_bytes(path)), kind == FileType::Directory) {
            return Ok(());
        }
        if is_leftover(name.as_bytes()) {
            return (self.each)(path, Found::LeftOut("sandbar left it there when it was interrupted"));
        }
        match kind {
            FileType::Directory => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let child = open(dir, name, flags, path)?;
                let stat = still(&child, kind, path)?;
                (self.each)(path, Found::Dir { mode: bits(&stat) })?;
                self.directory(child, path, depth + 1)
            }
            FileType::RegularFile => {
                let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::CLOEXEC;
                let file = open(dir, name, flags, path)?;
                let stat = still(&file, kind, path)?;
                let (size, modified) = (stat.st_size.unsigned_abs(), stat.st_mtime.unsigned_abs());
                (self.each)(path, Found::File { file: file.into(), mode: bits(&stat), size, modified })
            }
            FileType::Symlink => self.link(dir, name, path),
            _ => (self.each)(path, Found::LeftOut("it is a FIFO, a socket or a device")),
        }
    }

    fn link(&mut self, dir: &OwnedFd, name: &CString, path: &[u8]) -> Result<(), Broken> {
        let to = rustix::fs::readlinkat(dir, name, Vec::new()).map_err(|error| broken(path, error))?.into_bytes();
        let depth = path.iter().filter(|byte| **byte == b'/').count();
        match (stays_inside(&to, depth), self.options.links) {
            (_, Symlinks::Drop) => return (self.each)(path, Found::LeftOut("it is a symbolic link")),
            (true, Symlinks::Preserve | Symlinks::Reject) => return (self.each)(path, Found::Link { to }),
            (false, Symlinks::Preserve) => {
                return (self.each)(path, Found::LeftOut("it is a symbolic link that leads out of the tree"));
            }
            (false, Symlinks::Reject) => {}
        }
        let to = String::from_utf8_lossy(&to).into_owned();
        let reason = format!(
            "is a symbolic link that leads out of the tree, to {to:?}; \"symlinks\": \"preserve\" leaves it out"
        );
        Err(Broken { path: path.to_vec(), reason })
    }
}

/// The permission bits; systems disagree about the width of the field they are in.
fn bits(stat: &Stat) -> u32 {
    #[cfg(target_os = "linux")]
    let mode = stat.st_mode;
    #[cfg(not(target_os = "linux"))]
    let mode = u32::from(stat.st_mode);
    mode & 0o777
}

fn names(dir: &OwnedFd, path: &[u8]) -> Result<Vec<(CString, FileType)>, Broken> {
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

fn open(dir: &OwnedFd, name: &CString, flags: OFlags, path: &[u8]) -> Result<OwnedFd, Broken> {
    rustix::fs::openat(dir, name, flags, Mode::empty()).map_err(|error| broken(path, error))
}

/// What was opened must be of the kind that was listed a moment before.
fn still(opened: &impl AsFd, kind: FileType, path: &[u8]) -> Result<Stat, Broken> {
    let stat = rustix::fs::fstat(opened).map_err(|error| broken(path, error))?;
    if FileType::from_raw_mode(stat.st_mode) != kind {
        return Err(changed(path));
    }
    Ok(stat)
}

pub(super) fn changed(path: &[u8]) -> Broken {
    Broken { path: path.to_vec(), reason: "path_changed_during_copy: it changed while it was being copied".to_owned() }
}

fn broken(path: &[u8], error: impl Into<std::io::Error>) -> Broken {
    let error = error.into();
    let swapped = [Errno::NOENT, Errno::LOOP, Errno::NOTDIR].map(Errno::raw_os_error);
    if error.raw_os_error().is_some_and(|code| swapped.contains(&code)) {
        return changed(path);
    }
    Broken { path: path.to_vec(), reason: error.to_string() }
}
