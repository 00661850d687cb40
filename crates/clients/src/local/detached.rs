//! Machines that outlive their creator: their handle, and how a process of the same user connects to their door.

use std::{
    io,
    os::fd::{AsRawFd, OwnedFd},
    path::{Path, PathBuf},
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use rustix::{
    fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, flock},
    io::Errno,
    process::geteuid,
};
use sandbar_guest::protocol::{DOOR, Knock, MARK, Nonce, Wish};
use sandbar_machine::{MachineError, MachineHandle, Result};
use serde::{Deserialize, Serialize};
use tokio::{
    io::AsyncWriteExt,
    net::UnixStream,
    time::{sleep, timeout},
};

use super::leftovers;
use crate::{
    GuestMachine, Teardown,
    detached::{ANSWER, Memo, read_nonce, too_many_clients},
    random::{hex, random_bytes},
};

/// How long attaching waits for the removal of a dead machine's leftovers; the removal continues after that.
const SWEEP: Duration = Duration::from_secs(1);

/// The handle of a machine that outlives its creator. The nonce grants access to the machine.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DetachedHandle {
    pub(super) id: String,
    pub(super) dir: PathBuf,
    nonce: String,
}

/// Creates the handle of a new machine, with a random nonce.
pub(super) fn prepare(dir: &Path, id: &str) -> Result<DetachedHandle> {
    if dir.to_str().is_none() {
        let reason = "is not UTF-8, so that no handle can hold it; choose another state directory";
        return Err(MachineError::invalid(format!("state directory {}", dir.display()), reason));
    }
    let nonce: Nonce = random_bytes()
        .map_err(|error| MachineError::Start { stage: "detaching it".to_owned(), source: error.into() })?;
    Ok(DetachedHandle { id: id.to_owned(), dir: dir.to_owned(), nonce: hex(&nonce) })
}

/// A way to the door of a machine, as far as it exists.
pub(super) enum Door {
    /// No supervisor listens there.
    Gone,
    /// A supervisor listens.
    Open(UnixStream),
}

impl DetachedHandle {
    /// Reads a handle; `None` if it is the handle of a bound machine.
    pub(super) fn of(state: &serde_json::Value) -> Result<Option<Self>> {
        if state.get("nonce").is_none() {
            return Ok(None);
        }
        let bad = |reason: &str| MachineError::invalid("handle of a detached machine", reason);
        let handle: Self = serde_json::from_value(state.clone()).map_err(|error| bad(&error.to_string()))?;
        let plain = handle.id.len() == 16 && handle.id.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !plain || !handle.dir.is_absolute() {
            return Err(bad("names no directory of a machine"));
        }
        handle.nonce()?;
        Ok(Some(handle))
    }

    /// A handle without the nonce: enough to remove a machine after its door was removed.
    pub(super) fn unknown(id: &str, dir: PathBuf) -> Self {
        Self { id: id.to_owned(), dir, nonce: hex(&Nonce::default()) }
    }

    /// The JSON form of the handle.
    pub(super) fn state(&self) -> serde_json::Value {
        serde_json::json!({ "id": self.id, "dir": self.dir, "nonce": self.nonce })
    }

    pub(super) fn nonce(&self) -> Result<Nonce> {
        read_nonce(&self.nonce)
    }

    pub(super) fn path(&self) -> PathBuf {
        self.dir.join(&self.id)
    }

    /// The machine's directory, which must belong to this user; `None` if it does not exist. Its mode is not checked:
    /// at the level `landlock`, a command can change the mode and must not lock this client out.
    pub(super) fn open(&self) -> Result<Option<OwnedFd>> {
        open_own(&self.path())
    }

    /// Connects to the door if a supervisor listens there.
    async fn door(&self) -> Result<Door> {
        let Some(dir) = self.open()? else { return Ok(Door::Gone) };
        // By descriptor, because the path of a socket has a small maximum length and the state directory's path may be
        // longer.
        let connected = UnixStream::connect(format!("/proc/self/fd/{}/{DOOR}", dir.as_raw_fd())).await;
        let stream = match connected {
            Ok(stream) => stream,
            Err(error) if is_closed(error.kind()) => return Ok(Door::Gone),
            Err(error) => return Err(MachineError::transport("reach it", error)),
        };
        let peer = stream.peer_cred().map_err(|error| MachineError::transport("reach it", error))?;
        if peer.uid() != geteuid().as_raw() {
            let what = format!("machine {}", self.path().display());
            return Err(MachineError::invalid(what, "its socket belongs to a process of another user"));
        }
        Ok(Door::Open(stream))
    }

    /// Sends a request to the door if a supervisor listens there.
    pub(super) async fn knock(&self, wish: Wish) -> Result<Door> {
        let Door::Open(mut stream) = self.door().await? else { return Ok(Door::Gone) };
        match stream.write_all(&Knock::new(wish, self.nonce()?).encode()).await {
            Ok(()) => Ok(Door::Open(stream)),
            // The machine ended at this moment.
            Err(_) => Ok(Door::Gone),
        }
    }

