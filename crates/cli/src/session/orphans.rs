//! Machines that no session has: what is left when a maker was killed at the wrong moment, or when a record was lost.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{FlockOperation, flock},
    process::geteuid,
};
use sandbar::MachineHandle;
use serde_json::json;

use super::{Home, Making};
use crate::failure::Failure;

/// What every machine's directory has: a mark, and the door it is reached through.
const MARK: &str = ".sandbar";
const DOOR: &str = "door";

/// What was found of them.
pub(super) enum Orphans {
    /// These are nobody's.
    Found(Vec<String>),
    /// Somebody makes a session just now, whose machine has no record yet.
    Unclear,
}

impl Home {
    /// Machines in this user's own directory of them that no record names. One that is still being made is never among
    /// them: its maker holds what is asked for here.
    pub(super) fn orphans(&self) -> Result<Orphans, Failure> {
        if self.marked().is_empty() {
            return Ok(Orphans::Found(Vec::new()));
        }
        let making = Making::open(&self.directory)?;
        if flock(&making.0, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Ok(Orphans::Unclear);
        }
        // What is there by now and in no record will never be in one.
        let machines = self.marked();
        let known = self.store.list()?.into_iter().map(|state| state.machine);
        let known = known.chain(self.store.damaged()?.into_iter().filter_map(|one| one.machine));
        let known: Vec<String> =
            known.filter_map(|machine| Some(machine.state.get("id")?.as_str()?.to_owned())).collect();
        Ok(Orphans::Found(machines.into_iter().filter(|id| !known.contains(id)).collect()))
    }

    /// Ends such a machine and removes everything it has.
    pub(super) async fn remove_orphan(&self, id: &str) -> Result<(), Failure> {
        // Without its door nobody could reach it ever again, so that it ends by itself.
        let door = self.machines().join(id).join(DOOR);
        let refuse = || Failure::new(format!("cannot remove the machine {id}, which no session has"));
        match fs::remove_file(door) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(refuse().because(error)),
            _ => {}
        }
        let state = json!({"id": id, "dir": self.machines(), "nonce": "0".repeat(32)});
        let handle = MachineHandle { client: self.client.id().to_owned(), state };
        self.client.delete(&handle).await.map_err(|error| refuse().because(error))
    }

    fn machines(&self) -> PathBuf {
        self.directory.join("machines")
    }

    /// Everything that is provably the directory of a machine of this user.
    fn marked(&self) -> Vec<String> {
        let entries = fs::read_dir(self.machines()).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        names.filter(|name| is_machine(&self.machines(), name)).collect()
    }
}

fn is_machine(machines: &Path, name: &str) -> bool {
    let is_id = name.len() == 16 && name.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let own = |path: PathBuf| fs::symlink_metadata(path).ok().filter(|found| found.uid() == geteuid().as_raw());
    is_id
        && own(machines.join(name)).is_some_and(|found| found.is_dir())
        && own(machines.join(name).join(MARK)).is_some_and(|found| found.is_file())
}
