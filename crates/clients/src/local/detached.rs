//! Machines that outlive their maker: what their handle holds, and how any process of the same user reaches their door.

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
    Farewell, GuestMachine,
    detached::{ANSWER, Memo, crowded, read_nonce},
    draw::{draw, hex},
};

/// How long finding a machine waits until what a dead one left is removed; that goes on without it.
const SWEEP: Duration = Duration::from_secs(1);

/// What a handle holds of a machine that outlives its maker. The nonce is what lets its holder in.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Place {
    pub(super) id: String,
    pub(super) dir: PathBuf,
    nonce: String,
}

/// Draws a nonce for a new machine, and writes down what its handle holds.
pub(super) fn prepare(dir: &Path, id: &str) -> Result<Place> {
    if dir.to_str().is_none() {
        let reason = "is not UTF-8, so that no handle can hold it; choose another state directory";
        return Err(MachineError::invalid(format!("state directory {}", dir.display()), reason));
    }
    let nonce: Nonce =
        draw().map_err(|error| MachineError::Start { stage: "detaching it".to_owned(), source: error.into() })?;
    Ok(Place { id: id.to_owned(), dir: dir.to_owned(), nonce: hex(&nonce) })
}

/// A way to the door of a machine, as far as it exists.
pub(super) enum Door {
    /// Nothing is there, or nothing that lives.
    Gone,
    /// Somebody listens.
    Open(UnixStream),
}

impl Place {
    /// Reads a handle; `None` when it is one of a machine that ends with its maker.
    pub(super) fn of(state: &serde_json::Value) -> Result<Option<Self>> {
        if state.get("nonce").is_none() {
            return Ok(None);
        }
        let bad = |reason: &str| MachineError::invalid("handle of a detached machine", reason);
        let place: Self = serde_json::from_value(state.clone()).map_err(|error| bad(&error.to_string()))?;
        let plain = place.id.len() == 16 && place.id.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !plain || !place.dir.is_absolute() {
            return Err(bad("names no directory of a machine"));
        }
        place.nonce()?;
        Ok(Some(place))
    }

    /// A machine whose handle nobody has: enough to end it, once its door is gone.
    pub(super) fn unknown(id: &str, dir: PathBuf) -> Self {
        Self { id: id.to_owned(), dir, nonce: hex(&Nonce::default()) }
    }

    /// What the handle holds.
    pub(super) fn state(&self) -> serde_json::Value {
        serde_json::json!({ "id": self.id, "dir": self.dir, "nonce": self.nonce })
    }

    pub(super) fn nonce(&self) -> Result<Nonce> {
        read_nonce(&self.nonce)
    }

    pub(super) fn path(&self) -> PathBuf {
        self.dir.join(&self.id)
    }

    /// The machine's directory, which must be this user's; `None` when there is none. Its mode is not looked at: at the level
    /// `landlock` a command can change it, and must not lock us out.
    pub(super) fn open(&self) -> Result<Option<OwnedFd>> {
        open_own(&self.path())
    }

    /// Connects to the door, if a supervisor listens at it.
    async fn door(&self) -> Result<Door> {
        let Some(dir) = self.open()? else { return Ok(Door::Gone) };
        // By descriptor: a socket's path may be only so long, a state directory's longer.
        let connected = UnixStream::connect(format!("/proc/self/fd/{}/{DOOR}", dir.as_raw_fd())).await;
        let stream = match connected {
            Ok(stream) => stream,
            Err(error) if is_closed(error.kind()) => return Ok(Door::Gone),
            Err(error) => return Err(MachineError::transport("reach it", error)),
        };
        let peer = stream.peer_cred().map_err(|error| MachineError::transport("reach it", error))?;
        if peer.uid() != geteuid().as_raw() {
            let what = format!("machine {}", self.path().display());
            return Err(MachineError::invalid(what, "is posed as by a process of another user"));
        }
        Ok(Door::Open(stream))
    }

    /// Knocks, if a supervisor listens at the door.
    pub(super) async fn knock(&self, wish: Wish) -> Result<Door> {
        let Door::Open(mut stream) = self.door().await? else { return Ok(Door::Gone) };
        match stream.write_all(&Knock::new(wish, self.nonce()?).encode()).await {
            Ok(()) => Ok(Door::Open(stream)),
            // It ended in this very moment.
            Err(_) => Ok(Door::Gone),
        }
    }

    /// Finds the machine; `None` when it is gone. What it left when it died without its supervisor is removed.
    pub(super) async fn attach(&self, handle: &MachineHandle) -> Result<Option<GuestMachine>> {
        let late = |_late| self.silent();
        let nonce = self.nonce()?;
        let welcomed = async {
            let Door::Open(stream) = self.door().await? else { return Ok(None) };
            // As much as the system allows, so that a large file takes fewer turns.
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
            Ok(machine) => Ok(Some(machine.farewell(Removal { place: self.clone() }))),
            // Either it ended in this very moment, or it has as many connections as it takes.
            Err(MachineError::Gone) if !self.lives().await? => Ok(None),
            Err(MachineError::Gone) => Err(crowded()),
            Err(error) => Err(error),
        }
    }

    /// Whether somebody still opens the door, once what is just ending has had a moment to.
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

/// A machine's directory, which must be this user's; `None` when there is none.
pub(super) fn open_own(place: &Path) -> Result<Option<OwnedFd>> {
    let bad = |reason: &str| MachineError::invalid(format!("machine {}", place.display()), reason);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = match rustix::fs::open(place, flags, Mode::empty()) {
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

/// Whether an error means that no supervisor is there, or that it closes its door in this very moment.
fn is_closed(kind: io::ErrorKind) -> bool {
    use io::ErrorKind::{ConnectionRefused, ConnectionReset, NotFound};
    matches!(kind, NotFound | ConnectionRefused | ConnectionReset)
}

/// Whether a directory is a machine's. A handle may have been changed, and lead to any directory with such a name.
pub(super) fn is_marked(dir: &OwnedFd) -> bool {
    let found = rustix::fs::statat(dir, MARK, AtFlags::SYMLINK_NOFOLLOW);
    found.is_ok_and(|found| {
        FileType::from_raw_mode(found.st_mode) == FileType::RegularFile && found.st_uid == geteuid().as_raw()
    })
}

/// Whether no supervisor holds a machine's directory: whoever made it is dead.
pub(super) fn is_unlocked(dir: &OwnedFd) -> bool {
    flock(dir, FlockOperation::NonBlockingLockExclusive).is_ok() && flock(dir, FlockOperation::Unlock).is_ok()
}

/// What stopping such a machine waits for.
pub(super) struct Removal {
    pub(super) place: Place,
}

impl Farewell for Removal {
    fn wait(&mut self) -> BoxFuture<'_, Result<()>> {
        self.place.delete().boxed()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_handle_names_a_directory_of_a_machine_or_is_refused() {
        let good = json!({ "id": "0123456789abcdef", "dir": "/tmp/state", "nonce": "0f".repeat(16) });
        let place = Place::of(&good).expect("a handle").expect("a detached one");
        assert_eq!(place.state(), good);
        assert_eq!(place.nonce().expect("a nonce"), [15; 16]);
        assert!(Place::of(&json!({ "id": "0123456789abcdef" })).expect("another kind").is_none());
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
            assert_eq!(Place::of(&bad).map(|_| ()).expect_err("refused").code(), "invalid", "{bad}");
        }
    }
}
