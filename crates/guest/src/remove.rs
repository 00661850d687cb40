//! Removes a tree by directory handles: follows no link, handles any depth, and overrides permission bits that the
//! owner can change.

use std::{
    ffi::OsStr,
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
};

use rustix::{
    fs::{AtFlags, Mode, OFlags, renameat, unlinkat},
    io::Errno,
};

use crate::{
    handles::{names, set_mode},
    sys::security::Token,
};

/// Directories deeper than this are first moved to the top, so that neither descriptors nor stack run out.
const DEPTH: usize = 32;

/// Removes a file or tree; a missing one is fine.
pub(crate) fn remove_tree(parent: BorrowedFd<'_>, name: &[u8]) -> io::Result<()> {
    if remove_leaf(parent, name)? {
        return Ok(());
    }
    let Some(top) = open_dir(parent, name)? else { return Ok(()) };
    // Unpredictable names, so that none can be prepared.
    let mut hoisted = Token::random()?.0[0];
    loop {
        let moved = empty(top.as_fd(), top.as_fd(), 0, &mut hoisted)?;
        if !moved {
            break;
        }
    }
    match unlinkat(parent, OsStr::from_bytes(name), AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Removes a file, link or empty directory; `false` for a directory that is not empty.
fn remove_leaf(parent: BorrowedFd<'_>, name: &[u8]) -> io::Result<bool> {
    let path = OsStr::from_bytes(name);
    match unlinkat(parent, path, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(true),
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(error) => return Err(error.into()),
    }
    match unlinkat(parent, path, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        Err(Errno::NOTDIR) => Ok(unlinkat(parent, path, AtFlags::empty()).map(|()| true)?),
        Err(Errno::NOTEMPTY | Errno::EXIST | Errno::ACCESS) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Empties a directory; `true` if something too deep was moved to the top and must be removed there.
fn empty(dir: BorrowedFd<'_>, top: BorrowedFd<'_>, depth: usize, hoisted: &mut u64) -> io::Result<bool> {
    let mut moved = false;
    for name in names(dir)? {
        if remove_leaf(dir, &name)? {
            continue;
        }
        if depth >= DEPTH {
            *hoisted = hoisted.wrapping_add(1);
            let place = format!(".sandbar-removing-{hoisted:016x}");
            renameat(dir, OsStr::from_bytes(&name), top, place.as_str())?;
            moved = true;
            continue;
        }
        let Some(child) = open_dir(dir, &name)? else { continue };
        moved |= empty(child.as_fd(), top, depth + 1, hoisted)?;
        drop(child);
        match unlinkat(dir, OsStr::from_bytes(&name), AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(moved)
}

fn open_dir(parent: BorrowedFd<'_>, name: &[u8]) -> io::Result<Option<OwnedFd>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let path = OsStr::from_bytes(name);
    let opened = rustix::fs::openat(parent, path, flags, Mode::empty());
    let dir = match opened {
        Ok(dir) => dir,
        Err(Errno::NOENT) => return Ok(None),
        Err(Errno::ACCESS) => {
            // Through a handle: the mode of a link's target must not change if a link takes this name meanwhile.
            let held = rustix::fs::openat(parent, path, flags | OFlags::PATH, Mode::empty())?;
            set_mode(&held, Mode::RWXU)?;
            rustix::fs::openat(parent, path, flags, Mode::empty())?
        }
        Err(error) => return Err(error.into()),
    };
    let mode = rustix::fs::fstat(&dir)?.st_mode;
    if mode & 0o700 != 0o700 {
        rustix::fs::fchmod(&dir, Mode::RWXU)?;
    }
    Ok(Some(dir))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt, path::PathBuf};

    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("sandbar-remove-{name}-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        dir
    }

    fn handle(dir: &PathBuf) -> OwnedFd {
        rustix::fs::open(dir, OFlags::DIRECTORY | OFlags::RDONLY, Mode::empty()).unwrap()
    }

    #[test]
    fn links_are_removed_and_their_targets_stay() {
        let dir = scratch("links");
        fs::create_dir_all(dir.join("precious")).unwrap();
        fs::write(dir.join("precious/file"), "kept").unwrap();
        fs::create_dir_all(dir.join("tree/a")).unwrap();
        std::os::unix::fs::symlink(dir.join("precious"), dir.join("tree/a/link")).unwrap();
        remove_tree(handle(&dir).as_fd(), b"tree").unwrap();
        assert!(!dir.join("tree").exists());
        assert_eq!(fs::read_to_string(dir.join("precious/file")).unwrap(), "kept");
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn permissions_do_not_stop_the_owner() {
        let dir = scratch("modes");
        fs::create_dir_all(dir.join("tree/locked/inner")).unwrap();
        fs::set_permissions(dir.join("tree/locked"), fs::Permissions::from_mode(0o000)).unwrap();
        remove_tree(handle(&dir).as_fd(), b"tree").unwrap();
        assert!(!dir.join("tree").exists());
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn depth_is_no_obstacle() {
        let dir = scratch("depth");
        let top = handle(&dir);
        rustix::fs::mkdirat(&top, "tree", Mode::RWXU).unwrap();
        let mut here = rustix::fs::openat(&top, "tree", OFlags::DIRECTORY | OFlags::RDONLY, Mode::empty()).unwrap();
        for _ in 0..2000 {
            rustix::fs::mkdirat(&here, "deeper", Mode::RWXU).unwrap();
            here = rustix::fs::openat(&here, "deeper", OFlags::DIRECTORY | OFlags::RDONLY, Mode::empty()).unwrap();
        }
        remove_tree(top.as_fd(), b"tree").unwrap();
        assert!(!dir.join("tree").exists());
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn nothing_there_is_fine() {
        let dir = scratch("nothing");
        remove_tree(handle(&dir).as_fd(), b"missing").unwrap();
        fs::remove_dir_all(dir).unwrap();
    }
}
