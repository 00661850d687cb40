//! The removal of a tree that somebody hostile filled: by handles, and through directories that forbid it.

use std::{
    ffi::CString,
    io,
    os::fd::{AsFd, OwnedFd},
    path::Path,
};

use rustix::{
    fs::{AtFlags, CWD, Dir, Mode, OFlags},
    io::Errno,
};

use super::beneath::DIRECTORY;

/// So many directories are held open; what lies deeper is moved up first.
const DEPTH: usize = 128;

/// Removes a tree. One that is not there is fine.
pub(super) fn remove_tree(path: &Path) -> io::Result<()> {
    remove_at(&CWD, path)
}

/// The same for a tree in a directory that is open.
pub(super) fn remove_at(dir: &impl AsFd, path: &Path) -> io::Result<()> {
    let root = match open(dir, path) {
        Err(Errno::NOENT) => return Ok(()),
        opened => opened?,
    };
    let mut moved = 0;
    // Each round removes at least what the one before moved up.
    while empty(&root, &root, 0, &mut moved)? {}
    Ok(rustix::fs::unlinkat(dir, path, AtFlags::REMOVEDIR)?)
}

/// Removes what is in a directory. Whether something was moved up meanwhile, and is still there.
fn empty(root: &OwnedFd, dir: &OwnedFd, depth: usize, moved: &mut u64) -> io::Result<bool> {
    let mut again = false;
    for name in names(dir)? {
        match rustix::fs::unlinkat(dir, &name, AtFlags::empty()) {
            Err(Errno::ISDIR | Errno::PERM) => {}
            Err(Errno::NOENT) => continue,
            removed => {
                removed?;
                continue;
            }
        }
        if depth >= DEPTH {
            *moved += 1;
            rustix::fs::renameat(dir, &name, root, format!(".deep-{moved}"))?;
            again = true;
            continue;
        }
        let child = open(dir, &name)?;
        again |= empty(root, &child, depth + 1, moved)?;
        rustix::fs::unlinkat(dir, &name, AtFlags::REMOVEDIR)?;
    }
    Ok(again)
}

/// Opens a directory, and allows this user all in it.
fn open<P: rustix::path::Arg + Copy>(at: &impl AsFd, name: P) -> rustix::io::Result<OwnedFd> {
    let opened = match rustix::fs::openat(at, name, DIRECTORY, Mode::empty()) {
        Err(Errno::ACCESS) => {
            // A link there would have been removed, or would not be opened now.
            let place = rustix::fs::openat(at, name, OFlags::PATH | DIRECTORY, Mode::empty())?;
            rustix::fs::chmodat(CWD, proc_path(&place), Mode::RWXU, AtFlags::empty())?;
            rustix::fs::openat(at, name, DIRECTORY, Mode::empty())?
        }
        opened => opened?,
    };
    match rustix::fs::fchmod(&opened, Mode::RWXU) {
        // Another user's, who may have opened it to all.
        Err(Errno::PERM) => {}
        changed => changed?,
    }
    Ok(opened)
}

/// The way to an open thing that needs no right on its path.
fn proc_path(place: &OwnedFd) -> String {
    use std::os::fd::AsRawFd;
    format!("/proc/self/fd/{}", place.as_raw_fd())
}

fn names(dir: &OwnedFd) -> io::Result<Vec<CString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            names.push(entry.file_name().to_owned());
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    #[test]
    fn a_tree_that_resists_is_removed_and_nothing_else() {
        let temp = tempfile::tempdir().unwrap();
        let at = |name: &str| temp.path().join(name);
        fs::create_dir_all(at("tree/closed/inner")).unwrap();
        fs::create_dir(at("outside")).unwrap();
        fs::write(at("outside/file"), "").unwrap();
        fs::write(at("tree/closed/file"), "").unwrap();
        std::os::unix::fs::symlink("../outside", at("tree/link")).unwrap();
        fs::set_permissions(at("tree/closed"), fs::Permissions::from_mode(0o000)).unwrap();
        let mut dir = open(&CWD, at("tree").as_path()).unwrap();
        for _ in 0..1000 {
            rustix::fs::mkdirat(&dir, "deep", Mode::RWXU).unwrap();
            dir = open(&dir, "deep").unwrap();
        }
        remove_tree(&at("tree")).unwrap();
        remove_tree(&at("tree")).unwrap();
        assert!(!at("tree").exists() && at("outside/file").exists());
    }
}
