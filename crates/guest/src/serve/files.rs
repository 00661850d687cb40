//! File operations through handles: no path is resolved twice, and no link is followed that should not be.

pub(super) mod access;

use std::{
    ffi::{CString, OsStr},
    fs::File,
    io::{self, Write},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
};

use rustix::{
    fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, Stat},
    io::Errno,
};
use sandbar_guest::protocol::{At, Expected, FailKind, Kind, Record};

use crate::{
    handles::{NEW_FILE, names, set_mode},
    identity::User,
    sys::{
        files::{BENEATH, NO_MAGICLINKS, open_how, set_fs_group},
        security::Token,
    },
};

/// Why a request failed, as the host is told.
#[derive(Debug)]
pub(crate) struct Fail {
    pub(crate) kind: FailKind,
    pub(crate) errno: i32,
    pub(crate) message: String,
}

impl<E: Into<io::Error>> From<E> for Fail {
    fn from(error: E) -> Self {
        let error = error.into();
        Self { kind: FailKind::Errno, errno: error.raw_os_error().unwrap_or(libc::EIO), message: plain(&error) }
    }
}

/// Text of a system error without its number.
pub(crate) fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    text.split_once(" (os error").map(|(words, _)| words.to_owned()).unwrap_or(text)
}

impl Fail {
    pub(crate) fn of(kind: FailKind, message: impl Into<String>) -> Self {
        Self { kind, errno: 0, message: message.into() }
    }
}

pub(crate) type Answer<T> = Result<T, Fail>;

/// Opens paths with the guest's token.
#[derive(Clone, Copy)]
pub(crate) struct Files(pub(crate) Token);

impl Files {
    /// Opens a path. Symbolic links are followed, but no magic links, and none out of `beneath`.
    pub(crate) fn open(self, at: &At, flags: i32) -> io::Result<OwnedFd> {
        let Some(root) = &at.beneath else {
            return open_how(CWD, &CString::new(at.path.clone())?, flags, NO_MAGICLINKS, self.0);
        };
        let relative = relative_to(&at.path, root).ok_or(Errno::XDEV)?;
        let from_root = if relative.is_empty() { flags } else { libc::O_PATH };
        let dir = open_how(CWD, &CString::new(root.clone())?, from_root | libc::O_DIRECTORY, NO_MAGICLINKS, self.0)?;
        if relative.is_empty() {
            return Ok(dir);
        }
        open_how(dir.as_fd(), &CString::new(relative)?, flags, NO_MAGICLINKS | BENEATH, self.0)
    }

    /// Opens the parent directory of a path; also returns the name in it.
    pub(crate) fn parent(self, at: &At) -> io::Result<(OwnedFd, &OsStr)> {
        let (parent, name) = split(at)?;
        Ok((self.open(&parent, libc::O_PATH | libc::O_DIRECTORY)?, name))
    }

    /// Metadata of a path; a symbolic link is not followed.
    pub(crate) fn stat(self, at: &At) -> Answer<Record> {
        if at.path == b"/" || at.beneath.as_deref() == Some(at.path.as_slice()) {
            let stat = rustix::fs::fstat(self.open(at, libc::O_PATH)?)?;
            let name = at.path.rsplit(|byte| *byte == b'/').next().filter(|name| !name.is_empty());
            return Ok(record(name.unwrap_or(b"/").to_vec(), &stat, None));
        }
        let (dir, name) = self.parent(at)?;
        Ok(describe(dir.as_fd(), name)?)
    }

    /// Entries of a directory; `None` if there are more than `most`.
    pub(crate) fn list(self, at: &At, most: usize) -> Answer<Option<Vec<Record>>> {
        let dir = self.open(at, libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NONBLOCK)?;
        let names = names(dir.as_fd())?;
        if names.len() > most {
            return Ok(None);
        }
        Ok(Some(describe_all(dir.as_fd(), &names)?))
    }

    /// Creates a directory and its missing parents.
    pub(crate) fn make_dir(self, at: &At) -> Answer<OwnedFd> {
        let flags = libc::O_PATH | libc::O_DIRECTORY;
        match self.open(at, flags) {
            Ok(dir) => return Ok(dir),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
        let (parent, name) = split(at)?;
        let parent_dir = self.make_dir(&At { mode: None, ..parent })?;
        let mode = at.mode.unwrap_or(0o755) & 0o777;
        let made = match rustix::fs::mkdirat(&parent_dir, name, Mode::from_raw_mode(mode)) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(error) => return Err(error.into()),
        };
        let dir = self.open(at, flags)?;
        // Restores the bits that the umask removed.
        if made && mode & 0o022 != 0 {
            set_mode(&dir, Mode::from_raw_mode(mode))?;
        }
        Ok(dir)
    }

    /// Renames a file or directory.
    pub(crate) fn rename(self, from: &At, to: &At) -> Answer<()> {
        let (from_dir, from_name) = self.parent(from)?;
        let (to_dir, to_name) = self.parent(to)?;
        rustix::fs::renameat(&from_dir, from_name, &to_dir, to_name).map_err(|errno| match errno {
            // Not a violation of `beneath`: both paths were checked before.
            Errno::XDEV => Fail::of(FailKind::WrongKind, NOT_RENAMED),
            other => other.into(),
        })
    }

