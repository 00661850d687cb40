//! The directory in which a copy is written before it is renamed into place: no file appears half-written.

use std::{
    ffi::OsStr,
    fs,
    os::unix::ffi::OsStrExt,
    time::{Duration, SystemTime},
};

use parking_lot::Mutex;
use rustix::{
    io::Errno,
    process::{Pid, test_kill_process},
};
use sandbar::{
    Machine, MachineError, MachinePath, Target,
    machine::{ByteStream, DirEntry, EntryKind},
};
use sha2::{Digest, Sha256};
use tokio::time::{sleep, timeout};

use super::merge::merge;

type Result<T> = std::result::Result<T, MachineError>;

/// Prefix of the names of staging directories; other copies leave out entries with this prefix.
const PREFIX: &str = ".sandbar-copy-";

/// Time limit for removing a staging directory when a copy is cancelled.
const REMOVAL: Duration = Duration::from_secs(5);

/// Age after which an unchanged staging directory is a leftover although its process is unknown: it was created in another
/// container, or before the host was restarted.
const OLD: Duration = Duration::from_secs(24 * 60 * 60);

/// Attempts to remove a staging directory, and the pause between them: the process that unpacked it may still be exiting.
const TRIES: u32 = 4;
const PAUSE: Duration = Duration::from_millis(100);

/// Staging directories of this process on one machine.
pub(super) struct Stage<'a> {
    pub(super) machine: &'a dyn Machine,
    name: String,
    /// Staging directories that may exist.
    made: Mutex<Vec<Target>>,
}

impl<'a> Stage<'a> {
    pub(super) fn new(machine: &'a dyn Machine) -> Self {
        Self { machine, name: Owner::this().name(), made: Mutex::default() }
    }

    /// Unpacks an archive at `target`, which is a directory or does not exist yet. A new directory appears with all its
    /// contents; in an existing directory, files are replaced one by one after all of them are written.
    pub(super) async fn tree(&self, target: &Target, tar: ByteStream) -> Result<()> {
        self.sweep(target).await;
        match self.machine.list(target).await {
            Ok(_) => return self.fill(target, tar).await,
            Err(MachineError::NotFound(_)) => {}
            Err(error) => return Err(error),
        }
        let stage = self.beside(target)?;
        let placed = async {
            self.machine.unpack(&stage, tar).await?;
            match self.machine.rename(&stage, target).await {
                // Another copy created the directory meanwhile.
                Err(_) if self.machine.list(target).await.is_ok() => {
                    merge(self, &stage, target).await?;
                    self.machine.remove(&stage).await
                }
                renamed => renamed,
            }
        };
        placed.await.map_err(|error| shown_as(error, &stage.path, &target.path))
    }

    /// Unpacks an archive in an existing directory.
    pub(super) async fn fill(&self, target: &Target, tar: ByteStream) -> Result<()> {
        let stage = self.inside(target)?;
        let placed = async {
            self.machine.unpack(&stage, tar).await?;
            merge(self, &stage, target).await?;
            self.machine.remove(&stage).await
        };
        placed.await.map_err(|error| shown_as(error, &stage.path, &target.path))
    }

    /// Writes a file at `target`.
    pub(super) async fn file(&self, target: &Target, bytes: ByteStream) -> Result<()> {
        self.sweep(target).await;
        replaceable(target, self.machine.stat(target).await?.as_ref())?;
        let stage = self.beside(target)?;
        let staged = Target { mode: target.mode, ..below(&stage, target.path.name().unwrap_or_default())? };
        let placed = async {
            self.machine.write(&staged, bytes).await?;
            if let Err(error) = self.machine.rename(&staged, target).await {
                tracing::debug!(%error, "cannot rename the file; writing it instead");
                self.machine.write(target, self.machine.read(&staged).await?).await?;
            }
            self.machine.remove(&stage).await
        };
        placed.await.map_err(|error| shown_as(error, &staged.path, &target.path))
    }

    /// Removes the staging directories after a copy that failed or was cancelled.
    pub(super) async fn discard(&self) {
        let made = std::mem::take(&mut *self.made.lock());
        for stage in made {
            let removed = timeout(REMOVAL, self.machine.remove(&stage)).await;
            tracing::debug!(path = %stage.path, ?removed, "removed a staging directory");
        }
    }

    /// Removes leftovers of killed copies in the directory, and beside it.
    pub(super) async fn sweep(&self, target: &Target) {
        let parent = target.path.parent().filter(|parent| match &target.beneath {
            Some(root) => parent.is_within(root),
            None => true,
        });
        for dir in [Some(target.path.clone()), parent].into_iter().flatten() {
            let dir = Target { path: dir, ..target.clone() };
            // The next operation reports why the directory cannot be listed.
            let Ok(entries) = self.machine.list(&dir).await else { continue };
            for entry in entries.iter().filter(|entry| is_abandoned(entry)) {
                let Ok(leftover) = below(&dir, &entry.name) else { continue };
                self.remove(&leftover).await;
            }
        }
    }

