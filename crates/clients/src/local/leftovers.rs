//! The machines in a state directory, known by what is there of them: those that live, and what dead ones left.

use std::{
    fs, io,
    os::fd::AsRawFd,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use rustix::fs::{Mode, OFlags};
use sandbar_guest::protocol::DOOR;
use sandbar_machine::{MachineError, Result};
use tokio::{
    process::Command,
    time::{sleep, timeout},
};

use super::{
    UnixLocal,
    detached::{Place, is_marked, is_unlocked},
    state,
};
use crate::guest_binary;

/// How long the trees of dead machines may take to be removed.
const SWEEP: Duration = Duration::from_secs(600);
/// How often it is tried again while somebody makes a machine there.
const TRIES: usize = 5;
/// What a directory is called while it is removed, before its own name.
const DEAD: &str = ".dead-";

/// A machine in a state directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resident {
    /// Its number.
    pub id: String,
    /// Whether its supervisor lives. If not, what is there is only in the way.
    pub lives: bool,
}

impl UnixLocal {
    /// What is in this client's state directory: machines that live, whoever made them, and what dead ones left. Nothing else
    /// that somebody keeps there is among it.
    ///
    /// # Errors
    /// [`MachineError`] when the directory cannot be read, or is not this user's alone. One that is missing is empty.
    pub fn machines(&self) -> Result<Vec<Resident>> {
        let Some(directory) = self.existing()? else { return Ok(Vec::new()) };
        let failed = |source: io::Error| MachineError::transport("look for machines", source);
        let mut found = Vec::new();
        for entry in fs::read_dir(&directory).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            let id = name.strip_prefix(DEAD).unwrap_or(&name);
            if is_id(id)
                && let Some(lives) = lives(&entry.path())
            {
                found.push(Resident { id: id.to_owned(), lives });
            }
        }
        found.sort_by(|one, other| one.id.cmp(&other.id));
        Ok(found)
    }

    /// Ends a machine of the state directory that nobody has a handle of, and removes everything it has.
    ///
    /// # Errors
    /// [`MachineError`] when something of it is left.
    pub async fn remove_machine(&self, id: &str) -> Result<()> {
        let Some(directory) = self.existing()? else { return Ok(()) };
        if !is_id(id) {
            return Err(MachineError::invalid(format!("machine {id:?}"), "is not the number of one"));
        }
        // Without its door nobody could reach it ever again, so that it ends by itself.
        match fs::remove_file(directory.join(id).join(DOOR)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(MachineError::transport("close its door", error))
            }
            _ => Place::unknown(id, directory.clone()).delete().await,
        }?;
        if directory.join(format!("{DEAD}{id}")).exists() {
            sweep(&directory, SWEEP).await;
        }
        Ok(())
    }

    /// Removes what dead machines left in the state directory. Gives back whose could not be removed.
    ///
    /// # Errors
    /// [`MachineError`] when the directory cannot be read, or is not this user's alone.
    pub async fn sweep(&self) -> Result<Vec<String>> {
        let dead =
            || Ok(self.machines()?.into_iter().filter(|machine| !machine.lives).map(|machine| machine.id).collect());
        for _ in 0..TRIES {
            let left: Vec<String> = dead()?;
            let (false, Some(directory)) = (left.is_empty(), self.existing()?) else { return Ok(left) };
            sweep(&directory, SWEEP).await;
            if !dead()?.is_empty() {
                // Whoever makes a machine there keeps others from looking, for a moment.
                sleep(Duration::from_millis(50)).await;
            }
        }
        dead()
    }

    /// The state directory, if it exists, and is this user's alone.
    fn existing(&self) -> Result<Option<PathBuf>> {
        let directory = state::directory(self.chosen_dir())?;
        match fs::symlink_metadata(&directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            _ => state::check(&directory).map(|()| Some(directory)),
        }
    }
}

/// Removes what dead machines left in a directory, with the program that knows how.
pub(super) async fn sweep(directory: &Path, patience: Duration) {
    let Ok(program) = guest_binary::sealed() else { return };
    let sweeping = Command::new(format!("/proc/self/fd/{}", program.as_raw_fd()))
        .arg0("sandbar-guest")
        .arg("sweep")
        .arg(directory)
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    // What is left after this is tried again by the next machine's supervisor.
    let _late = timeout(patience, sweeping).await;
}

fn is_id(name: &str) -> bool {
    name.len() == 16 && name.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Whether a machine's supervisor lives; nothing for what is not provably the directory of a machine.
fn lives(path: &Path) -> Option<bool> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = rustix::fs::open(path, flags, Mode::empty()).ok()?;
    // Its mark comes after its lock: one that is being made is never taken for a dead one.
    is_marked(&dir).then(|| !is_unlocked(&dir))
}

#[cfg(test)]
mod tests {
    use rustix::fs::{FlockOperation, flock};
    use sandbar_guest::protocol::MARK;

    use super::*;

    #[tokio::test]
    async fn what_is_not_provably_a_dead_machine_is_left_as_it_is() {
        let temp = tempfile::tempdir().expect("a directory");
        let place = temp.path().join("machines");
        let client = UnixLocal::new().state_dir(&place);
        assert_eq!(client.machines().expect("nothing"), []);
        assert!(!place.exists(), "looking makes nothing");
        state::prepare(Some(&place)).expect("prepare");
        let [dead, half, living, unmarked] =
            ["00000000000000aa", ".dead-00000000000000ab", "00000000000000ac", "00000000000000ad"]
                .map(|name| place.join(name));
        let others = [place.join("notes"), place.join("00000000000000AE"), place.join(".dead-x")];
        for dir in [&dead, &half, &living, &unmarked].into_iter().chain(&others) {
            fs::create_dir_all(dir.join("home/deep")).expect("create");
            if *dir != unmarked {
                fs::write(dir.join(MARK), "").expect("mark");
            }
        }
        std::os::unix::fs::symlink(&dead, place.join("00000000000000af")).expect("link");
        let held = fs::File::open(&living).expect("open");
        flock(&held, FlockOperation::NonBlockingLockExclusive).expect("lock");
        let found = client.machines().expect("machines");
        let found: Vec<_> = found.iter().map(|machine| (machine.id.as_str(), machine.lives)).collect();
        assert_eq!(found, [("00000000000000aa", false), ("00000000000000ab", false), ("00000000000000ac", true)]);
        assert_eq!(client.sweep().await.expect("sweep"), Vec::<String>::new());
        assert!(!dead.exists() && !half.exists());
        assert!([&living, &unmarked].into_iter().chain(&others).all(|dir| dir.join("home/deep").exists()));
        for bad in ["..", "00000000000000aa/..", ""] {
            assert_eq!(client.remove_machine(bad).await.expect_err("refused").code(), "invalid");
        }
    }

    #[test]
    fn a_directory_of_somebody_elses_is_not_looked_at() {
        let temp = tempfile::tempdir().expect("a directory");
        let link = temp.path().join("link");
        std::os::unix::fs::symlink("/usr", &link).expect("link");
        assert!(UnixLocal::new().state_dir(&link).machines().is_err());
    }
}
