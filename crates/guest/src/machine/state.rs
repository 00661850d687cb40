//! The machine's directory on the host: locked while the machine lives, removed when it ends, swept later if a power
//! cut left it.

use std::{
    ffi::{OsStr, OsString},
    io::{self, Write},
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    process::ExitCode,
};

use rustix::{
    fs::{AtFlags, CWD, FileType, FlockOperation, Gid, Mode, OFlags, Uid, flock},
    process::geteuid,
};
use sandbar_guest::protocol::{Launch, Level, MARK};

use crate::{
    confine::root::below,
    handles::{NEW_FILE, names},
    machine::{
        failure::{Setup, Step},
        group,
        idmap::{Ids, as_root_of_own},
    },
    remove::remove_tree,
};

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// Prefix of directories that are being removed.
const DEAD: &[u8] = b".dead-";

/// `state/id`; this process owns it while it holds the lock.
pub(crate) struct StateDir {
    state: OwnedFd,
    /// The lock lasts as long as this descriptor is open.
    lock: OwnedFd,
    name: Vec<u8>,
    pub(crate) path: Vec<u8>,
}

impl StateDir {
    /// Creates the directory and its subdirectories. They belong to the machine's users if those are other users of the
    /// host.
    pub(crate) fn create(launch: &Launch, ids: Option<&Ids>) -> Setup<Self> {
        let step = "make the machine's directory";
        let state = rustix::fs::openat(CWD, OsStr::from_bytes(&launch.state), DIRECTORY, Mode::empty()).step(step)?;
        // Shared: a sweeper takes it exclusively, and so never sees a directory that is not locked yet.
        flock(&state, FlockOperation::LockShared).step(step)?;
        let name = OsStr::from_bytes(&launch.id);
        rustix::fs::mkdirat(&state, name, Mode::from_raw_mode(0o700)).step(step)?;
        let lock = rustix::fs::openat(&state, name, DIRECTORY, Mode::empty()).step(step)?;
        let path = below(&launch.state, &launch.id);
        let made = Self { state, lock, name: launch.id.clone(), path };
        let places = [("home", true), ("workspace", launch.workspace.is_none()), ("tmp", launch.level != Level::Full)];
        let mut wanted = places.into_iter().filter(|(_, wanted)| *wanted);
        let agent = ids.and_then(Ids::agent);
        let placed = made
            .locked()
            .and_then(|()| made.mark())
            .and_then(|()| wanted.try_for_each(|(place, _)| made.place(place, agent)))
            .and_then(|()| match launch.accounts.need_many() {
                true => made.place("homes", ids.and_then(Ids::root)),
                false => Ok(()),
            });
        match placed.step(step) {
            Ok(()) => Ok(made),
            Err(failure) => {
                let _swept_at_next_start = made.remove();
                Err(failure)
            }
        }
    }

    fn locked(&self) -> io::Result<()> {
        flock(&self.lock, FlockOperation::NonBlockingLockExclusive)?;
        Ok(flock(&self.state, FlockOperation::Unlock)?)
    }

    fn mark(&self) -> io::Result<()> {
        rustix::fs::openat(&self.lock, MARK, NEW_FILE, Mode::from_raw_mode(0o600))?;
        Ok(())
    }

    fn place(&self, name: &str, owner: Option<u32>) -> io::Result<()> {
        let dir = &self.lock;
        rustix::fs::mkdirat(dir, name, Mode::from_raw_mode(0o755))?;
        if let Some(owner) = owner {
            let (uid, gid) = (Uid::from_raw(owner), Gid::from_raw(owner));
            rustix::fs::chownat(dir, name, Some(uid), Some(gid), rustix::fs::AtFlags::SYMLINK_NOFOLLOW)?;
        }
        Ok(())
    }

    /// Whether there are directories of other machines, dead or alive.
    pub(crate) fn has_neighbours(&self) -> bool {
        names(self.state.as_fd()).unwrap_or_default().iter().any(|name| is_machines(name) && *name != self.name)
    }

    /// Removes leftovers of other machines. For a child process that does nothing else.
    pub(crate) fn sweep_neighbours(&self) {
        // A new open file description: the lock of this machine belongs to the supervisor's.
        let kept = rustix::fs::openat(&self.state, ".", DIRECTORY, Mode::empty());
        if let Ok(state) = kept
            && crate::sys::process::close_all_but(&mut [state.as_raw_fd()]).is_ok()
        {
            // What could not be removed is tried again at the next start.
            let _left = sweep(state.as_fd(), Whose::Makers);
        }
    }

    /// The directory itself.
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.lock.as_fd()
    }

    /// Removes everything. Nothing may use the directory any more.
    pub(crate) fn remove(self) -> io::Result<()> {
        remove_machine(self.state.as_fd(), &self.name, self.lock.as_fd())
    }
}

/// Removes a machine's directory. Files of its other users belong to subordinate ids of an ordinary user, who can
/// remove them only in a namespace with those ids.
fn remove_machine(state: BorrowedFd<'_>, name: &[u8], dir: BorrowedFd<'_>) -> io::Result<()> {
    match remove_own(state, name, dir) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            as_root_of_own(|| remove_own(state, name, dir)).map_err(|_its_own| error)
        }
        outcome => outcome,
    }
}

/// Removes the marker last: after a power cut the rest can still be recognized as a machine's.
fn remove_own(state: BorrowedFd<'_>, name: &[u8], dir: BorrowedFd<'_>) -> io::Result<()> {
    // A command that runs as the host's user may have changed the mode.
    rustix::fs::fchmod(dir, Mode::RWXU)?;
    let left = match names(dir) {
        // Already removed by the user.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        left => left?,
    };
    for below in left.iter().filter(|below| *below != MARK.as_bytes()) {
        remove_tree(dir, below)?;
    }
    remove_tree(state, name)
}

