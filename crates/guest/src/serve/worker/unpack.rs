//! Unpacks an archive below a directory: every member is placed by handle, and none can land elsewhere.

use std::{
    collections::{BTreeMap, HashMap},
    ffi::OsStr,
    fs::File,
    io::{self, Read},
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    rc::Rc,
};

use rustix::{
    fs::{AtFlags, Mode, Timespec, Timestamps, UTIME_OMIT, futimens, unlinkat},
    io::Errno,
};
use sandbar_guest::protocol::FailKind;
use tar::{Archive, Entry, EntryType};

use super::{
    archive_pipe::ArchivePipe,
    job::{FileTree, make_dirs, split},
};
use crate::serve::files::{Answer, Fail, give_dir};
use crate::{
    handles::{NEW_FILE, set_mode},
    remove::remove_tree,
};

/// Most directories kept open, because the next member probably goes into one of them.
const PARENTS: usize = 64;

/// Unpacks everything, or stops at the first member that must not be unpacked. Directories in the archive get the
/// group, if one is given, even if they existed before. Changes this process's umask.
pub(crate) fn unpack(tree: FileTree, archive_pipe: ArchivePipe, group: Option<u32>, most: Option<u64>) -> Answer<()> {
    let mut archive = Archive::new(&archive_pipe);
    // Files are created with exactly their permissions.
    rustix::process::umask(Mode::empty());
    let mut place = Destination { tree, parents: HashMap::new(), archive_pipe: &archive_pipe, room: most };
    let mut dir_modes = BTreeMap::new();
    for entry in archive.entries()? {
        let mut entry = entry.map_err(malformed)?;
        let Some(path) = relative(&entry.path_bytes())? else { continue };
        match place.member(&mut entry, &path) {
            Ok(Some(mode)) => drop(dir_modes.insert(path, mode)),
            Ok(None) => {}
            Err(fail) => return Err(named(fail, &path)),
        }
    }
    // Last, and children first: a read-only directory must not block its own members.
    for (path, mode) in dir_modes.into_iter().rev() {
        let dir = place.tree.open(&path, libc::O_RDONLY | libc::O_DIRECTORY)?;
        if let Some(group) = group {
            give_dir(dir.as_fd(), group)?;
        }
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

/// Normalized relative path of a member; `None` for the root itself.
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

/// The directory that members are unpacked into.
struct Destination<'a> {
    tree: FileTree,
    parents: HashMap<Vec<u8>, Rc<OwnedFd>>,
    archive_pipe: &'a ArchivePipe,
    /// Bytes that may still be written; `None` means no limit.
    room: Option<u64>,
}

/// Bytes that a member takes besides its content.
const INODE: u64 = 1024;

impl Destination<'_> {
    /// Unpacks one member; returns the mode of a directory, to be set later.
    fn member(&mut self, entry: &mut Entry<'_, impl Read>, path: &[u8]) -> Answer<Option<u32>> {
        let mode = entry.header().mode().map_err(malformed)? & 0o777;
        let kind = entry.header().entry_type();
        self.take(INODE)?;
        if kind == EntryType::Directory {
            usable(&self.tree, path)?;
            return Ok(Some(mode));
        }
        let (parent, name) = split(path);
        let parent = self.parent(parent)?;
        match kind {
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                self.take(entry.size())?;
                let mut file = self.fresh(&parent, name, mode)?;
                // The bytes of a sparse file are stored differently in the archive.
                match kind {
                    EntryType::GNUSparse => io::copy(entry, &mut file).map(drop),
                    _ => self.archive_pipe.move_out(&mut file, entry.size()),
                }
                .map_err(malformed)?;
                // Archives made on the fly have no modification times.
                if let Ok(seconds @ 1..) = entry.header().mtime() {
                    stamp(&file, seconds);
                }
            }
            EntryType::Symlink => {
                let target = link_name(entry)?;
                self.clear(&parent, name)?;
                rustix::fs::symlinkat(OsStr::from_bytes(&target), &parent, OsStr::from_bytes(name))?;
            }
            EntryType::Link => {
                let target = link_name(entry)?;
                let target =
                    relative(&target)?.ok_or_else(|| Fail::of(FailKind::Archive, "a link points at the root"))?;
                // A copy, so that no file inside shares its data with a file outside.
                let mut source = File::from(self.tree.open(&target, libc::O_RDONLY | libc::O_NONBLOCK)?);
                if !source.metadata()?.is_file() {
                    return Err(Fail::of(FailKind::Archive, "a hard link does not point at a regular file"));
                }
                self.take(source.metadata()?.len())?;
                let mut file = self.fresh(&parent, name, mode)?;
                io::copy(&mut source, &mut file)?;
            }
            other => {
                return Err(Fail::of(FailKind::Archive, format!("it is a {other:?}, which is never unpacked")));
            }
        }
        Ok(None)
    }

    /// Reserves bytes that are about to be written.
    fn take(&mut self, bytes: u64) -> Answer<()> {
        let Some(room) = self.room else { return Ok(()) };
        let left = room.checked_sub(bytes);
        self.room = Some(
            left.ok_or_else(|| Fail::of(FailKind::Full, "the archive does not fit the disk limit of the workspace"))?,
        );
        Ok(())
    }

    /// Opens the parent directory of a member; creates it if it is missing.
    fn parent(&mut self, path: &[u8]) -> Answer<Rc<OwnedFd>> {
        if let Some(known) = self.parents.get(path) {
            return Ok(known.clone());
        }
        if self.parents.len() >= PARENTS {
            self.parents.clear();
        }
        let opened = Rc::new(make_dirs(&self.tree, path)?);
        self.parents.insert(path.to_vec(), opened.clone());
        Ok(opened)
    }

    fn fresh(&mut self, parent: &OwnedFd, name: &[u8], mode: u32) -> Answer<File> {
        let open = || rustix::fs::openat(parent, OsStr::from_bytes(name), NEW_FILE, Mode::from_raw_mode(mode));
        match open() {
            Ok(file) => return Ok(file.into()),
            Err(Errno::EXIST) => self.clear(parent, name)?,
            Err(error) => return Err(error.into()),
        }
        Ok(open()?.into())
    }

    /// Removes whatever has this name.
    fn clear(&mut self, parent: &OwnedFd, name: &[u8]) -> Answer<()> {
        // A directory may be replaced now, so cached handles are no longer trusted.
        self.parents.clear();
        match unlinkat(parent, OsStr::from_bytes(name), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(Errno::ISDIR | Errno::PERM) => Ok(remove_tree(parent.as_fd(), name)?),
            Err(error) => Err(error.into()),
        }
    }
}

/// Creates a directory, or gives its owner access to an existing one: its mode is set at the end anyway.
fn usable(tree: &FileTree, path: &[u8]) -> Answer<()> {
    let held = match tree.open(path, libc::O_PATH | libc::O_DIRECTORY) {
        Ok(held) => held,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return make_dirs(tree, path).map(drop),
        Err(error) => return Err(error.into()),
    };
    let mode = rustix::fs::fstat(&held)?.st_mode & 0o777;
    if mode & 0o700 != 0o700 {
        // Through a handle: a directory that cannot be read cannot be opened. Another user's directory stays as it is,
        // and unpacking into it then fails.
        let _not_ours = set_mode(&held, Mode::from_raw_mode(mode | 0o700));
    }
    Ok(())
}

fn link_name(entry: &Entry<'_, impl Read>) -> Answer<Vec<u8>> {
    let name = entry.link_name_bytes().map(|name| name.into_owned());
    name.ok_or_else(|| Fail::of(FailKind::Archive, "a link has no target"))
}

fn stamp(file: &File, seconds: u64) {
    let Ok(tv_sec) = i64::try_from(seconds) else { return };
    let times = Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec { tv_sec, tv_nsec: 0 },
    };
    let _only_a_time = futimens(file, &times);
}
