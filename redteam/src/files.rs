//! Group A: reaching the host's files.

use libc::{EACCES, EBUSY, ELOOP, ENOENT, EPERM, EROFS, EXDEV};

use crate::{
    Args, Attack,
    Control::{Host, Namespaces},
    Outcome,
    sys::{addr, addr_mut, at, call, close, errno, open, text},
};

pub(crate) const ATTACKS: &[Attack] = &[
    Attack {
        name: "A1.read-host-file",
        promise: "A file of the host that was not shown does not exist inside.",
        control: Host,
        expect: &[ENOENT],
        run: |a| read(a.get("secret")),
    },
    Attack {
        name: "A2.list-home",
        promise: "The user's home, and so its keys and credentials, does not exist inside.",
        control: Host,
        expect: &[ENOENT],
        run: |a| {
            the_hosts(a, "home-id", a.get("home"), |home| {
                Outcome::of(open(home, libc::O_RDONLY | libc::O_DIRECTORY, 0))
            })
        },
    },
    Attack {
        name: "A2.watch-a-directory",
        promise: "What happens in a directory of the host's that was not shown cannot be watched.",
        control: Host,
        expect: &[ENOENT],
        run: watch,
    },
    Attack {
        name: "A3.read-shadow",
        promise: "The host's password file does not exist inside.",
        control: Host,
        expect: &[ENOENT],
        run: |a| the_hosts(a, "shadow-id", "/etc/shadow", read),
    },
    Attack {
        name: "A4.write-usr",
        promise: "The host's programs cannot be changed.",
        control: Host,
        expect: &[EROFS],
        run: |a| the_hosts(a, "usr-id", "/usr", |usr| create_and_remove(&format!("{usr}/.redteam-{}", a.get("token")))),
    },
    Attack {
        name: "A4.write-passwd",
        promise: "The machine's own users cannot be changed by a command.",
        control: Host,
        expect: &[EROFS, EACCES],
        run: |a| the_hosts(a, "passwd-id", "/etc/passwd", |path| Outcome::of(open(path, libc::O_WRONLY, 0))),
    },
    Attack {
        name: "A4.write-root",
        promise: "The root directory cannot be written to.",
        control: Host,
        expect: &[EROFS],
        run: |a| the_hosts(a, "root-id", "/", |_| create_and_remove(&format!("/.redteam-{}", a.get("token")))),
    },
    Attack {
        name: "A5.walk-up-from-cwd",
        promise: "No number of `..` leads out of the machine's root.",
        control: Host,
        expect: &[ENOENT],
        run: |a| read(&format!("{}{}", "../".repeat(64), a.get("secret").trim_start_matches('/'))),
    },
    Attack {
        name: "A5.walk-up-from-descriptors",
        promise: "No inherited descriptor leads out of the machine's root.",
        control: Host,
        expect: &[],
        run: walk_from_descriptors,
    },
    Attack {
        name: "A6.chroot",
        promise: "A command cannot change its root to climb out of it.",
        control: Namespaces,
        expect: &[EPERM],
        run: |_| Outcome::of(call(libc::SYS_chroot, [at(c"/tmp")])),
    },
    Attack {
        name: "A6.pivot-root",
        promise: "A command cannot swap its root.",
        control: Namespaces,
        expect: &[EPERM],
        run: |_| Outcome::of(call(libc::SYS_pivot_root, [at(c"/nonexistent"), at(c"/nonexistent")])),
    },
    Attack {
        name: "A7.hardlink-host-program",
        promise: "A host file cannot be linked into a place where its mode could be changed.",
        control: Host,
        expect: &[EXDEV, EPERM],
        run: hardlink,
    },
    Attack {
        name: "A8.file-handle",
        promise: "File handles, which name any file of a file system, cannot be made.",
        control: Host,
        expect: &[EPERM],
        run: |_| file_handle().map_or_else(|errno| Outcome::of(Err::<(), _>(errno)), |_| Outcome::of(Ok(()))),
    },
    Attack {
        name: "A8.open-by-handle",
        promise: "File handles cannot be opened.",
        control: Host,
        expect: &[EPERM],
        run: open_by_handle,
    },
    Attack {
        name: "A9.mount-bind",
        promise: "A command cannot mount anything.",
        control: Namespaces,
        expect: &[EPERM],
        run: |_| mount(c"/usr", libc::MS_BIND),
    },
    Attack {
        name: "A9.remount-writable",
        promise: "A read-only mount stays read-only.",
        control: Namespaces,
        expect: &[EPERM],
        run: |_| mount(c"/usr", libc::MS_REMOUNT | libc::MS_BIND),
    },
    Attack {
        name: "A9.unmount-a-mask",
        promise: "What covers a file of /proc cannot be taken away.",
        control: Namespaces,
        expect: &[EPERM],
        run: |_| Outcome::of(call(libc::SYS_umount2, [at(c"/proc/sys"), libc::MNT_DETACH as u64])),
    },
    Attack {
        name: "A9.open-tree",
        promise: "A part of the tree cannot be cloned.",
        control: Namespaces,
        expect: &[EPERM],
        run: |_| Outcome::of(call(libc::SYS_open_tree, [libc::AT_FDCWD as u64, at(c"/usr"), 1])),
    },
    Attack {
        name: "A9.move-mount",
        promise: "A mount cannot be moved.",
        control: Namespaces,
        expect: &[EPERM],
        run: |_| {
            let here = libc::AT_FDCWD as u64;
            Outcome::of(call(libc::SYS_move_mount, [here, at(c"/nonexistent"), here, at(c"/tmp"), 0]))
        },
    },
    Attack {
        name: "A9.new-file-system",
        promise: "No file system can be made.",
        control: Namespaces,
        expect: &[EPERM],
        run: |_| Outcome::of(call(libc::SYS_fsopen, [at(c"tmpfs"), 0])),
    },
    Attack {
        name: "A9.mount-attributes",
        promise: "A mount's attributes cannot be changed.",
        control: Namespaces,
        expect: &[EPERM],
        run: |_| {
            let attributes = [0u64, 1, 0, 0];
            let here = libc::AT_FDCWD as u64;
            Outcome::of(call(libc::SYS_mount_setattr, [here, at(c"/"), 0, addr(&attributes), 32]))
        },
    },
    Attack {
        name: "A10.rename-the-workspace",
        promise: "The workspace itself cannot be renamed away under the harness.",
        control: Host,
        expect: &[EBUSY, EROFS, EXDEV, EACCES],
        run: rename_workspace,
    },
];

