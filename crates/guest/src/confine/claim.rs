//! Opens a host path once: the mounted file is the one that was checked, or the setup fails.

use std::{
    ffi::CString,
    io,
    os::fd::{AsFd, OwnedFd},
};

use rustix::fs::{Mode, OFlags};
use sandbar_guest::protocol::{BootFailure, HostPath, Launch};

use super::root::shown;
use crate::{
    machine::failure::Setup,
    sys::{
        files::{NO_MAGICLINKS, NO_SYMLINKS, open_how},
        security::Token,
    },
};

/// Open descriptors of the host paths of a launch.
pub(crate) struct Claims {
    pub(crate) workspace: Option<OwnedFd>,
    pub(crate) mounts: Vec<OwnedFd>,
}

impl Claims {
    /// Opens every host path of a launch except its root file tree.
    pub(crate) fn open(launch: &Launch) -> Setup<Self> {
        let workspace = launch.workspace.as_ref().map(|(host, _)| claim(host)).transpose()?;
        let mounts = launch.mounts.iter().map(|mount| claim(&mount.host)).collect::<Setup<_>>()?;
        Ok(Self { workspace, mounts })
    }
}

/// Opens a path, which must lead to the file it led to when it was checked. No link is followed.
pub(crate) fn claim(host: &HostPath) -> Setup<OwnedFd> {
    same(host).map_err(|error| unusable(&host.path, &error))
}

fn same(host: &HostPath) -> io::Result<OwnedFd> {
    let root = rustix::fs::open("/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let path = CString::new(host.path.as_slice())?;
    let place = open_how(root.as_fd(), &path, libc::O_PATH, NO_SYMLINKS | NO_MAGICLINKS, Token([0; 2]))?;
    let found = rustix::fs::fstat(&place)?;
    if (found.st_dev, found.st_ino) == (host.device, host.inode) {
        Ok(place)
    } else {
        Err(io::Error::from_raw_os_error(libc::ESTALE))
    }
}

/// Explains why a host path cannot be mounted.
pub(crate) fn unusable(path: &[u8], error: &io::Error) -> BootFailure {
    let what = format!("show {} inside", shown(path));
    let errno = error.raw_os_error().unwrap_or_default();
    match errno {
        libc::EINVAL | libc::EPERM | libc::EOPNOTSUPP => BootFailure {
            stage: what,
            errno,
            missing: format!("id-mapped mounts on the file system of {}, or on one mounted below it", shown(path)),
            fix: "run sandbar as the directory's owner instead of root, or move it to ext4, xfs, btrfs or tmpfs".into(),
        },
        // A path that had no links now has one.
        libc::ESTALE | libc::ELOOP => BootFailure {
            stage: format!("{what}: it changed since it was judged"),
            errno: libc::ESTALE,
            missing: String::new(),
            fix: String::new(),
        },
        errno => BootFailure { stage: what, errno, missing: String::new(), fix: String::new() },
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::{ffi::OsStrExt, fs::MetadataExt, fs::symlink},
        path::{Path, PathBuf},
    };

    use super::*;

    fn seen(path: &Path) -> HostPath {
        let found = fs::metadata(path).unwrap();
        HostPath { path: path.as_os_str().as_bytes().to_vec(), device: found.dev(), inode: found.ino() }
    }

    fn scratch(parent: &str) -> PathBuf {
        let dir = Path::new(parent).join(format!("sandbar-claim-{}", std::process::id()));
        fs::create_dir_all(dir.join("a")).unwrap();
        fs::create_dir_all(dir.join("b")).unwrap();
        dir.canonicalize().unwrap()
    }

    #[test]
    fn only_the_checked_file_is_opened() {
        let here = std::env::temp_dir();
        for parent in ["/dev/shm", here.to_str().unwrap()] {
            let dir = scratch(parent);
            let (one, other) = (seen(&dir.join("a")), seen(&dir.join("b")));
            let file = {
                fs::write(dir.join("file"), "x").unwrap();
                seen(&dir.join("file"))
            };
            for same in [&one, &other, &file] {
                claim(same).unwrap();
            }
            // First another directory, then a link to the original one: as an inner part of the path, and as the last.
            fs::rename(dir.join("a"), dir.join("moved")).unwrap();
            fs::rename(dir.join("b"), dir.join("a")).unwrap();
            assert_eq!(claim(&one).unwrap_err().errno, libc::ESTALE);
            fs::rename(dir.join("a"), dir.join("b")).unwrap();
            symlink("moved", dir.join("a")).unwrap();
            let failure = claim(&one).unwrap_err();
            assert_eq!((failure.errno, failure.missing.as_str()), (libc::ESTALE, ""));
            assert!(failure.stage.contains("/a inside: it changed since it was judged"), "{}", failure.stage);
            fs::create_dir(dir.join("moved/inner")).unwrap();
            let through =
                HostPath { path: dir.join("a/inner").as_os_str().as_bytes().to_vec(), ..seen(&dir.join("a/inner")) };
            assert_eq!(claim(&through).unwrap_err().errno, libc::ESTALE);
            fs::remove_file(dir.join("a")).unwrap();
            assert_eq!(claim(&one).unwrap_err().errno, libc::ENOENT);
            fs::remove_dir_all(dir).unwrap();
        }
    }
}