    /// Opens a regular file for reading and returns its size; other file types are refused without blocking.
    pub(crate) fn open_regular(self, at: &At) -> Answer<(File, u64)> {
        // O_NONBLOCK: opening a FIFO without a writer would block forever.
        let file = self.open(at, libc::O_RDONLY | libc::O_NONBLOCK | libc::O_NOCTTY)?;
        if rustix::fs::fstatfs(&file)?.f_type == PROC && !is_public(&at.path) {
            return Err(Errno::ACCESS.into());
        }
        let stat = rustix::fs::fstat(&file)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Ok((file.into(), stat.st_size as u64)),
            FileType::Directory => Err(Errno::ISDIR.into()),
            _ => Err(Fail::of(FailKind::WrongKind, "it is not a regular file")),
        }
    }
}

const PROC: i64 = 0x9FA0;
const NOT_RENAMED: &str =
    "it cannot be renamed to another file system, nor to another directory where the layer is landlock 1";

/// Whether a path of `/proc` may be read for the host: a literal path that is not about the guest, whose own files show
/// more than a command could see.
fn is_public(path: &[u8]) -> bool {
    let own = ["/proc/self", "/proc/thread-self", "/proc/1"];
    path.starts_with(b"/proc/")
        && !own
            .iter()
            .any(|own| path.strip_prefix(own.as_bytes()).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/")))
}

/// Splits a path into its directory and last part.
fn split(at: &At) -> io::Result<(At, &OsStr)> {
    let slash = at.path.iter().rposition(|byte| *byte == b'/').ok_or(Errno::INVAL)?;
    let (parent, name) = at.path.split_at(slash);
    let name = name.get(1..).filter(|name| !name.is_empty()).ok_or(Errno::INVAL)?;
    if at.beneath.as_deref() == Some(at.path.as_slice()) {
        return Err(Errno::XDEV.into());
    }
    let parent = if parent.is_empty() { b"/".to_vec() } else { parent.to_vec() };
    Ok((At { path: parent, ..at.clone() }, OsStr::from_bytes(name)))
}

fn relative_to<'a>(path: &'a [u8], root: &[u8]) -> Option<&'a [u8]> {
    if root == b"/" {
        return path.strip_prefix(b"/");
    }
    let rest = path.strip_prefix(root)?;
    if rest.is_empty() { Some(rest) } else { rest.strip_prefix(b"/") }
}

/// Metadata of a directory entry.
fn describe(dir: BorrowedFd<'_>, name: &OsStr) -> io::Result<Record> {
    let stat = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
    let link = match FileType::from_raw_mode(stat.st_mode) {
        FileType::Symlink => Some(rustix::fs::readlinkat(dir, name, Vec::new())?.into_bytes()),
        _ => None,
    };
    Ok(record(name.as_bytes().to_vec(), &stat, link))
}

/// Metadata of directory entries; those that have vanished are skipped.
pub(crate) fn describe_all(dir: BorrowedFd<'_>, names: &[Vec<u8>]) -> io::Result<Vec<Record>> {
    let mut records = Vec::with_capacity(names.len());
    for name in names {
        match describe(dir, OsStr::from_bytes(name)) {
            Ok(record) => records.push(record),
            Err(error) if is_gone(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(records)
}

/// Whether an entry, or a directory on the way to it, is not there any more.
pub(crate) fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR | libc::ELOOP))
}

fn record(path: Vec<u8>, stat: &Stat, link: Option<Vec<u8>>) -> Record {
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Kind::File,
        FileType::Directory => Kind::Dir,
        FileType::Symlink => Kind::Symlink,
        _ => Kind::Other,
    };
    let size = if kind == Kind::File { stat.st_size as u64 } else { 0 };
    let modified_ns = stat.st_mtime.saturating_mul(1_000_000_000).saturating_add(stat.st_mtime_nsec as i64);
    Record {
        path,
        kind,
        size,
        mode: stat.st_mode & 0o7777,
        modified_ns,
        uid: stat.st_uid,
        gid: stat.st_gid,
        link,
        sha256: None,
    }
}

fn changed() -> Fail {
    Fail::of(FailKind::Changed, "the file has changed")
}

