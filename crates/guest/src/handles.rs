//! File access by handle that several parts of the guest share.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd},
};

use rustix::fs::{AtFlags, CWD, Mode, OFlags};

/// Flags for files that must not exist yet.
pub(crate) const NEW_FILE: OFlags =
    OFlags::WRONLY.union(OFlags::CREATE).union(OFlags::EXCL).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The names in a directory.
pub(crate) fn names(dir: BorrowedFd<'_>) -> io::Result<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(name.to_vec());
        }
    }
    Ok(names)
}

/// Path that leads to an open file, whatever name the file has by now.
pub(crate) fn path_of(file: impl AsFd) -> String {
    format!("/proc/self/fd/{}", file.as_fd().as_raw_fd())
}

/// Sets the mode of a file that is open as a path only, which `fchmod` refuses. Not by name: the name may belong to
/// another file by now.
pub(crate) fn set_mode(file: impl AsFd, mode: Mode) -> rustix::io::Result<()> {
    rustix::fs::chmodat(CWD, path_of(file), mode, AtFlags::empty())
}

/// Points the standard descriptors to `/dev/null`: not the host's, and never free for reuse.
pub(crate) fn occupy_stdio() -> io::Result<()> {
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    Ok(())
}
