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
const COVERED: &[&str] = &[
    "cmdline",
    "config.gz",
    "iomem",
    "ioports",
    "kallsyms",
    "kcore",
    "key-users",
    "keys",
    "kmsg",
    "sched_debug",
    "sysrq-trigger",
    "timer_list",
];
/// What the kernel counts for the host's user across all namespaces: a machine may not use it all up.
const SHARED_LIMITS: &[(&str, &str)] = &[("max_inotify_instances", "64"), ("max_inotify_watches", "65536")];

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
    limit(new_root, "max_user_namespaces", "0").step("forbid user namespaces inside")?;
    for (name, most) in SHARED_LIMITS {
        match limit(new_root, name, most) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error).step(&format!("set {name}")),
            _ => {}
        }
    }
    for name in COVERED {
        cover(new_root, name).step(&format!("cover /proc/{name}"))?;
    }
    bind_read_only(new_root, "proc/sys").step("make /proc/sys read-only")
}

/// Limits what the machine's user namespace may have. (The filter refuses new namespaces; with this the kernel does too.)
fn limit(new_root: BorrowedFd<'_>, name: &str, most: &str) -> io::Result<()> {
    let path = format!("proc/sys/user/{name}");
    let file = rustix::fs::openat(new_root, path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(&file, most.as_bytes())?;
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