    async fn remove(&self, leftover: &Target) {
        for attempt in 1..=TRIES {
            match self.machine.remove(leftover).await {
                Ok(()) => return,
                Err(error) if attempt == TRIES => {
                    tracing::warn!(path = %leftover.path, %error, "cannot remove the leftover of a killed copy");
                }
                Err(_) => sleep(PAUSE).await,
            }
        }
    }

    fn beside(&self, target: &Target) -> Result<Target> {
        let root = || MachineError::invalid(target.path.to_string(), "is not below a directory");
        let path = target.path.parent().ok_or_else(root)?.join(&self.name)?;
        Ok(self.remember(target, path))
    }

    fn inside(&self, target: &Target) -> Result<Target> {
        Ok(self.remember(target, target.path.join(&self.name)?))
    }

    fn remember(&self, target: &Target, path: MachinePath) -> Target {
        let stage = Target { path, mode: None, ..target.clone() };
        self.made.lock().push(stage.clone());
        stage
    }
}

/// Refuses to replace an entry that is not a file.
fn replaceable(target: &Target, found: Option<&DirEntry>) -> Result<()> {
    let path = target.path.clone();
    let wrong =
        |kind: std::io::ErrorKind| MachineError::File { action: "write", path: path.clone(), source: kind.into() };
    match found.map(|entry| entry.kind) {
        None | Some(EntryKind::File) => Ok(()),
        Some(EntryKind::Symlink) => Err(MachineError::Denied { path, reason: "is a symbolic link".to_owned() }),
        Some(EntryKind::Dir) => Err(wrong(std::io::ErrorKind::IsADirectory)),
        Some(EntryKind::Other) => {
            let source = std::io::Error::new(std::io::ErrorKind::InvalidInput, "not a regular file");
            Err(MachineError::File { action: "write", path, source })
        }
    }
}

/// A path below a target.
pub(super) fn below(target: &Target, relative: impl AsRef<OsStr>) -> Result<Target> {
    Ok(Target { path: target.path.join(relative)?, ..target.clone() })
}

/// Replaces the path of the staging directory in an error by the path that the caller knows.
fn shown_as(error: MachineError, stage: &MachinePath, target: &MachinePath) -> MachineError {
    let moved = |path: MachinePath| {
        let rest = path.as_bytes().strip_prefix(stage.as_bytes()).map(|rest| rest.strip_prefix(b"/").unwrap_or(rest));
        match rest {
            Some(rest) if path.is_within(stage) => target.join(OsStr::from_bytes(rest)).unwrap_or(path),
            _ => path,
        }
    };
    match error {
        MachineError::NotFound(path) => MachineError::NotFound(moved(path)),
        MachineError::Denied { path, reason } => MachineError::Denied { path: moved(path), reason },
        MachineError::File { action, path, source } => MachineError::File { action, path: moved(path), source },
        MachineError::Exhausted { what, reason } => {
            MachineError::Exhausted { what, reason: reason.replace(&stage.to_string(), &target.to_string()) }
        }
        other => other,
    }
}

/// Whether the entry is a staging directory whose process has exited.
fn is_abandoned(entry: &DirEntry) -> bool {
    let owner = entry.name.to_str().and_then(Owner::of);
    let Some(owner) = owner.filter(|_| entry.kind == EntryKind::Dir) else { return false };
    if owner.system == system() {
        return !owner.is_alive();
    }
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let changed = Duration::from_nanos(u64::try_from(entry.modified_ns).unwrap_or_default());
    now.saturating_sub(changed) > OLD
}

/// The process that created a staging directory, encoded in the directory's name.
#[derive(Debug, PartialEq, Eq)]
struct Owner {
    /// PID namespace and boot in which the process number is valid: [`system`].
    system: String,
    pid: i32,
    /// Start time in ticks since boot; 0 if it could not be read.
    started: u64,
}

impl Owner {
    fn this() -> Self {
        let pid = rustix::process::getpid().as_raw_nonzero().get();
        Self { system: system(), pid, started: start_of(pid).unwrap_or_default() }
    }

    fn name(&self) -> String {
        format!("{PREFIX}{}-{}-{}", self.system, self.pid, self.started)
    }

    fn of(name: &str) -> Option<Self> {
        let mut parts = name.strip_prefix(PREFIX)?.splitn(3, '-');
        let (system, pid, started) = (parts.next()?, parts.next()?, parts.next()?);
        let pid = pid.parse().ok().filter(|pid| *pid > 0)?;
        Some(Self { system: system.to_owned(), pid, started: started.parse().ok()? })
    }

    fn is_alive(&self) -> bool {
        let Some(pid) = Pid::from_raw(self.pid) else { return false };
        if test_kill_process(pid) == Err(Errno::SRCH) {
            return false;
        }
        // The start time of another user's process may be unreadable; then the process counts as the same.
        start_of(self.pid).is_none_or(|started| started == self.started)
    }
}

/// Scope of a process number: this boot of this host, and this PID namespace.
fn system() -> String {
    let boot = fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let namespace = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    let digest = Sha256::new().chain_update(boot).chain_update(namespace.as_os_str().as_bytes()).finalize();
    digest.iter().take(4).map(|byte| format!("{byte:02x}")).collect()
}

