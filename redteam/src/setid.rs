//! Group E, number 34: leaving a set-user-id file in a directory that the host shares.

use libc::{ENOSYS, EPERM};

use crate::{
    Args, Attack,
    Control::Host,
    Outcome,
    sys::{addr, at, call, name_of, text},
};

/// A way to try, as a function of a path that does not exist yet.
macro_rules! way {
    ($name:literal, $promise:literal, [$($errno:ident),*], $make:expr) => {
        Attack { name: $name, promise: $promise, control: Host, expect: &[$($errno),*], run: |a| attempt(a, $name, $make) }
    };
}

const MODE: u64 = 0o6755;
const HERE: u64 = libc::AT_FDCWD as u64;

pub(crate) const ATTACKS: &[Attack] = &[
    way!("E34.set-id-by-fchmodat", "No file can be made set-user-id by chmod.", [EPERM], |path, existing| {
        existing(path)?;
        call(libc::SYS_fchmodat, [HERE, at(path), MODE])
    }),
    #[cfg(target_arch = "x86_64")]
    way!("E34.set-id-by-chmod", "Nor by the oldest chmod.", [EPERM], |path, existing| {
        existing(path)?;
        call(libc::SYS_chmod, [at(path), MODE])
    }),
    way!("E34.set-id-by-fchmod", "Nor by fchmod.", [EPERM], |path, existing| {
        let file = existing(path)?;
        call(libc::SYS_fchmod, [file as u64, MODE])
    }),
    way!("E34.set-id-by-fchmodat2", "Nor by fchmodat2.", [ENOSYS], |path, existing| {
        existing(path)?;
        call(452, [HERE, at(path), MODE, 0])
    }),
    way!(
        "E34.set-id-with-high-bits",
        "Nor with high bits in the mode, which the kernel ignores.",
        [EPERM],
        |path, existing| {
            existing(path)?;
            call(libc::SYS_fchmodat, [HERE, at(path), 1 << 32 | MODE])
        }
    ),
    way!("E34.set-id-by-openat", "Nor in the mode of a new file.", [EPERM], |path, _| {
        call(libc::SYS_openat, [HERE, at(path), (libc::O_CREAT | libc::O_WRONLY) as u64, MODE])
    }),
    #[cfg(target_arch = "x86_64")]
    way!("E34.set-id-by-open", "Nor by the oldest open.", [EPERM], |path, _| {
        call(libc::SYS_open, [at(path), (libc::O_CREAT | libc::O_WRONLY) as u64, MODE])
    }),
    #[cfg(target_arch = "x86_64")]
    way!("E34.set-id-by-creat", "Nor by creat.", [EPERM], |path, _| call(libc::SYS_creat, [at(path), MODE])),
    way!("E34.set-id-by-openat2", "Nor by openat2.", [ENOSYS], |path, _| {
        let how = [(libc::O_CREAT | libc::O_WRONLY) as u64, MODE, 0];
        call(libc::SYS_openat2, [HERE, at(path), addr(&how), 24])
    }),
    way!("E34.set-id-by-unnamed-file", "Nor in a file that gets its name later.", [EPERM], |path, _| {
        let dir = text(path.to_str().unwrap_or_default().rsplit_once('/').map_or("", |(dir, _)| dir));
        let file = call(libc::SYS_openat, [HERE, at(&dir), (libc::O_TMPFILE | libc::O_WRONLY) as u64, MODE])?;
        let name = text(&format!("/proc/self/fd/{file}"));
        call(libc::SYS_linkat, [HERE, at(&name), HERE, at(path), libc::AT_SYMLINK_FOLLOW as u64])
    }),
    way!("E34.set-id-by-mknod", "Nor by mknod.", [EPERM], |path, _| {
        call(libc::SYS_mknodat, [HERE, at(path), u64::from(libc::S_IFREG) | MODE, 0])
    }),
    way!("E34.set-id-by-mkdir", "Nor a directory, by mkdir and chmod.", [EPERM], |path, _| {
        call(libc::SYS_mkdirat, [HERE, at(path), 0o755])?;
        call(libc::SYS_fchmodat, [HERE, at(path), 0o2755])
    }),
    way!("E34.set-id-by-socket", "Nor a socket's file.", [EPERM], |path, _| {
        let socket = call(libc::SYS_socket, [libc::AF_UNIX as u64, libc::SOCK_STREAM as u64, 0])?;
        call(libc::SYS_fchmod, [socket as u64, 0o6777])?;
        let (address, length) = crate::sys::unix_address(path.to_str().unwrap_or_default());
        call(libc::SYS_bind, [socket as u64, addr(address.as_slice()), length])
    }),
];

type Existing = fn(&std::ffi::CStr) -> Result<i64, i32>;

fn existing(path: &std::ffi::CStr) -> Result<i64, i32> {
    call(libc::SYS_openat, [HERE, at(path), (libc::O_CREAT | libc::O_WRONLY) as u64, 0o755])
}

fn attempt(a: &Args, name: &str, make: fn(&std::ffi::CStr, Existing) -> Result<i64, i32>) -> Outcome {
    use std::os::unix::fs::MetadataExt;
    let file = format!("{}/{}-{}", a.get("dir"), name.replace('.', "-"), a.get("token"));
    let made = make(&text(&file), existing);
    let set_id = std::fs::symlink_metadata(&file).is_ok_and(|found| found.mode() & 0o6000 != 0);
    if a.get("inside").is_empty() {
        // On the host nothing is left; inside, a second user of the host looks for what is.
        let _either = std::fs::remove_file(&file).or_else(|_| std::fs::remove_dir(&file));
    }
    match made {
        _ if set_id => Outcome::Reached(file),
        Ok(_) => Outcome::Refused(0, "made, without the bits".to_owned()),
        Err(errno) => Outcome::Refused(errno, name_of(errno)),
    }
}