/// Whether a file is in the expected state.
fn is_there(dir: BorrowedFd<'_>, name: &OsStr, expected: Expected) -> io::Result<bool> {
    match describe(dir, name) {
        Ok(found) => {
            Ok(found.kind == Kind::File && expected == Expected::File(found.size, found.mode, found.modified_ns))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(expected == Expected::Nothing),
        Err(error) => Err(error),
    }
}

/// Refuses to replace another user's file if the user could not write to it: write access to a directory does not imply
/// write access to its files.
fn may_change(dir: BorrowedFd<'_>, name: &OsStr, stat: &Stat, user: &User) -> Answer<()> {
    if stat.st_uid == user.uid {
        return Ok(());
    }
    let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    match rustix::fs::openat(dir, name, flags, Mode::empty()) {
        // A running program cannot be written to, but it can be replaced.
        Ok(_) | Err(Errno::TXTBSY | Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// A change of a file's group.
#[derive(Clone, Copy)]
struct Giving {
    from: u32,
    to: u32,
}

impl Giving {
    fn give(self, file: &File) -> Answer<()> {
        if rustix::fs::fstat(file)?.st_gid == self.to {
            return Ok(());
        }
        // A user that may write to a file may replace it and keep its group, even a group that the user is not in.
        set_fs_group(self.to);
        let given = rustix::fs::fchown(file, None, Some(Gid::from_raw(self.to)));
        set_fs_group(self.from);
        Ok(given?)
    }
}

/// Changes the group of a directory, as its owner.
pub(crate) fn give_dir(dir: BorrowedFd<'_>, gid: u32) -> Answer<()> {
    if rustix::fs::fstat(dir)?.st_gid != gid {
        rustix::fs::chownat(dir, "", None, Some(Gid::from_raw(gid)), AtFlags::EMPTY_PATH)?;
    }
    Ok(())
}

/// A file being replaced: bytes go to a temporary file in the same directory, which is renamed at the end.
pub(crate) struct Replacement {
    dir: OwnedFd,
    name: Vec<u8>,
    temporary: String,
    file: File,
    mode: u32,
    group: Option<Giving>,
    expected: Option<Expected>,
    done: bool,
}

impl Replacement {
    /// Starts to replace a file; the user's identity must be set.
    pub(crate) fn begin(files: Files, at: &At, user: Option<&User>) -> Answer<Self> {
        let (parent, name) = split(at)?;
        if let Some(expected) = at.expected {
            let there = match files.parent(at) {
                Ok((dir, name)) => is_there(dir.as_fd(), name, expected)?,
                // Without a directory there is no file, and no directory is created for a file that should exist.
                Err(error) if error.kind() == io::ErrorKind::NotFound => expected == Expected::Nothing,
                Err(error) => return Err(error.into()),
            };
            if !there {
                return Err(changed());
            }
        }
        let dir = files.make_dir(&At { mode: None, ..parent })?;
        let existing = match rustix::fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Some(stat),
            Err(Errno::NOENT) => None,
            Err(error) => return Err(error.into()),
        };
        match existing.as_ref().map(|stat| FileType::from_raw_mode(stat.st_mode)) {
            None | Some(FileType::RegularFile) => {}
            Some(FileType::Symlink) => return Err(Fail::of(FailKind::Symlink, "it is a symbolic link")),
            Some(FileType::Directory) => return Err(Errno::ISDIR.into()),
            Some(_) => return Err(Fail::of(FailKind::WrongKind, "it is not a regular file")),
        }
        if let (Some(stat), Some(user)) = (&existing, user) {
            may_change(dir.as_fd(), name, stat, user)?;
        }
        let group = match (user, &existing) {
            (Some(user), _) if at.group.is_some() => Some(Giving { from: user.gid, to: user.gid }),
            (Some(user), Some(stat)) => Some(Giving { from: user.gid, to: stat.st_gid }),
            _ => None,
        };
        let mode = at.mode.or(existing.map(|stat| stat.st_mode)).unwrap_or(0o644) & 0o777;
        let random = Token::random()?;
        let temporary = format!(".sandbar-{:016x}", random.0[0]);
        let file = rustix::fs::openat(&dir, temporary.as_str(), NEW_FILE, Mode::from_raw_mode(0o600))?;
        Ok(Self {
            dir,
            name: name.as_bytes().to_vec(),
            temporary,
            file: file.into(),
            mode,
            group,
            expected: at.expected,
            done: false,
        })
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> Answer<()> {
        Ok(self.file.write_all(bytes)?)
    }

    /// Renames the temporary file to its final name.
    pub(crate) fn finish(&mut self) -> Answer<()> {
        if let Some(group) = self.group {
            group.give(&self.file)?;
        }
        rustix::fs::fchmod(&self.file, Mode::from_raw_mode(self.mode))?;
        let name = OsStr::from_bytes(&self.name);
        if let Some(expected) = self.expected
            && !is_there(self.dir.as_fd(), name, expected)?
        {
            return Err(changed());
        }
        match rustix::fs::renameat(&self.dir, self.temporary.as_str(), &self.dir, name) {
            Ok(()) => self.done = true,
            // The name is a mount point, which cannot be replaced, only overwritten.
            Err(Errno::BUSY) => self.fill()?,
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    fn fill(&self) -> Answer<()> {
        let flags = OFlags::WRONLY | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let target = rustix::fs::openat(&self.dir, OsStr::from_bytes(&self.name), flags, Mode::empty())?;
        let read = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let source = rustix::fs::openat(&self.dir, self.temporary.as_str(), read, Mode::empty())?;
        io::copy(&mut File::from(source), &mut File::from(target))?;
        Ok(())
    }
}

impl Drop for Replacement {
    fn drop(&mut self) {
        if !self.done {
            let _best_effort = rustix::fs::unlinkat(&self.dir, self.temporary.as_str(), AtFlags::empty());
        }
    }
}
