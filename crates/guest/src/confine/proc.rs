//! Mounts the machine's own `/proc`: complete, because tools need it, with everything covered that reveals the host.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
};

use rustix::{
    fs::{AtFlags, CWD, FileType, Mode, OFlags},
    mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree},
};

use sandbar_guest::host_facts::COVERED;

use super::root;
use crate::{
    handles::NEW_FILE,
    machine::failure::{Setup, Step},
    sys::{
        files::{Depth, attr, set_mount_attr},
        security::Token,
    },
};

/// Temporary empty directory of the new tree, used to cover directories.
const EMPTY: &str = ".empty";
/// Limits that the kernel counts per host user across all namespaces: one machine may not use them all up.
const SHARED_LIMITS: &[(&str, &str)] = &[("max_inotify_instances", "64"), ("max_inotify_watches", "65536")];

/// Mounts a `/proc` of this PID namespace at `new_root/proc` and covers what must not be visible.
pub(crate) fn mount(new_root: BorrowedFd<'_>) -> Setup<()> {
    let target = root::directory(new_root, b"proc", 0o555)?;
    root::file_system("proc", &[], attr::NOSUID | attr::NODEV | attr::NOEXEC)
        .and_then(|proc| proc.onto(target.as_fd()))
        .needs(
            "mount /proc",
            "the right to mount /proc in a new PID namespace",
            "this looks like a container whose /proc is masked: run sandbar outside it, unmask /proc, or ask for \
             --isolation landlock",
        )?;
    limit(new_root, "max_user_namespaces", "0").step("forbid user namespaces inside")?;
    for (name, most) in SHARED_LIMITS {
        match limit(new_root, name, most) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error).step(&format!("set {name}")),
            _ => {}
        }
    }
    rustix::fs::mkdirat(new_root, EMPTY, Mode::from_raw_mode(0o555)).step("cover /proc")?;
    for name in COVERED {
        cover(new_root, name).step(&format!("cover /proc/{name}"))?;
    }
    rustix::fs::unlinkat(new_root, EMPTY, AtFlags::REMOVEDIR).step("cover /proc")?;
    bind_read_only(new_root, "proc/sys").step("make /proc/sys read-only")?;
    own_boot_id(new_root).step("cover the host's boot id")
}

/// Sets a limit of the machine's user namespace. (The filter refuses new namespaces; with this limit the kernel does
/// too.)
fn limit(new_root: BorrowedFd<'_>, name: &str, most: &str) -> io::Result<()> {
    let path = format!("proc/sys/user/{name}");
    let file = rustix::fs::openat(new_root, path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(&file, most.as_bytes())?;
    Ok(())
}

fn cover(new_root: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    let path = format!("proc/{name}");
    let Ok(found) = rustix::fs::statat(new_root, path.as_str(), AtFlags::SYMLINK_NOFOLLOW) else { return Ok(()) };
    let is_dir = FileType::from_raw_mode(found.st_mode) == FileType::Directory;
    let clone = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let nothing = open_tree(new_root, if is_dir { EMPTY } else { "dev/null" }, clone)?;
    if is_dir {
        set_mount_attr(nothing.as_fd(), attr::RDONLY, None, Depth::This)?;
    }
    move_mount(&nothing, "", new_root, path.as_str(), MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
    Ok(())
}

/// Replaces the host's boot id, which would show that two machines run on the same host, with the machine's own.
fn own_boot_id(new_root: BorrowedFd<'_>) -> io::Result<()> {
    const PLACE: &str = "proc/sys/kernel/random/boot_id";
    const NAME: &str = ".boot_id";
    if rustix::fs::statat(new_root, PLACE, AtFlags::SYMLINK_NOFOLLOW).is_err() {
        return Ok(());
    }
    let file = rustix::fs::openat(new_root, NAME, NEW_FILE, Mode::from_raw_mode(0o444))?;
    rustix::io::write(&file, uuid(Token::random()?).as_bytes())?;
    let clone = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let tree = open_tree(new_root, NAME, clone)?;
    set_mount_attr(tree.as_fd(), attr::RDONLY, None, Depth::This)?;
    move_mount(&tree, "", new_root, PLACE, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
    Ok(rustix::fs::unlinkat(new_root, NAME, AtFlags::empty())?)
}

/// Formats 128 random bits like a boot id of the kernel: a version 4 UUID and a line end.
fn uuid(Token([high, low]): Token) -> String {
    let (high, low) = (high & !0xF000 | 0x4000, low & !(3 << 62) | 1 << 63);
    let (time, middle, version) = (high >> 32, high >> 16 & 0xFFFF, high & 0xFFFF);
    format!("{time:08x}-{middle:04x}-{version:04x}-{:04x}-{:012x}\n", low >> 48, low & 0xFFFF_FFFF_FFFF)
}

fn bind_read_only(new_root: BorrowedFd<'_>, path: &str) -> io::Result<()> {
    let clone = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let tree = open_tree(new_root, path, clone)?;
    set_mount_attr(tree.as_fd(), attr::RDONLY, None, Depth::This)?;
    move_mount(&tree, "", new_root, path, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
    Ok(())
}

/// Opens the `/proc` of the current namespace, to inspect processes.
pub(crate) fn open() -> io::Result<std::os::fd::OwnedFd> {
    Ok(rustix::fs::openat(CWD, "/proc", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_boot_id_is_a_random_uuid() {
        let id = uuid(Token([0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210]));
        assert_eq!(id, "01234567-89ab-4def-bedc-ba9876543210\n");
    }
}
