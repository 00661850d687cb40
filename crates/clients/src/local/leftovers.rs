//! The machines of a state directory, as found on disk: live machines, and leftovers of dead ones.

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
    io::AsyncReadExt,
    process::Command,
    time::{sleep, timeout},
};

use super::{
    UnixLocal,
    detached::{DetachedHandle, is_marked, is_unlocked},
    state,
};
use crate::guest_binary;

/// How long removing the trees of dead machines may take.
const SWEEP: Duration = Duration::from_secs(600);
/// How often a sweep is repeated while another process creates a machine in the same directory.
const TRIES: usize = 5;
/// Prefix of a directory's name while it is removed.
pub(super) const DEAD: &str = ".dead-";

/// Maximum length of a sweep's report.
const MAX_REPORT: u64 = 1 << 20;

/// A machine in a state directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resident {
    /// Id of the machine.
    pub id: String,
    /// Whether the machine runs.
    pub state: ResidentState,
}

/// State of a machine in a state directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResidentState {
    /// The supervisor lives.
    Running,
    /// The supervisor is dead; the directory is a leftover.
    Dead,
    /// The supervisor is dead, and another process is removing the leftovers.
    Removing,
}

/// A machine that a sweep could not remove completely.
#[derive(Debug)]
pub struct Remainder {
    /// Id of the machine.
    pub id: String,
    /// The error of the operating system.
    pub error: io::Error,
}

impl UnixLocal {
    /// The machines in this client's state directory: live machines of every process, and leftovers of dead ones. Other
    /// files in the directory are not listed.
    ///
    /// # Errors
    /// [`MachineError`] if the directory cannot be read, or is accessible for other users. A missing directory is
    /// empty.
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
                let state = match (lives, id == name) {
                    (true, true) => ResidentState::Running,
                    (true, false) => ResidentState::Removing,
                    (false, _) => ResidentState::Dead,
                };
                found.push(Resident { id: id.to_owned(), state });
            }
        }
        found.sort_by(|one, other| one.id.cmp(&other.id));
        Ok(found)
    }

    /// Ends a machine of the state directory without its handle, and removes everything it has.
    ///
    /// # Errors
    /// [`MachineError`] if something remains; [`MachineError::StillBeingRemoved`] if the removal continues in the
    /// background.
    pub async fn remove_machine(&self, id: &str) -> Result<()> {
        let Some(directory) = self.existing()? else { return Ok(()) };
        if !is_id(id) {
            return Err(MachineError::invalid(format!("machine {id:?}"), "is not the id of a machine"));
        }
        let handle = DetachedHandle::unknown(id, directory.clone());
        // Without its door no client can ever attach to the machine, so it ends by itself.
        match fs::remove_file(directory.join(id).join(DOOR)) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => Err(handle.not_removed(source)),
            _ => handle.delete().await,
        }
    }

    /// Removes the leftovers of dead machines in the state directory. Returns those that could not be removed
    /// completely, without those that another process is [removing](ResidentState::Removing).
    ///
    /// # Errors
    /// [`MachineError`] if the directory cannot be read, or is accessible for other users.
    pub async fn sweep(&self) -> Result<Vec<Remainder>> {
        let mut reported = Vec::new();
        for _ in 0..TRIES {
            let (false, Some(directory)) = (self.dead()?.is_empty(), self.existing()?) else { return Ok(Vec::new()) };
            reported = sweep(&directory, SWEEP).await;
            if !self.dead()?.is_empty() {
                // A process that creates a machine there holds the lock of the directory for a moment.
                sleep(Duration::from_millis(50)).await;
            }
        }
        let explained = |id: String| {
            let at = reported.iter().position(|left| left.id == id);
            let unknown = || Remainder { id, error: io::Error::other("the directory of machines stayed locked") };
            at.map_or_else(unknown, |at| reported.swap_remove(at))
        };
        Ok(self.dead()?.into_iter().map(explained).collect())
    }

    /// Ids of machines whose supervisor is dead, and that no other process is removing.
    fn dead(&self) -> Result<Vec<String>> {
        let is_dead = |machine: &Resident| machine.state == ResidentState::Dead;
        Ok(self.machines()?.into_iter().filter(is_dead).map(|machine| machine.id).collect())
    }

    /// The state directory, if it exists and is accessible for this user only.
    fn existing(&self) -> Result<Option<PathBuf>> {
        let directory = state::directory(self.chosen_dir())?;
        match fs::symlink_metadata(&directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            _ => state::check(&directory).map(|()| Some(directory)),
        }
    }
}

