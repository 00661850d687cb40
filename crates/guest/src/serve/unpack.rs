//! Unpacking an archive below a directory: every member is put in place by handle, and none can land elsewhere.

use std::{
    ffi::OsStr,
    fs::File,
    io::{self, Read},
    os::{fd::AsFd, unix::ffi::OsStrExt},
};

use rustix::{
    fs::{AtFlags, Mode, Timespec, Timestamps, UTIME_OMIT, futimens, unlinkat},
    io::Errno,
};
use sandbar_guest::protocol::FailKind;
use tar::{Archive, Entry, EntryType};

use super::{
    files::{Answer, Fail},
    work::{NEW_FILE, Tree, make_dirs, split},
};
use crate::remove::remove_tree;

/// Unpacks everything, or stops at the first member that must not be unpacked.
pub(crate) fn unpack(tree: Tree, input: impl Read) -> Answer<()> {
    let mut archive = Archive::new(input);
    let mut dir_modes = Vec::new();
    for entry in archive.entries()? {
        let mut entry = entry.map_err(malformed)?;
        let Some(path) = relative(&entry.path_bytes())? else { continue };
        match member(&tree, &mut entry, &path) {
            Ok(Some(mode)) => dir_modes.push((path, mode)),
            Ok(None) => {}
            Err(fail) => return Err(named(fail, &path)),
        }
    }
    // Last, and children first: a read-only directory must not stop what goes into it.
    for (path, mode) in dir_modes.into_iter().rev() {
        let dir = tree.open(&path, libc::O_RDONLY | libc::O_DIRECTORY)?;
        rustix::fs::fchmod(&dir, Mode::from_raw_mode(mode))?;
    }
    // The sender may still have padding to write.
    io::copy(&mut archive.into_inner(), &mut io::sink())?;
    Ok(())
}

fn malformed(error: io::Error) -> Fail {
    match error.raw_os_error() {
        Some(_) => error.into(),
        None => Fail::of(FailKind::Archive, format!("the archive is malformed: {error}")),
    }
}

fn named(fail: Fail, path: &[u8]) -> Fail {
    let path = String::from_utf8_lossy(path).into_owned();
    match fail.errno {
        libc::ELOOP | libc::EXDEV => {
            Fail::of(FailKind::Archive, format!("member {path:?} goes through a symbolic link"))
        }
        _ => Fail { message: format!("member {path:?}: {}", fail.message), ..fail },
    }
}

/// A member's path, clean and relative; `None` for the root itself.
fn relative(path: &[u8]) -> Answer<Option<Vec<u8>>> {
    let bad = |why: &str| {
        let path = String::from_utf8_lossy(path);
        Err(Fail::of(FailKind::Archive, format!("member {path:?} {why}")))
    };
    if path.starts_with(b"/") {
        return bad("has an absolute path");
    }
    if path.contains(&0) {
        return bad("has a NUL in its path");
    }
    let mut parts = Vec::new();
    for part in path.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => return bad("climbs out with `..`"),
            name => parts.push(name),
        }
    }
    Ok(if parts.is_empty() { None } else { Some(parts.join(&b'/')) })
}

/// Puts one member in place; the answer is the mode of a directory, to be set later.
fn member(tree: &Tree, entry: &mut Entry<'_, impl Read>, path: &[u8]) -> Answer<Option<u32>> {
    let mode = entry.header().mode().map_err(malformed)? & 0o777;
    let kind = entry.header().entry_type();
    if kind == EntryType::Directory {
        make_dirs(tree, path)?;
        return Ok(Some(mode | 0o700));
    }
    let (parent, name) = split(path);
    let parent = make_dirs(tree, parent)?;
    let place = OsStr::from_bytes(name);
    match kind {
        EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
            let mut file = fresh(&parent, name, mode)?;
            io::copy(entry, &mut file).map_err(malformed)?;
            if let Ok(seconds) = entry.header().mtime() {
                stamp(&file, seconds);
            }
        }
        EntryType::Symlink => {
            let target = entry.link_name_bytes().ok_or_else(|| Fail::of(FailKind::Archive, "a link has no target"))?;
            clear(&parent, name)?;
            rustix::fs::symlinkat(OsStr::from_bytes(&target), &parent, place)?;
        }
        EntryType::Link => {
            let target = entry.link_name_bytes().ok_or_else(|| Fail::of(FailKind::Archive, "a link has no target"))?;
            let target = relative(&target)?.ok_or_else(|| Fail::of(FailKind::Archive, "a link points at the root"))?;
            // A copy, so that no name inside ever shares its bytes with a name outside.
            let mut source = File::from(tree.open(&target, libc::O_RDONLY | libc::O_NONBLOCK)?);
            if !source.metadata()?.is_file() {
                return Err(Fail::of(FailKind::Archive, "a hard link does not point at a regular file"));
            }
            let mut file = fresh(&parent, name, mode)?;
            io::copy(&mut source, &mut file)?;
        }
        other => {
            return Err(Fail::of(FailKind::Archive, format!("it is a {other:?}, which is never unpacked")));
        }
    }
    Ok(None)
}

fn fresh(parent: &impl AsFd, name: &[u8], mode: u32) -> Answer<File> {
    clear(parent, name)?;
    let file = rustix::fs::openat(parent, OsStr::from_bytes(name), NEW_FILE, Mode::from_raw_mode(0o600))?;
    rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))?;
    Ok(file.into())
}

/// Makes the name free.
fn clear(parent: &impl AsFd, name: &[u8]) -> Answer<()> {
    match unlinkat(parent, OsStr::from_bytes(name), AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(Errno::ISDIR | Errno::PERM) => Ok(remove_tree(parent.as_fd(), name)?),
        Err(error) => Err(error.into()),
    }
}

fn stamp(file: &File, seconds: u64) {
    let Ok(tv_sec) = i64::try_from(seconds) else { return };
    let times = Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec { tv_sec, tv_nsec: 0 },
    };
    let _only_a_time = futimens(file, &times);
}