/// An attempt on something that an image may have of its own: only the host's, by its device and number, counts.
fn the_hosts(a: &Args, key: &str, path: &str, attempt: impl FnOnce(&str) -> Outcome) -> Outcome {
    let outcome = attempt(path);
    match identity(path) {
        Some(found) if matches!(outcome, Outcome::Reached(_)) && found != a.get(key) => {
            Outcome::Refused(0, "it is the machine's own".to_owned())
        }
        _ => outcome,
    }
}

/// Which file a path leads to, whatever else is called the same.
#[must_use]
pub fn identity(path: &str) -> Option<String> {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(path).ok().map(|found| format!("{}:{}", found.dev(), found.ino()))
}

fn watch(a: &Args) -> Outcome {
    let directory = a.get("secret").rsplit_once('/').map_or("", |(directory, _)| directory);
    let watched = call(libc::SYS_inotify_init1, [0]).and_then(|watcher| {
        let watched = call(libc::SYS_inotify_add_watch, [watcher as u64, at(&text(directory)), 0xFFF]);
        close(watcher as i32);
        watched
    });
    Outcome::of(watched)
}

/// Reads a file's first bytes.
pub(crate) fn read(path: &str) -> Outcome {
    let fd = match open(path, libc::O_RDONLY | libc::O_NONBLOCK, 0) {
        Ok(fd) => fd,
        Err(errno) => return Outcome::Refused(errno, crate::sys::name_of(errno)),
    };
    let mut bytes = [0u8; 64];
    let outcome = match call(libc::SYS_read, [fd as u64, addr_mut(&mut bytes), 64]) {
        Ok(0) => Outcome::Refused(0, "empty".to_owned()),
        other => Outcome::of(other),
    };
    close(fd);
    outcome
}

fn create_and_remove(path: &str) -> Outcome {
    let made = open(path, libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL, 0o600);
    if let Ok(fd) = made {
        close(fd);
        let _best_effort = std::fs::remove_file(path);
    }
    Outcome::of(made)
}

fn walk_from_descriptors(a: &Args) -> Outcome {
    let path = text(&format!("{}{}", "../".repeat(64), a.get("secret").trim_start_matches('/')));
    let mut last = libc::EBADF;
    for fd in 0..1024u64 {
        match call(libc::SYS_openat, [fd, at(&path), libc::O_RDONLY as u64, 0]) {
            Ok(_) => return Outcome::Reached(format!("descriptor {fd}")),
            Err(libc::EBADF) => {}
            Err(errno) => last = errno,
        }
    }
    Outcome::Refused(last, "no descriptor leads out".to_owned())
}

fn hardlink(a: &Args) -> Outcome {
    let target = text(&format!("{}/linked-{}", a.get("dir"), a.get("token")));
    let linked =
        call(libc::SYS_linkat, [libc::AT_FDCWD as u64, at(c"/usr/bin/env"), libc::AT_FDCWD as u64, at(&target), 0]);
    if linked.is_ok() {
        let _best_effort = call(libc::SYS_unlinkat, [libc::AT_FDCWD as u64, at(&target), 0]);
    }
    Outcome::of(linked)
}

fn file_handle() -> Result<[u32; 34], i32> {
    let mut handle = [0u32; 34];
    handle[0] = 128;
    let mut mount = 0i32;
    let here = libc::AT_FDCWD as u64;
    call(libc::SYS_name_to_handle_at, [here, at(c"/tmp"), addr_mut(&mut handle), addr_mut(&mut mount), 0])?;
    Ok(handle)
}

fn open_by_handle(_: &Args) -> Outcome {
    // Where handles cannot be made, the shape of an ext4 root's is tried, as "shocker" did.
    let handle = file_handle().unwrap_or_else(|_| {
        let mut guess = [0u32; 34];
        guess[..4].copy_from_slice(&[8, 1, 2, 0]);
        guess
    });
    let Ok(mount) = open("/tmp", libc::O_RDONLY | libc::O_DIRECTORY, 0) else {
        return Outcome::Error(crate::sys::name_of(errno()));
    };
    let opened = call(libc::SYS_open_by_handle_at, [mount as u64, addr(&handle), libc::O_RDONLY as u64]);
    close(mount);
    Outcome::of(opened)
}

fn mount(source: &std::ffi::CStr, flags: u64) -> Outcome {
    let target = if flags & libc::MS_REMOUNT == 0 { c"/tmp" } else { source };
    Outcome::of(call(libc::SYS_mount, [at(source), at(target), 0, flags, 0]))
}

fn rename_workspace(a: &Args) -> Outcome {
    let (from, to) = (text(a.get("rename")), text(&format!("{}-moved", a.get("rename"))));
    let renamed = call(libc::SYS_rename, [at(&from), at(&to)]);
    if renamed.is_ok() {
        let _back_again = call(libc::SYS_rename, [at(&to), at(&from)]);
    }
    match renamed {
        Err(ELOOP) => Outcome::Error("a link".to_owned()),
        other => Outcome::of(other),
    }
}