    /// Connects to the machine; `None` if it is gone. Removes its leftovers if its supervisor died without doing so.
    pub(super) async fn attach(&self, handle: &MachineHandle) -> Result<Option<GuestMachine>> {
        let late = |_late| self.silent();
        let nonce = self.nonce()?;
        let welcomed = async {
            let Door::Open(stream) = self.door().await? else { return Ok(None) };
            // The largest buffer that the system allows, so that a large file takes fewer writes.
            let _system_default = rustix::net::sockopt::set_socket_send_buffer_size(&stream, 1 << 20);
            let (mut reader, mut writer) = stream.into_split();
            Ok(Memo::ask(&mut reader, &mut writer, nonce).await?.map(|memo| (reader, writer, memo)))
        };
        let Some((reader, writer, memo)) = timeout(ANSWER, welcomed).await.map_err(late)?? else {
            if self.open()?.is_some_and(|dir| is_marked(&dir) && is_unlocked(&dir)) {
                let _tried_again_by_others = leftovers::sweep(&self.dir, SWEEP).await;
            }
            return Ok(None);
        };
        match memo.connect(reader, writer, handle.clone()).await {
            Ok(machine) => Ok(Some(machine.teardown(Removal { handle: self.clone() }))),
            // Either the machine ended at this moment, or it has its maximum number of connections.
            Err(MachineError::Gone) if !self.lives().await? => Ok(None),
            Err(MachineError::Gone) => Err(too_many_clients()),
            Err(error) => Err(error),
        }
    }

    /// Whether a supervisor still accepts connections, after an ending one had a second to stop.
    pub(super) async fn lives(&self) -> Result<bool> {
        for _ in 0..20 {
            if matches!(self.knock(Wish::Attach).await?, Door::Gone) {
                return Ok(false);
            }
            sleep(Duration::from_millis(50)).await;
        }
        Ok(true)
    }
}

/// A machine's directory, which must belong to this user; `None` if it does not exist.
pub(super) fn open_own(path: &Path) -> Result<Option<OwnedFd>> {
    let bad = |reason: &str| MachineError::invalid(format!("machine {}", path.display()), reason);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(dir) => dir,
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
        Err(Errno::ACCESS | Errno::PERM) => return Err(bad("belongs to another user of this host")),
        Err(error) => return Err(MachineError::transport("find it", io::Error::from(error))),
    };
    let found = rustix::fs::fstat(&dir).map_err(|error| MachineError::transport("find it", io::Error::from(error)))?;
    if found.st_uid != geteuid().as_raw() {
        return Err(bad("belongs to another user of this host"));
    }
    Ok(Some(dir))
}

/// Whether an error means that no supervisor listens, or that it is closing its door.
fn is_closed(kind: io::ErrorKind) -> bool {
    use io::ErrorKind::{ConnectionRefused, ConnectionReset, NotFound};
    matches!(kind, NotFound | ConnectionRefused | ConnectionReset)
}

/// Whether a directory is a machine's. The handle may have been changed, and may name any directory.
pub(super) fn is_marked(dir: &OwnedFd) -> bool {
    let found = rustix::fs::statat(dir, MARK, AtFlags::SYMLINK_NOFOLLOW);
    found.is_ok_and(|found| {
        FileType::from_raw_mode(found.st_mode) == FileType::RegularFile && found.st_uid == geteuid().as_raw()
    })
}

/// Whether no process holds the lock of a machine's directory: its supervisor is dead.
pub(super) fn is_unlocked(dir: &OwnedFd) -> bool {
    flock(dir, FlockOperation::NonBlockingLockExclusive).is_ok() && flock(dir, FlockOperation::Unlock).is_ok()
}

/// Teardown of a detached machine.
pub(super) struct Removal {
    pub(super) handle: DetachedHandle,
}

impl Teardown for Removal {
    fn wait(&mut self) -> BoxFuture<'_, Result<()>> {
        self.handle.delete().boxed()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_handle_names_a_directory_of_a_machine_or_is_refused() {
        let good = json!({ "id": "0123456789abcdef", "dir": "/tmp/state", "nonce": "0f".repeat(16) });
        let handle = DetachedHandle::of(&good).expect("a handle").expect("a detached one");
        assert_eq!(handle.state(), good);
        assert_eq!(handle.nonce().expect("a nonce"), [15; 16]);
        assert!(DetachedHandle::of(&json!({ "id": "0123456789abcdef" })).expect("another kind").is_none());
        let with = |name: &str, value: &str| {
            let mut bad = good.clone();
            bad[name] = value.into();
            bad
        };
        let table = [
            with("id", "../../etc"),
            with("id", "0123456789abcde/"),
            with("dir", "state"),
            with("nonce", "0f"),
            with("nonce", &"é".repeat(16)),
            with("nonce", &"0f".repeat(17)),
            with("more", "x"),
        ];
        for bad in table {
            assert_eq!(DetachedHandle::of(&bad).map(|_| ()).expect_err("refused").code(), "invalid", "{bad}");
        }
    }
}