/// Whether a directory contains the marker that this user put there.
fn is_marked(dir: BorrowedFd<'_>) -> bool {
    let found = rustix::fs::statat(dir, MARK, AtFlags::SYMLINK_NOFOLLOW);
    found.is_ok_and(|found| {
        FileType::from_raw_mode(found.st_mode) == FileType::RegularFile && found.st_uid == geteuid().as_raw()
    })
}

/// Where the path of the state directory comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Whose {
    /// From the maker of a machine in it: an empty directory with a machine's name was never marked, or is no longer,
    /// and is removed.
    Makers,
    /// From a handle, which may have been tampered with: only marked directories are removed.
    Anyones,
}

/// Removes leftovers of dead machines in a state directory. Prints one line for each machine that could not be removed:
/// its id and the `errno`.
pub(crate) fn sweep_all(state: Option<OsString>) -> ExitCode {
    let Some(state) = state else { return ExitCode::from(125) };
    match rustix::fs::openat(CWD, state, DIRECTORY, Mode::empty()) {
        Ok(state) => {
            let left = sweep(state.as_fd(), Whose::Anyones);
            let line = |(id, error): (Vec<u8>, io::Error)| {
                format!("{} {}\n", String::from_utf8_lossy(&id), error.raw_os_error().unwrap_or_default())
            };
            let report: String = left.into_iter().map(line).collect();
            let _caller_gone = io::stdout().write_all(report.as_bytes()).and_then(|()| io::stdout().flush());
            ExitCode::SUCCESS
        }
        Err(_) => ExitCode::FAILURE,
    }
}

/// Removes directories whose machine died without its supervisor. Returns the ids of those that cannot be removed now;
/// the next start tries again. A directory that another process removes at the same time is not among them.
fn sweep(state: BorrowedFd<'_>, whose: Whose) -> Vec<(Vec<u8>, io::Error)> {
    if flock(state, FlockOperation::NonBlockingLockExclusive).is_err() {
        return Vec::new();
    }
    let (mut dead, mut left) = (Vec::new(), Vec::new());
    for name in names(state).unwrap_or_default().into_iter().filter(|name| is_machines(name)) {
        let Ok(dir) = rustix::fs::openat(state, OsStr::from_bytes(&name), DIRECTORY, Mode::empty()) else { continue };
        if flock(&dir, FlockOperation::NonBlockingLockExclusive).is_err() {
            continue;
        }
        if !is_marked(dir.as_fd()) {
            if whose == Whose::Makers {
                let _not_empty = rustix::fs::unlinkat(state, OsStr::from_bytes(&name), AtFlags::REMOVEDIR);
            }
            continue;
        }
        let id = name.strip_prefix(DEAD).unwrap_or(&name).to_vec();
        let aside = [DEAD, &id].concat();
        if aside != name
            && let Err(error) = rustix::fs::renameat(state, OsStr::from_bytes(&name), state, OsStr::from_bytes(&aside))
        {
            left.push((id, error.into()));
            continue;
        }
        dead.push((id, aside, dir));
    }
    let _unlocked = flock(state, FlockOperation::Unlock);
    for (id, name, dir) in dead {
        let removed = group::sweep(dir.as_fd(), &id).and_then(|()| remove_machine(state, &name, dir.as_fd()));
        left.extend(removed.err().map(|error| (id, error)));
    }
    left
}

/// Whether a name can be a machine's: other files beside the machines are not ours to remove.
fn is_machines(name: &[u8]) -> bool {
    let name = name.strip_prefix(DEAD).unwrap_or(name);
    name.len() == 16 && name.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    #[test]
    fn only_machines_are_swept() {
        assert!(is_machines(b"0123456789abcdef"));
        assert!(is_machines(b".dead-0123456789abcdef"));
        for other in [b"precious".as_slice(), b".ssh", b"0123456789ABCDEF", b"0123456789abcde", b".dead-x"] {
            assert!(!is_machines(other));
        }
    }

    #[test]
    fn a_directory_without_the_marker_stays_even_under_a_machines_name() {
        let dir = std::env::temp_dir().join(format!("sandbar-sweep-{}", std::process::id()));
        let (marked, foreign, empty) =
            (dir.join("0123456789abcdef"), dir.join("fedcba9876543210"), dir.join("00000000000000ff"));
        for place in [marked.join("home/deep"), foreign.join("home"), empty.clone()] {
            fs::create_dir_all(place).unwrap();
        }
        fs::write(marked.join(MARK), "").unwrap();
        // A symbolic link is not a marker.
        std::os::unix::fs::symlink(marked.join(MARK), foreign.join(MARK)).unwrap();
        fs::set_permissions(marked.join("home"), fs::Permissions::from_mode(0o500)).unwrap();
        let state = rustix::fs::open(&dir, DIRECTORY, Mode::empty()).unwrap();
        let left = || [&marked, &foreign, &empty].map(|place| place.exists());
        assert!(sweep(state.as_fd(), Whose::Anyones).is_empty());
        assert_eq!(left(), [false, true, true]);
        assert!(sweep(state.as_fd(), Whose::Makers).is_empty());
        assert_eq!(left(), [false, true, false]);
        assert!(foreign.join("home").exists());
        fs::remove_dir_all(dir).unwrap();
    }
}