/// Start time of a process in ticks since boot.
fn start_of(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The program name may contain any character, and ends with the last parenthesis.
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, kind: EntryKind, modified: Duration) -> DirEntry {
        let modified_ns = i64::try_from(modified.as_nanos()).expect("a time");
        let name = name.into();
        DirEntry { name, kind, size: 0, mode: 0o755, modified_ns, uid: 0, gid: 0, link: None }
    }

    #[test]
    fn only_the_directory_of_an_exited_process_is_abandoned() {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("now");
        let (this, system) = (Owner::this(), system());
        assert!(sandbar::sandbox::is_leftover(this.name().as_bytes()));
        assert_eq!(Owner::of(&this.name()), Some(Owner::this()));
        let earlier = Owner { started: this.started + 1, ..Owner::this() };
        let table = [
            (this.name(), EntryKind::Dir, now, false),
            (earlier.name(), EntryKind::Dir, now, true),
            (earlier.name(), EntryKind::File, now, false),
            (format!("{PREFIX}{system}-{}-1", i32::MAX), EntryKind::Dir, now, true),
            (format!("{PREFIX}00000000-1-1"), EntryKind::Dir, now, false),
            (format!("{PREFIX}00000000-1-1"), EntryKind::Dir, now - 2 * OLD, true),
            (format!("{PREFIX}{system}-0-1"), EntryKind::Dir, now, false),
            (format!("{PREFIX}notes"), EntryKind::Dir, now - 2 * OLD, false),
        ];
        for (name, kind, modified, abandoned) in table {
            assert_eq!(is_abandoned(&entry(&name, kind, modified)), abandoned, "{name} {kind:?}");
        }
    }

    /// Tested with a machine that has only the required features, and one that has all features.
    #[test]
    fn a_tree_is_placed_on_every_kind_of_machine() {
        use sandbar::{
            SandboxClient,
            machine::{Bare, tar},
            once,
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
        let archive = |word: &'static [u8]| {
            let mut bytes = tar::Member::new(tar::Kind::Dir, b"sub", 0o750).encode().to_vec();
            for name in ["sub/file", "top"] {
                let size = word.len() as u64;
                let member = tar::Member { size, ..tar::Member::new(tar::Kind::File, name.as_bytes(), 0o640) };
                bytes.extend_from_slice(&member.encode());
                bytes.extend_from_slice(word);
                bytes.extend(std::iter::repeat_n(0, tar::padding(size)));
            }
            bytes.extend_from_slice(&tar::end());
            once(bytes)
        };
        runtime.block_on(async {
            let whole =
                sandbar::client::UnixLocal::new().create(sandbar::MachineSpec::default()).await.expect("machine");
            let bare = Bare::new(whole.clone());
            for (machine, place) in [(whole.as_ref() as &dyn Machine, "whole"), (&bare, "bare")] {
                let root = MachinePath::workspace();
                let at = |path: &str| Target::from(root.join(path).expect("path")).beneath(root.clone());
                let stage = Stage::new(machine);
                let left = Owner { started: 1, ..Owner::this() }.name();
                machine.make_dir(&at(&format!("{place}/{left}/x"))).await.expect("make_dir");
                let tree = at(&format!("{place}/tree"));
                for word in [b"old".as_slice(), b"new"] {
                    stage.tree(&tree, archive(word)).await.expect("placed");
                    let entries = machine.list(&at(place)).await.expect("list");
                    assert_eq!(entries.iter().map(|entry| entry.name.to_owned()).collect::<Vec<_>>(), ["tree"]);
                    for name in ["sub/file", "top"] {
                        let file = machine.read(&below(&tree, name).expect("path")).await.expect("read");
                        assert_eq!(sandbar::collect(file, 100).await.expect("bytes"), word, "{place} {name}");
                    }
                    let names = machine.list(&tree).await.expect("list");
                    assert_eq!(names.iter().map(|entry| entry.mode).collect::<Vec<_>>(), [0o750, 0o640], "{place}");
                }
                let file = at(&format!("{place}/file")).mode(0o600);
                stage.file(&file, once("text")).await.expect("placed");
                stage.file(&tree, once("text")).await.expect_err("it is a directory");
                assert_eq!(machine.list(&at(place)).await.expect("list").len(), 2, "{place}");
            }
            whole.stop().await.expect("stop");
        });
    }

    #[test]
    fn errors_name_the_destination() {
        let path = |path: &str| MachinePath::new(path).expect("path");
        let (stage, target) = (path("/w/.sandbar-copy-x"), path("/w/tree"));
        let full = MachineError::Exhausted { what: "disk space".to_owned(), reason: format!("{stage}: x: full") };
        let table = [
            (MachineError::NotFound(path("/w/.sandbar-copy-x/a/b")), "/w/tree/a/b"),
            (MachineError::NotFound(stage.clone()), "/w/tree"),
            (MachineError::NotFound(path("/w/.sandbar-copy-xy")), "/w/.sandbar-copy-xy"),
            (full, "/w/tree: x: full"),
        ];
        for (error, words) in table {
            let shown = shown_as(error, &stage, &target).to_string();
            assert!(shown.contains(words), "{shown}");
        }
    }
}
