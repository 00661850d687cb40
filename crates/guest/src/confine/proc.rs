//! The machine's own `/proc`: whole, because tools need it, with what speaks of the host covered.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
};

use rustix::{
    fs::{CWD, Mode, OFlags},
    mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree},
};

use super::root;
use crate::{
    failure::{Setup, Step},
    sys::files::{Depth, attr, set_mount_attr},
};

/// Files that tell of the host or let it be touched.
const COVERED: &[&str] =
    &["kcore", "keys", "key-users", "timer_list", "kallsyms", "kmsg", "sched_debug", "sysrq-trigger"];

/// Mounts a `/proc` of this PID namespace at `new_root/proc` and covers what must not show.
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
    forbid_user_namespaces(new_root).step("forbid user namespaces inside")?;
    for name in COVERED {
        cover(new_root, name).step(&format!("cover /proc/{name}"))?;
    }
    bind_read_only(new_root, "proc/sys").step("make /proc/sys read-only")
}

/// The filter refuses to make them; with this the kernel refuses too.
fn forbid_user_namespaces(new_root: BorrowedFd<'_>) -> io::Result<()> {
    let path = "proc/sys/user/max_user_namespaces";
    let file = rustix::fs::openat(new_root, path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(&file, b"0")?;
    Ok(())
}

fn cover(new_root: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    let path = format!("proc/{name}");
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    if rustix::fs::statat(new_root, path.as_str(), rustix::fs::AtFlags::SYMLINK_NOFOLLOW).is_err() {
        return Ok(());
    }
    let clone = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let nothing = open_tree(new_root, "dev/null", clone)?;
    move_mount(&nothing, "", new_root, path.as_str(), flags)?;
    Ok(())
}

fn bind_read_only(new_root: BorrowedFd<'_>, path: &str) -> io::Result<()> {
    let clone = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let tree = open_tree(new_root, path, clone)?;
    set_mount_attr(tree.as_fd(), attr::RDONLY, None, Depth::This)?;
    move_mount(&tree, "", new_root, path, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
    Ok(())
}

/// Opens the `/proc` of whatever namespace this is, for looking at processes.
pub(crate) fn open() -> io::Result<std::os::fd::OwnedFd> {
    Ok(rustix::fs::openat(CWD, "/proc", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}