/// Removes the leftovers of dead machines in a directory by running the guest program's `sweep`. Returns what could not
/// be removed.
pub(super) async fn sweep(directory: &Path, patience: Duration) -> Vec<Remainder> {
    let Ok(program) = guest_binary::sealed() else { return Vec::new() };
    let started = Command::new(format!("/proc/self/fd/{}", program.as_raw_fd()))
        .arg0("sandbar-guest")
        .arg("sweep")
        .arg(directory)
        .env_clear()
        .current_dir("/")
        // A Ctrl-C is for the caller only; a started sweep is completed.
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let Ok(mut sweeper) = started else { return Vec::new() };
    let mut report = String::new();
    let swept = async {
        if let Some(output) = sweeper.stdout.take() {
            let _broken = output.take(MAX_REPORT).read_to_string(&mut report).await;
        }
        sweeper.wait().await
    };
    // The sweep continues after this time; the next machine's supervisor tries again to remove what it leaves.
    let _late = timeout(patience, swept).await;
    report.lines().filter_map(remainder).collect()
}

/// Reads one line of a sweep's report.
fn remainder(line: &str) -> Option<Remainder> {
    let (id, number) = line.split_once(' ')?;
    let error = match number.parse().ok()? {
        0 => io::Error::other("the sweep gave no reason"),
        number => io::Error::from_raw_os_error(number),
    };
    is_id(id).then(|| Remainder { id: id.to_owned(), error })
}

fn is_id(name: &str) -> bool {
    name.len() == 16 && name.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Whether a machine's supervisor lives; `None` if the path is not certainly the directory of a machine.
fn lives(path: &Path) -> Option<bool> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = rustix::fs::open(path, flags, Mode::empty()).ok()?;
    // The mark is written after the lock is taken: a machine that is being created is never taken for a dead one.
    is_marked(&dir).then(|| !is_unlocked(&dir))
}

#[cfg(test)]
mod tests {
    use rustix::fs::{FlockOperation, flock};
    use sandbar_guest::protocol::MARK;

    use super::*;

    #[tokio::test]
    async fn only_certainly_dead_machines_are_swept() {
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
        let found: Vec<_> = found.iter().map(|machine| (&machine.id[14..], machine.state)).collect();
        assert_eq!(found, [("aa", ResidentState::Dead), ("ab", ResidentState::Dead), ("ac", ResidentState::Running)]);
        assert!(client.sweep().await.expect("sweep").is_empty());
        assert!(!dead.exists() && !half.exists());
        assert!([&living, &unmarked].into_iter().chain(&others).all(|dir| dir.join("home/deep").exists()));
        for bad in ["..", "00000000000000aa/..", ""] {
            assert_eq!(client.remove_machine(bad).await.expect_err("refused").code(), "invalid");
        }
    }

    #[tokio::test]
    async fn a_machine_that_another_process_removes_is_neither_running_nor_gone() {
        let temp = tempfile::tempdir().expect("a directory");
        let place = temp.path().join("machines");
        let client = UnixLocal::new().state_dir(&place);
        state::prepare(Some(&place)).expect("prepare");
        let id = "00000000000000aa";
        let dir = place.join(format!("{DEAD}{id}"));
        fs::create_dir_all(dir.join("home")).expect("create");
        fs::write(dir.join(MARK), "").expect("mark");
        let other_sweep = fs::File::open(&dir).expect("open");
        flock(&other_sweep, FlockOperation::NonBlockingLockExclusive).expect("lock");
        let removing = [Resident { id: id.to_owned(), state: ResidentState::Removing }];
        assert_eq!(client.machines().expect("machines"), removing);
        assert!(client.sweep().await.expect("sweep").is_empty(), "nothing that this sweep failed to remove");
        assert_eq!(client.machines().expect("machines"), removing);
        let waiting = DetachedHandle::unknown(id, place.clone());
        let error = waiting.delete_within(Duration::from_millis(300)).await.expect_err("it is there");
        assert_eq!(error.code(), "still_being_removed", "{error}");
        drop(other_sweep);
        client.remove_machine(id).await.expect("removed");
        assert!(!dir.exists());
    }

    #[test]
    fn a_report_of_a_sweep_is_read_line_by_line() {
        let left = remainder("00000000000000aa 30").expect("a line");
        assert_eq!((left.id.as_str(), left.error.kind()), ("00000000000000aa", io::ErrorKind::ReadOnlyFilesystem));
        assert!(
            ["", "x 30", "00000000000000aa", "00000000000000aa x"].into_iter().all(|line| remainder(line).is_none())
        );
    }

    #[test]
    fn a_state_directory_that_is_a_link_is_refused() {
        let temp = tempfile::tempdir().expect("a directory");
        let link = temp.path().join("link");
        std::os::unix::fs::symlink("/usr", &link).expect("link");
        assert!(UnixLocal::new().state_dir(&link).machines().is_err());
    }
}
