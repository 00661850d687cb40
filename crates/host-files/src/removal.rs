//! Removal of a tree with hostile contents: by handles, also through directories without permissions.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    path::Path,
};

use rustix::{
    fs::{AtFlags, CWD, Mode, OFlags},
    io::Errno,
};

use super::confined_dir::{DIRECTORY, names};

/// Directories that are open at once; deeper ones are moved up first.
const DEPTH: usize = 128;

/// Removes a tree. A missing tree is no error.
pub fn remove_tree(path: &Path) -> io::Result<()> {
    remove_at(&CWD, path)
}

/// Removes a tree in an open directory.
pub fn remove_at(dir: &impl AsFd, path: &Path) -> io::Result<()> {
    let root = match open(dir, path) {
        Err(Errno::NOENT) => return Ok(()),
        opened => opened?,
    };
    let mut moved = 0;
    // Each round removes at least what the previous round moved up.
    while empty(&root, &root, 0, &mut moved)? {}
    Ok(rustix::fs::unlinkat(dir, path, AtFlags::REMOVEDIR)?)
}

/// Removes the contents of a directory. Returns whether deep directories were moved up and remain.
fn empty(root: &OwnedFd, dir: &OwnedFd, depth: usize, moved: &mut u64) -> io::Result<bool> {
    let mut again = false;
    // All names are read first: the loop changes the directory.
    for (name, _) in names(dir)?.collect::<io::Result<Vec<_>>>()? {
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

/// Opens a directory and gives this user all permissions on it.
fn open<P: rustix::path::Arg + Copy>(at: &impl AsFd, name: P) -> rustix::io::Result<OwnedFd> {
    let opened = match rustix::fs::openat(at, name, DIRECTORY, Mode::empty()) {
        Err(Errno::ACCESS) => {
            // The name is no link: `O_NOFOLLOW` would have failed with another error.
            let handle = rustix::fs::openat(at, name, OFlags::PATH | DIRECTORY, Mode::empty())?;
            rustix::fs::chmodat(CWD, proc_path(&handle), Mode::RWXU, AtFlags::empty())?;
            rustix::fs::openat(at, name, DIRECTORY, Mode::empty())?
        }
        opened => opened?,
    };
    match rustix::fs::fchmod(&opened, Mode::RWXU) {
        // Owned by another user; its mode may still allow the removal.
        Err(Errno::PERM) => {}
        changed => changed?,
    }
    Ok(opened)
}

/// A path to an open handle that needs no permissions on its parents.
fn proc_path(handle: &OwnedFd) -> String {
    use std::os::fd::AsRawFd;
    format!("/proc/self/fd/{}", handle.as_raw_fd())
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    #[test]
    fn a_tree_without_permissions_is_removed_and_nothing_outside_of_it() {
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
