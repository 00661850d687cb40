//! A tree behind one open directory: everything in it is reached by handle, and no link is ever followed.

use std::{
    ffi::OsStr,
    fs::File,
    io::{self, Read},
    iter,
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
};

use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat},
    io::Errno,
};

/// How a directory is opened to be gone through.
pub(crate) const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// How a file is opened to be read. Nothing that turns out to be something else is waited for.
pub(crate) const READING: OFlags =
    OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOFOLLOW).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// The tree.
#[derive(Debug)]
pub(crate) struct Beneath {
    root: OwnedFd,
}

impl Beneath {
    /// The tree at this path, whose last part may be a link only if the caller resolved it.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { root: rustix::fs::open(path, DIRECTORY, Mode::empty())? })
    }

    pub(crate) fn root(&self) -> &OwnedFd {
        &self.root
    }

    /// Opens what is at a relative path, with every part of it a real name: no links, no `..`.
    pub(crate) fn open_at(&self, path: &[u8], flags: OFlags) -> io::Result<OwnedFd> {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let (mut dir, mut rest) = (None::<OwnedFd>, path);
        loop {
            let from = dir.as_ref().map_or(self.root.as_fd(), AsFd::as_fd);
            match rustix::fs::openat2(from, rest, flags | OFlags::CLOEXEC, Mode::empty(), resolve) {
                // Too long for one call, or a kernel or a filter that does not have it: one part after the other.
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

    /// The directory that a path's last name is in.
    pub(crate) fn parent(&self, path: &[u8]) -> io::Result<OwnedFd> {
        match parent_of(path) {
            Some(parent) => self.open_at(parent, DIRECTORY),
            None => Ok(self.root.try_clone()?),
        }
    }

    /// A regular file, open for reading, and what it is.
    pub(crate) fn file(&self, path: &[u8]) -> io::Result<(File, Stat)> {
        regular(self.open_at(path, READING)?)
    }

    /// What is at a path, if anything; its parents must be directories.
    pub(crate) fn stat(&self, path: &[u8]) -> io::Result<Option<Stat>> {
        let found = self.parent(path).and_then(|dir| Ok(stat_in(&dir, name_of(path))?));
        match found {
            Ok(stat) => Ok(Some(stat)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Where a link leads.
    pub(crate) fn link(&self, path: &[u8]) -> io::Result<Vec<u8>> {
        Ok(rustix::fs::readlinkat(self.parent(path)?, name_of(path), Vec::new())?.into_bytes())
    }
}

/// A name that is only a name.
fn plain(name: &[u8]) -> io::Result<&[u8]> {
    match name {
        b"" | b"." | b".." => Err(io::ErrorKind::InvalidInput.into()),
        name => Ok(name),
    }
}

pub(crate) fn stat_in(dir: &impl AsFd, name: &[u8]) -> rustix::io::Result<Stat> {
    rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)
}

/// What was opened, if it is a regular file.
pub(crate) fn regular(opened: OwnedFd) -> io::Result<(File, Stat)> {
    let stat = rustix::fs::fstat(&opened)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(io::Error::other("it is not a regular file any more"));
    }
    Ok((opened.into(), stat))
}

/// At most so many bytes of a file.
pub(crate) fn read_up_to(file: File, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(limit).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The path without its last name.
pub(crate) fn parent_of(path: &[u8]) -> Option<&[u8]> {
    path.iter().rposition(|byte| *byte == b'/').map(|slash| &path[..slash])
}

/// A path's last name.
pub(crate) fn name_of(path: &[u8]) -> &[u8] {
    path.iter().rposition(|byte| *byte == b'/').map_or(path, |slash| &path[slash + 1..])
}

/// A path, and every directory it is in, the tree's root at last.
pub(crate) fn at_and_above(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let above = iter::successors(Some(path), |path| parent_of(path));
    above.chain((!path.is_empty()).then_some(&path[..0]))
}

pub(crate) fn as_path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn a_link_is_never_followed_wherever_it_stands_in_a_path() {
        let temp = tempfile::tempdir().unwrap();
        let at = |name: &str| temp.path().join(name);
        fs::create_dir_all(at("tree/dir")).unwrap();
        fs::create_dir(at("outside")).unwrap();
        fs::write(at("outside/secret"), "s").unwrap();
        fs::write(at("tree/dir/file"), "f").unwrap();
        symlink("../outside", at("tree/out")).unwrap();
        symlink("dir", at("tree/in")).unwrap();
        symlink("../../outside/secret", at("tree/dir/secret")).unwrap();
        let tree = Beneath::open(&at("tree")).unwrap();
        assert_eq!(read_up_to(tree.file(b"dir/file").unwrap().0, 9).unwrap(), b"f");
        for path in
            ["out/secret", "in/file", "dir/secret", "../outside/secret", "dir/../../outside/secret", "/etc/passwd"]
        {
            // A naive reader gets there.
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
        assert!(Beneath::open(temp.path()).unwrap().file(path.as_bytes()).is_ok());
    }
}
