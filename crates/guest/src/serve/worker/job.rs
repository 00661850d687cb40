//! Long file operations, done in a forked process as the requested user: scan, pack, unpack, remove, long lists.

use std::{
    ffi::{CString, OsStr},
    fs::File,
    io::{self, BufWriter, Read, Write},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
};

use rustix::fs::Mode;
use sandbar_guest::protocol::{At, Kind, Record};
use sha2::{Digest, Sha256};

use super::{archive_pipe::ArchivePipe, unpack::unpack};
use crate::{
    handles::names,
    serve::files::{Answer, Fail, Files, describe_all, is_gone},
};
use crate::{
    remove::remove_tree,
    sys::{
        files::{BENEATH, NO_SYMLINKS, open_how},
        security::Token,
    },
};

/// Task of a worker.
pub(crate) enum Job {
    List(At),
    Scan(At, Vec<Vec<u8>>, Digests),
    Pack(At, Vec<Vec<u8>>),
    /// With the most bytes it may write; `None` means no limit.
    Unpack(At, Option<u64>),
    Remove(At),
}

/// Whether a scan computes digests.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Digests {
    Skip,
    Sha256,
}

impl Job {
    /// Runs the job. Bulk bytes are read from `input`, whose optional second descriptor is a meter of the bytes taken,
    /// and written to `output`.
    pub(crate) fn run(self, files: Files, input: (OwnedFd, Option<OwnedFd>), output: OwnedFd) -> Answer<()> {
        let mut output = BufWriter::with_capacity(64 * 1024, File::from(output));
        match self {
            Self::List(at) => {
                for record in files.list(&at, usize::MAX)?.unwrap_or_default() {
                    send(&mut output, &record)?;
                }
            }
            Self::Scan(at, skip, digests) => scan(files, &at, &skip, digests, &mut output)?,
            Self::Pack(at, skip) => pack(files, &at, &skip, &mut output)?,
            Self::Unpack(at, most) => {
                files.make_dir(&at)?;
                let root = files.open(&at, libc::O_RDONLY | libc::O_DIRECTORY)?;
                // The group that this process has switched to.
                let group = at.group.as_ref().map(|_| rustix::process::getegid().as_raw());
                unpack(FileTree::new(root, files.0), ArchivePipe::new(input.0, input.1), group, most)?;
            }
            Self::Remove(at) => {
                let (dir, name) = files.parent(&at)?;
                remove_tree(dir.as_fd(), name.as_bytes())?;
            }
        }
        Ok(output.flush()?)
    }
}

fn send(output: &mut impl Write, record: &Record) -> io::Result<()> {
    let mut bytes = Vec::new();
    record.encode(&mut bytes);
    output.write_all(&bytes)
}

/// A directory tree, accessed by relative paths that follow no link and cannot leave it.
pub(crate) struct FileTree {
    pub(crate) root: OwnedFd,
    token: Token,
}

impl FileTree {
    pub(crate) fn new(root: OwnedFd, token: Token) -> Self {
        Self { root, token }
    }

    /// Opens a path below the root; the empty path is the root itself.
    pub(crate) fn open(&self, path: &[u8], flags: i32) -> io::Result<OwnedFd> {
        let path = if path.is_empty() { b".".as_slice() } else { path };
        open_how(self.root.as_fd(), &CString::new(path)?, flags, BENEATH | NO_SYMLINKS, self.token)
    }

    fn regular(&self, path: &[u8]) -> io::Result<File> {
        Ok(self.open(path, libc::O_RDONLY | libc::O_NONBLOCK | libc::O_NOCTTY)?.into())
    }
}

/// Calls `visit` for everything below a tree's root, parents first, siblings by name. Files that vanish meanwhile are
/// skipped.
fn walk(tree: &FileTree, skip: &[Vec<u8>], visit: &mut impl FnMut(&FileTree, Record) -> Answer<()>) -> Answer<()> {
    let mut pending = vec![Vec::new()];
    while let Some(dir_path) = pending.pop() {
        let dir = match tree.open(&dir_path, libc::O_RDONLY | libc::O_DIRECTORY) {
            Ok(dir) => dir,
            Err(error) if !dir_path.is_empty() && is_gone(&error) => continue,
            Err(error) => return Err(error.into()),
        };
        let mut below = Vec::new();
        for record in sorted(dir.as_fd())? {
            let path = if dir_path.is_empty() {
                record.path.clone()
            } else {
                [&dir_path, b"/".as_slice(), &record.path].concat()
            };
            if skip.contains(&path) {
                continue;
            }
            if record.kind == Kind::Dir {
                below.push(path.clone());
            }
            visit(tree, Record { path, ..record })?;
        }
        // Popped from the end: reversed, so that the first is next.
        pending.extend(below.into_iter().rev());
    }
    Ok(())
}

