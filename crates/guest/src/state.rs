//! The machine's directory on the host: locked while it lives, removed when it ends, swept when a power cut kept it.

use std::{
    ffi::OsStr,
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
};

use rustix::fs::{CWD, FlockOperation, Gid, Mode, OFlags, Uid, flock};
use sandbar_guest::protocol::{Launch, Level};

use crate::{
    confine::root::below,
    failure::{Setup, Step},
    remove::remove_tree,
};

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// Prefix of directories that are being removed.
const DEAD: &[u8] = b".dead-";

/// `state/id`, ours while the lock is held.
pub(crate) struct StateDir {
    state: OwnedFd,
    /// Held open: the lock lasts as long as this does.
    lock: OwnedFd,
    name: Vec<u8>,
    pub(crate) path: Vec<u8>,
}

impl StateDir {
    /// Makes the directory with what the machine needs in it, owned by `agent` where that is another host user.
    pub(crate) fn create(launch: &Launch, agent: Option<u32>) -> Setup<Self> {
        let step = "make the machine's directory";
        let state = rustix::fs::openat(CWD, OsStr::from_bytes(&launch.state), DIRECTORY, Mode::empty()).step(step)?;
        if launch.sweep {
            sweep(state.as_fd());
        }
        // Shared: a sweeper, which takes it exclusively, must not see the directory before it is locked.
        flock(&state, FlockOperation::LockShared).step(step)?;
        let name = OsStr::from_bytes(&launch.id);
        rustix::fs::mkdirat(&state, name, Mode::from_raw_mode(0o700)).step(step)?;
        let lock = rustix::fs::openat(&state, name, DIRECTORY, Mode::empty()).step(step)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).step(step)?;
        flock(&state, FlockOperation::Unlock).step(step)?;
        let path = below(&launch.state, &launch.id);
        let made = Self { state, lock, name: launch.id.clone(), path };
        let places = [("home", true), ("workspace", launch.workspace.is_none()), ("tmp", launch.level != Level::Full)];
        let mut wanted = places.into_iter().filter(|(_, wanted)| *wanted);
        let placed = wanted.try_for_each(|(place, _)| made.place(place, agent));
        match placed.step(step) {
            Ok(()) => Ok(made),
            Err(failure) => {
                let _swept_at_next_start = made.remove();
                Err(failure)
            }
        }
    }

    fn place(&self, name: &str, agent: Option<u32>) -> io::Result<()> {
        let dir = &self.lock;
        rustix::fs::mkdirat(dir, name, Mode::from_raw_mode(0o755))?;
        if let Some(agent) = agent {
            let (uid, gid) = (Uid::from_raw(agent), Gid::from_raw(agent));
            rustix::fs::chownat(dir, name, Some(uid), Some(gid), rustix::fs::AtFlags::SYMLINK_NOFOLLOW)?;
        }
        Ok(())
    }

    /// Removes everything, once nothing uses it any more.
    pub(crate) fn remove(self) -> io::Result<()> {
        remove_tree(self.state.as_fd(), &self.name)
    }
}

/// Removes directories whose machine died without its supervisor. Best effort: what cannot be removed now is tried again
/// at the next start.
fn sweep(state: BorrowedFd<'_>) {
    if flock(state, FlockOperation::NonBlockingLockExclusive).is_err() {
        return;
    }
    let mut dead = Vec::new();
    for name in names(state).unwrap_or_default().into_iter().filter(|name| is_machines(name)) {
        let Ok(dir) = rustix::fs::openat(state, OsStr::from_bytes(&name), DIRECTORY, Mode::empty()) else { continue };
        if flock(&dir, FlockOperation::NonBlockingLockExclusive).is_err() {
            continue;
        }
        let mark = if name.starts_with(DEAD) { name.clone() } else { [DEAD, &name].concat() };
        if mark == name
            || rustix::fs::renameat(state, OsStr::from_bytes(&name), state, OsStr::from_bytes(&mark)).is_ok()
        {
            dead.push((mark, dir));
        }
    }
    let _unlocked = flock(state, FlockOperation::Unlock);
    for (name, _lock) in dead {
        let _tried_again_next_time = remove_tree(state, &name);
    }
}

/// Whether a directory can have been a machine's: whatever else somebody keeps beside them is not ours to remove.
fn is_machines(name: &[u8]) -> bool {
    let name = name.strip_prefix(DEAD).unwrap_or(name);
    name.len() == 16 && name.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// The names in a directory.
pub(crate) fn names(dir: BorrowedFd<'_>) -> io::Result<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(name.to_vec());
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_machines_are_swept() {
        assert!(is_machines(b"0123456789abcdef"));
        assert!(is_machines(b".dead-0123456789abcdef"));
        for other in [b"precious".as_slice(), b".ssh", b"0123456789ABCDEF", b"0123456789abcde", b".dead-x"] {
            assert!(!is_machines(other));
        }
    }
}
