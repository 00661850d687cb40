//! A directory tree behind one open handle: every path in it is opened beneath that handle, and no link is followed.

use std::{
    ffi::{CString, OsStr},
    fs::File,
    io::{self, Read},
    iter,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
};

use rustix::{
    fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat},
    io::Errno,
};

/// Flags to open a directory for listing.
pub const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Flags to open a file for reading. Opening a pipe or a device by mistake does not block.
pub const READING: OFlags =
    OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOFOLLOW).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// A directory tree whose paths cannot lead out of it.
#[derive(Debug)]
pub struct ConfinedDir {
    root: OwnedFd,
}

impl ConfinedDir {
    /// The tree at this path. The last component must not be a link.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { root: rustix::fs::open(path, DIRECTORY, Mode::empty())? })
    }

    /// The handle of the tree's root.
    pub fn root(&self) -> &OwnedFd {
        &self.root
    }

    /// Opens a relative path; links and `..` are refused in every component.
    pub fn open_at(&self, path: &[u8], flags: OFlags) -> io::Result<OwnedFd> {
        let (mut dir, mut rest) = (None::<OwnedFd>, path);
        loop {
            let from = dir.as_ref().map_or(self.root.as_fd(), AsFd::as_fd);
            match open_beneath(from, rest, flags | OFlags::CLOEXEC) {
                // Path too long, or the system call is missing or filtered: open one component after the other.
                Err(Errno::NAMETOOLONG | Errno::NOSYS | Errno::PERM) => {}
                opened => return Ok(opened?),
            }
            let Some(slash) = rest.iter().position(|byte| *byte == b'/') else {
                return Ok(rustix::fs::openat(from, plain(rest)?, flags | OFlags::NOFOLLOW, Mode::empty())?);
            };
            let next = rustix::fs::openat(from, plain(&rest[..slash])?, DIRECTORY, Mode::empty())?;
            (dir, rest) = (Some(next), &rest[slash + 1..]);
        }
    }

    /// The parent directory of a path.
    pub fn parent(&self, path: &[u8]) -> io::Result<OwnedFd> {
        match parent_of(path) {
            Some(parent) => self.open_at(parent, DIRECTORY),
            None => Ok(self.root.try_clone()?),
        }
    }

    /// Opens a regular file for reading.
    pub fn file(&self, path: &[u8]) -> io::Result<(File, Stat)> {
        regular(self.open_at(path, READING)?)
    }

    /// The metadata of a path, or `None` if it does not exist. Every parent must be a directory.
    pub fn stat(&self, path: &[u8]) -> io::Result<Option<Stat>> {
        let found = self.parent(path).and_then(|dir| Ok(stat_in(&dir, name_of(path))?));
        match found {
            Ok(stat) => Ok(Some(stat)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The target of a symbolic link.
    pub fn link(&self, path: &[u8]) -> io::Result<Vec<u8>> {
        Ok(rustix::fs::readlinkat(self.parent(path)?, name_of(path), Vec::new())?.into_bytes())
    }
}

impl From<OwnedFd> for ConfinedDir {
    /// The tree below an open directory.
    fn from(root: OwnedFd) -> Self {
        Self { root }
    }
}

impl AsFd for ConfinedDir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }
}

#[cfg(target_os = "linux")]
fn open_beneath(dir: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> rustix::io::Result<OwnedFd> {
    use rustix::fs::ResolveFlags;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(dir, path, flags, Mode::empty(), resolve)
}

#[cfg(not(target_os = "linux"))]
fn open_beneath(_dir: BorrowedFd<'_>, _path: &[u8], _flags: OFlags) -> rustix::io::Result<OwnedFd> {
    Err(Errno::NOSYS)
}

/// Refuses names that are not plain path components.
fn plain(name: &[u8]) -> io::Result<&[u8]> {
    match name {
        b"" | b"." | b".." => Err(io::ErrorKind::InvalidInput.into()),
        name => Ok(name),
    }
}

/// The metadata of a name in an open directory; a link is not followed.
pub fn stat_in(dir: &impl AsFd, name: &[u8]) -> rustix::io::Result<Stat> {
    rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)
}