fn sorted(dir: BorrowedFd<'_>) -> io::Result<Vec<Record>> {
    let mut names = names(dir)?;
    names.sort_unstable();
    describe_all(dir, &names)
}

fn root_of(files: Files, at: &At) -> Answer<FileTree> {
    Ok(FileTree::new(files.open(at, libc::O_RDONLY | libc::O_DIRECTORY)?, files.0))
}

fn scan(files: Files, at: &At, skip: &[Vec<u8>], digests: Digests, output: &mut impl Write) -> Answer<()> {
    walk(&root_of(files, at)?, skip, &mut |tree, mut record| {
        if digests == Digests::Sha256 && record.kind == Kind::File {
            match tree.regular(&record.path).and_then(digest) {
                Ok(sha256) => record.sha256 = Some(sha256),
                Err(error) if is_gone(&error) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(send(output, &record)?)
    })
}

fn digest(mut file: File) -> io::Result<[u8; 32]> {
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hasher.finalize().into()),
            count => hasher.update(buffer.get(..count).unwrap_or_default()),
        }
    }
}

fn pack(files: Files, at: &At, skip: &[Vec<u8>], output: &mut impl Write) -> Answer<()> {
    let root = root_of(files, at)?;
    let mut archive = tar::Builder::new(output);
    walk(&root, skip, &mut |tree, record| {
        let path = Path::new(OsStr::from_bytes(&record.path));
        let mut header = tar::Header::new_gnu();
        header.set_mode(record.mode & 0o777);
        header.set_uid(u64::from(record.uid));
        header.set_gid(u64::from(record.gid));
        header.set_mtime(u64::try_from(record.modified_ns / 1_000_000_000).unwrap_or_default());
        header.set_size(0);
        match record.kind {
            Kind::Dir => {
                header.set_entry_type(tar::EntryType::Directory);
                archive.append_data(&mut header, path, io::empty())?;
            }
            Kind::Symlink => {
                header.set_entry_type(tar::EntryType::Symlink);
                archive.append_link(&mut header, path, OsStr::from_bytes(&record.link.unwrap_or_default()))?;
            }
            Kind::File => {
                let file = match tree.regular(&record.path) {
                    Ok(file) => file,
                    Err(error) if is_gone(&error) => return Ok(()),
                    Err(error) => return Err(error.into()),
                };
                let size = rustix::fs::fstat(&file)?.st_size as u64;
                header.set_entry_type(tar::EntryType::Regular);
                header.set_size(size);
                // If the file shrinks while it is read, zeros fill it up, so that the next member stays in its
                // position.
                archive.append_data(&mut header, path, file.chain(io::repeat(0)).take(size))?;
            }
            Kind::Other => {}
        }
        Ok(())
    })?;
    Ok(archive.into_inner().map(drop)?)
}

/// Opens a directory below a tree's root and creates missing parts; a link on the path is refused.
pub(crate) fn make_dirs(tree: &FileTree, path: &[u8]) -> Answer<OwnedFd> {
    let flags = libc::O_RDONLY | libc::O_DIRECTORY;
    match tree.open(path, flags) {
        Ok(dir) => return Ok(dir),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error.into()),
    }
    let (parent, name) = split(path);
    let parent = make_dirs(tree, parent)?;
    match rustix::fs::mkdirat(&parent, OsStr::from_bytes(name), Mode::from_raw_mode(0o755)) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(tree.open(path, flags)?)
}

/// Splits a relative path into its directory and last part.
pub(crate) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => (path.get(..slash).unwrap_or_default(), path.get(slash + 1..).unwrap_or_default()),
        None => (b"", path),
    }
}

/// Sends a failure to the server.
pub(crate) fn report(status: &OwnedFd, fail: Fail) {
    use sandbar_guest::protocol::Event;
    let mut bytes = Vec::new();
    // The server reads this only after the worker has ended: a message larger than the pipe would block both forever.
    let message: String = fail.message.chars().take(1024).collect();
    Event::Fail(fail.kind, fail.errno, message).encode(0, &mut bytes);
    let _server_gone = rustix::io::write(status, &bytes);
}
