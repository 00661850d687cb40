//! Covers sockets of the host below read-only mounts: a read-only mount does not refuse connections to them.

use std::{
    collections::VecDeque,
    ffi::CString,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::{
    fs::{FileType, Mode, OFlags, fstat, fstatfs},
    mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree},
};

use super::root::shown;
use crate::{
    machine::failure::{Setup, Step},
    sys::{
        files::{BENEATH, NO_SYMLINKS, open_how},
        security::Token,
    },
};

/// Most directory entries inspected for one machine: takes a few milliseconds.
const MOST_ENTRIES: usize = 10_000;
/// Most sockets covered: each takes a mount.
const MOST_SOCKETS: usize = 256;
/// Magic numbers of network file systems, whose server may not answer: NFS, SMB, CIFS, 9P, FUSE.
const FAR: [u32; 5] = [0x6969, 0xFE53_4D42, 0xFF53_4D42, 0x0102_1997, 0x6573_5546];

/// Covers sockets below several paths, and records whether it saw them all.
#[derive(Default)]
pub(super) struct Search {
    entries: usize,
    sockets: usize,
    places: usize,
    left_out: bool,
}

impl Search {
    /// Name of the layer; `None` if nothing was searched.
    pub(super) fn layer(&self) -> Option<&'static str> {
        match (self.places, self.left_out) {
            (0, _) => None,
            (_, false) => Some("read-only sockets covered"),
            (_, true) => Some("read-only sockets covered in part"),
        }
    }

    /// Mounts `/dev/null` over every socket at or below a path of the new tree. Writable mounts are attached later.
    pub(super) fn cover(&mut self, new_root: BorrowedFd<'_>, inside: &[u8]) -> Setup<()> {
        self.search(new_root, inside).step(&format!("cover the sockets below {}", shown(inside)))
    }

    fn search(&mut self, new_root: BorrowedFd<'_>, inside: &[u8]) -> io::Result<()> {
        let inside: Vec<u8> = inside.iter().copied().skip_while(|byte| *byte == b'/').collect();
        let place = open(new_root, &inside, libc::O_PATH)?;
        self.places += 1;
        if FAR.contains(&(fstatfs(&place)?.f_type as u32)) {
            self.left_out = true;
            return Ok(());
        }
        let device = fstat(&place)?.st_dev;
        let mut waiting = VecDeque::from([inside]);
        while let Some(path) = waiting.pop_front() {
            // A directory that cannot be opened here cannot be entered by a command either.
            let Ok(dir) = open(new_root, &path, libc::O_RDONLY | libc::O_DIRECTORY) else { continue };
            if fstat(&dir)?.st_dev != device {
                self.left_out = true;
                continue;
            }
            for entry in rustix::fs::Dir::read_from(&dir)? {
                let entry = entry?;
                let name = entry.file_name();
                if matches!(name.to_bytes(), b"." | b"..") {
                    continue;
                }
                self.entries += 1;
                if self.entries > MOST_ENTRIES || self.sockets >= MOST_SOCKETS {
                    self.left_out = true;
                    return Ok(());
                }
                match entry.file_type() {
                    FileType::Directory => waiting.push_back([&path, b"/".as_slice(), name.to_bytes()].concat()),
                    FileType::Socket | FileType::Unknown => self.cover_one(new_root, dir.as_fd(), name)?,
                    _ => {}
                }
            }
        }
        Ok(())
    }

    fn cover_one(&mut self, new_root: BorrowedFd<'_>, dir: BorrowedFd<'_>, name: &std::ffi::CStr) -> io::Result<()> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // A socket that is gone needs no cover.
        let Ok(found) = rustix::fs::openat(dir, name, flags, Mode::empty()) else { return Ok(()) };
        if FileType::from_raw_mode(fstat(&found)?.st_mode) != FileType::Socket {
            return Ok(());
        }
        let clone = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        let nothing = open_tree(new_root, "dev/null", clone)?;
        let onto = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        move_mount(&nothing, "", &found, "", onto)?;
        self.sockets += 1;
        Ok(())
    }
}

fn open(new_root: BorrowedFd<'_>, path: &[u8], flags: i32) -> io::Result<OwnedFd> {
    open_how(new_root, &CString::new(path)?, flags, BENEATH | NO_SYMLINKS, Token([0; 2]))
}