/// Refuses an open handle that is not a regular file.
pub fn regular(opened: OwnedFd) -> io::Result<(File, Stat)> {
    let stat = rustix::fs::fstat(&opened)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(io::Error::other("it is not a regular file any more"));
    }
    Ok((opened.into(), stat))
}

/// The permission bits, without the set-user-id, set-group-id and sticky bits.
pub fn permissions(stat: &Stat) -> u32 {
    // The width of `st_mode` depends on the system.
    #[cfg(target_os = "linux")]
    let mode = stat.st_mode;
    #[cfg(not(target_os = "linux"))]
    let mode = u32::from(stat.st_mode);
    mode & 0o777
}

/// The names in a directory and their types, in the order of the file system.
pub(crate) fn names(dir: &impl AsFd) -> io::Result<impl Iterator<Item = io::Result<(CString, FileType)>>> {
    let entries = Dir::read_from(dir)?;
    Ok(entries.filter_map(|entry| match entry {
        Ok(entry) if matches!(entry.file_name().to_bytes(), b"." | b"..") => None,
        Ok(entry) => Some(Ok((entry.file_name().to_owned(), entry.file_type()))),
        Err(error) => Some(Err(error.into())),
    }))
}

/// Reads at most `limit` bytes of a file.
pub fn read_up_to(file: File, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(limit).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The path without its last component.
pub fn parent_of(path: &[u8]) -> Option<&[u8]> {
    path.iter().rposition(|byte| *byte == b'/').map(|slash| &path[..slash])
}

/// The last component of a path.
pub fn name_of(path: &[u8]) -> &[u8] {
    path.iter().rposition(|byte| *byte == b'/').map_or(path, |slash| &path[slash + 1..])
}

/// A path and its ancestors, up to the empty path of the root.
pub fn at_and_above(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let above = iter::successors(Some(path), |path| parent_of(path));
    above.chain((!path.is_empty()).then_some(&path[..0]))
}

/// The bytes of a path, as a path.
pub fn as_path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn a_link_is_not_followed_in_any_component_of_a_path() {
        let temp = tempfile::tempdir().unwrap();
        let at = |name: &str| temp.path().join(name);
        fs::create_dir_all(at("tree/dir")).unwrap();
        fs::create_dir(at("outside")).unwrap();
        fs::write(at("outside/secret"), "s").unwrap();
        fs::write(at("tree/dir/file"), "f").unwrap();
        symlink("../outside", at("tree/out")).unwrap();
        symlink("dir", at("tree/in")).unwrap();
        symlink("../../outside/secret", at("tree/dir/secret")).unwrap();
        let tree = ConfinedDir::open(&at("tree")).unwrap();
        assert_eq!(read_up_to(tree.file(b"dir/file").unwrap().0, 9).unwrap(), b"f");
        for path in
            ["out/secret", "in/file", "dir/secret", "../outside/secret", "dir/../../outside/secret", "/etc/passwd"]
        {
            // Positive control: a plain read follows the link.
            assert!(fs::read(at("tree").join(path)).is_ok(), "{path}");
            assert!(tree.file(path.as_bytes()).is_err(), "{path}");
        }
        assert_eq!(tree.link(b"out").unwrap(), b"../outside");
        assert!(tree.stat(b"dir/none").unwrap().is_none() && tree.stat(b"out/secret").is_err());
    }

    #[test]
    fn a_path_longer_than_the_kernel_takes_is_walked() {
        let temp = tempfile::tempdir().unwrap();
        let mut dir: OwnedFd = File::open(temp.path()).unwrap().into();
        let name = "n".repeat(200);
        for _ in 0..30 {
            rustix::fs::mkdirat(&dir, name.as_str(), Mode::from_raw_mode(0o700)).unwrap();
            dir = rustix::fs::openat(&dir, name.as_str(), DIRECTORY, Mode::empty()).unwrap();
        }
        let flags = OFlags::CREATE | OFlags::WRONLY;
        rustix::fs::openat(&dir, "file", flags, Mode::from_raw_mode(0o600)).unwrap();
        let path = format!("{}file", format!("{name}/").repeat(30));
        assert!(ConfinedDir::open(temp.path()).unwrap().file(path.as_bytes()).is_ok());
    }
}
