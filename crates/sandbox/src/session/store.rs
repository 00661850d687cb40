//! The saved sessions of this user on this host, one small file each, so that another process can find them.

mod names;

use std::{
    fs::{self, DirBuilder, File},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::fs::OFlags;
use sandbar_machine::MachineHandle;

use self::names::Names;
use super::SessionState;
use crate::{Result, SandboxError};

/// Maximum size of a saved session, in bytes; a session with a larger manifest is refused.
const STATE_LIMIT: u64 = 64 << 20;

/// Longer than writing such a file takes: an older temporary file is a leftover.
const WRITING: Duration = Duration::from_secs(5 * 60);

/// A saved session whose file is unusable.
#[derive(Clone, Debug, PartialEq)]
pub struct DamagedSession {
    /// Id in the name of the file.
    pub session_id: String,
    /// Why the file is unusable.
    pub reason: String,
    /// Handle of the machine, if it can still be read.
    pub machine: Option<MachineHandle>,
}

/// Creates a directory that only its user can write to. An existing directory that other users can write to is refused.
pub(crate) fn private_directory(dir: &Path) -> Result<()> {
    let failed = |cause: io::Error| store_error(dir, "the directory cannot be used").because(cause);
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(failed)?;
    let found = fs::symlink_metadata(dir).map_err(failed)?;
    let own = rustix::process::geteuid().as_raw();
    if !found.is_dir() || found.uid() != own || found.mode() & 0o022 != 0 {
        return Err(store_error(dir, "it is a link, belongs to another user, or others may write to it"));
    }
    Ok(())
}

/// A directory of saved sessions that only its user can read.
#[derive(Clone, Debug)]
pub struct SessionStore {
    dir: PathBuf,
}

impl SessionStore {
    /// A store in this directory, which is created if missing. A directory that other users can write to is refused.
    ///
    /// # Errors
    /// `session_store_error`.
    pub fn open(dir: impl Into<PathBuf>) -> Result<Self> {
        let dir = dir.into();
        private_directory(&dir)?;
        Ok(Self { dir })
    }

    /// Saves a session atomically.
    ///
    /// # Errors
    /// `session_store_error`.
    pub fn save(&self, state: &SessionState) -> Result<()> {
        let path = self.file(&state.session_id)?;
        let failed = |cause: io::Error| store_error(&path, "the session cannot be saved").because(cause);
        let text = serde_json::to_vec_pretty(state).map_err(|cause| failed(cause.into()))?;
        if text.len() as u64 > STATE_LIMIT {
            return Err(SandboxError::limit_exceeded("the saved session", STATE_LIMIT, text.len() as u64));
        }
        // Hold the lock until the record exists: another process may take the name of an id without a record.
        let _names = self.take_name(state)?;
        let temporary = self.temporary(&state.session_id);
        let written = File::options().write(true).create_new(true).mode(0o600).open(&temporary).and_then(|mut file| {
            file.write_all(&text)?;
            file.sync_all()?;
            fs::rename(&temporary, &path)?;
            File::open(&self.dir)?.sync_all()
        });
        written.map_err(|cause| {
            let _was_never_made = fs::remove_file(&temporary);
            failed(cause)
        })
    }

    /// The id of the session with this name.
    ///
    /// # Errors
    /// `session_store_error`.
    pub fn named(&self, name: &str) -> Result<Option<String>> {
        let names = Names::lock(&self.dir).map_err(|cause| self.no_names(cause))?;
        let owner = names.owner(name).map_err(|cause| self.no_names(cause))?;
        Ok(owner.filter(|id| self.has_record(id)))
    }

    /// Gives the session its name, unless another session has it.
    fn take_name(&self, state: &SessionState) -> Result<Option<Names>> {
        let Some(name) = &state.name else { return Ok(None) };
        let names = Names::lock(&self.dir).map_err(|cause| self.no_names(cause))?;
        match names.owner(name).map_err(|cause| self.no_names(cause))? {
            Some(owner) if owner == state.session_id => return Ok(Some(names)),
            Some(owner) if self.has_record(&owner) => {
                let reason = format!("the name {name:?} is taken by {owner}");
                return Err(SandboxError::sandbox_config_invalid("the session's name", reason));
            }
            _ => {}
        }
        let temporary = self.temporary(&state.session_id);
        names.give(name, &state.session_id, &temporary).map_err(|cause| {
            let _was_never_made = fs::remove_file(&temporary);
            self.no_names(cause)
        })?;
        Ok(Some(names))
    }

    /// The name of a temporary file of this session.
    fn temporary(&self, session_id: &str) -> PathBuf {
        self.dir.join(format!(".{session_id}.{}", uuid::Uuid::new_v4().simple()))
    }

    fn has_record(&self, session_id: &str) -> bool {
        self.file(session_id).is_ok_and(|file| file.symlink_metadata().is_ok())
    }

    fn no_names(&self, cause: io::Error) -> SandboxError {
        store_error(&self.dir, "the names of sessions cannot be used").because(cause)
    }

    /// All sessions, newest first. Sessions whose file is [damaged](Self::damaged) are left out.
    ///
    /// # Errors
    /// `session_store_error` when the directory cannot be read.
    pub fn list(&self) -> Result<Vec<SessionState>> {
        Ok(self.read_all()?.0)
    }

    /// The sessions whose file is unusable, sorted by id.
    ///
    /// # Errors
    /// `session_store_error` when the directory cannot be read.
    pub fn damaged(&self) -> Result<Vec<DamagedSession>> {
        Ok(self.read_all()?.1)
    }

    fn read_all(&self) -> Result<(Vec<SessionState>, Vec<DamagedSession>)> {
        let failed =
            |cause: io::Error| store_error(&self.dir, "the directory of sessions cannot be read").because(cause);
        let (mut states, mut damaged) = (Vec::new(), Vec::new());
        for entry in fs::read_dir(&self.dir).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let Some(session_id) = id_of(&path) else { continue };
            match read(&path) {
                Ok(Content::Session(state)) if state.session_id == session_id => states.push(*state),
                Ok(Content::Session(_)) => {
                    let reason = "it holds a session with another id".to_owned();
                    damaged.push(DamagedSession { session_id, reason, machine: None });
                }
                Ok(Content::Damaged { reason, machine }) => {
                    damaged.push(DamagedSession { session_id, reason, machine })
                }
                // Another process removed it meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => damaged.push(DamagedSession { session_id, reason: error.to_string(), machine: None }),
            }
        }
        states.sort_by(|one, other| (other.created_at, &other.session_id).cmp(&(one.created_at, &one.session_id)));
        damaged.sort_by(|one, other| one.session_id.cmp(&other.session_id));
        Ok((states, damaged))
    }

    /// The session with this id or name, or the only one whose id begins or ends with this text (at least 4
    /// characters).
    ///
    /// # Errors
    /// `session_not_found`, also if several match; `session_damaged` with its id if the only match is damaged.
    pub fn find(&self, given: &str) -> Result<SessionState> {
        let (states, damaged) = self.read_all()?;
        let broken = |one: &DamagedSession| SandboxError::session_damaged(&one.session_id, &one.reason);
        // An exact id wins over names.
        let mut found: Vec<&SessionState> = states.iter().filter(|state| state.session_id == given).collect();
        if let Some(one) = damaged.iter().find(|one| one.session_id == given && found.is_empty()) {
            return Err(broken(one));
        }
        if found.is_empty() {
            found = states.iter().filter(|state| state.name.as_deref() == Some(given)).collect();
        }
        let mut also = Vec::new();
        if found.is_empty() && given.len() >= 4 {
            let part = |id: &str| id.starts_with(given) || id.ends_with(given);
            found = states.iter().filter(|state| part(&state.session_id)).collect();
            also = damaged.iter().filter(|one| part(&one.session_id)).collect();
        }
        match (&found[..], &also[..]) {
            ([], []) => Err(SandboxError::session_not_found(given, "there is none of this id or name")),
            ([one], []) => Ok((*one).clone()),
            ([], [one]) => Err(broken(one)),
            _ => Err(SandboxError::session_not_found(given, "several sessions match; give the whole id")),
        }
    }

    /// Removes the record of a session; a missing record is not an error.
    ///
    /// # Errors
    /// `session_store_error`.
    pub fn remove(&self, session_id: &str) -> Result<()> {
        let path = self.file(session_id)?;
        // A name without a record is free anyway; removing it only keeps the directory small.
        if let Ok(Content::Session(state)) = read(&path)
            && let Some(name) = &state.name
        {
            let names = Names::lock(&self.dir).map_err(|cause| self.no_names(cause))?;
            names.release(name, session_id).map_err(|cause| self.no_names(cause))?;
        }
        removed(&path)
    }

    /// Names of the leftover temporary files of killed writers.
    ///
    /// # Errors
    /// `session_store_error` when the directory cannot be read.
    pub fn half_written(&self) -> Result<Vec<String>> {
        let failed =
            |cause: io::Error| store_error(&self.dir, "the directory of sessions cannot be read").because(cause);
        let mut left = Vec::new();
        for entry in fs::read_dir(&self.dir).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            // A file that is gone by now was finished.
            let Ok(found) = entry.metadata() else { continue };
            let age = found.modified().ok().and_then(|at| at.elapsed().ok());
            if is_temporary(&name) && found.is_file() && age.is_some_and(|age| age > WRITING) {
                left.push(name);
            }
        }
        left.sort();
        Ok(left)
    }

    /// Removes a [half-written](Self::half_written) file; a missing file is not an error.
    ///
    /// # Errors
    /// `session_store_error`, also if the name is not that of a temporary file.
    pub fn remove_half_written(&self, name: &str) -> Result<()> {
        let path = self.dir.join(name);
        if !is_temporary(name) {
            return Err(store_error(&path, "it is not a half-written record"));
        }
        removed(&path)
    }

    fn file(&self, session_id: &str) -> Result<PathBuf> {
        if !is_id(session_id) {
            return Err(SandboxError::session_not_found(session_id, "this is not an id"));
        }
        Ok(self.dir.join(format!("{session_id}.json")))
    }
}

fn removed(path: &Path) -> Result<()> {
    let is_directory = path.symlink_metadata().is_ok_and(|found| found.is_dir());
    match if is_directory { fs::remove_dir_all(path) } else { fs::remove_file(path) } {
        Err(cause) if cause.kind() != io::ErrorKind::NotFound => {
            Err(store_error(path, "the record cannot be removed").because(cause))
        }
        _ => Ok(()),
    }
}

/// Whether this is the name of a temporary file: a dot, the id of a session, a dot, and a random hexadecimal number.
fn is_temporary(name: &str) -> bool {
    let parts = name.strip_prefix('.').and_then(|rest| rest.split_once('.'));
    parts.is_some_and(|(session_id, random)| {
        is_id(session_id) && random.len() == 32 && random.bytes().all(|byte| byte.is_ascii_hexdigit())
    })
}

fn is_id(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
    !text.is_empty() && text.len() <= 64 && text.chars().all(plain)
}

/// The session id in the name of a file.
fn id_of(path: &Path) -> Option<String> {
    let stem = path.file_name()?.to_str()?.strip_suffix(".json")?;
    is_id(stem).then(|| stem.to_owned())
}

/// The content of a file.
enum Content {
    Session(Box<SessionState>),
    Damaged { reason: String, machine: Option<MachineHandle> },
}

fn read(path: &Path) -> io::Result<Content> {
    // Do not follow a link, and do not block on a FIFO, that replaced the file.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = File::options().read(true).custom_flags(flags.bits().cast_signed()).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut text = Vec::new();
    file.take(STATE_LIMIT).read_to_end(&mut text)?;
    let fault = match serde_json::from_slice(&text) {
        Ok(state) => return Ok(Content::Session(Box::new(state))),
        Err(fault) => fault,
    };
    let reason = if text.is_empty() { "it is empty".to_owned() } else { fault.to_string() };
    let tree: Option<serde_json::Value> = serde_json::from_slice(&text).ok();
    let machine = tree.and_then(|mut tree| serde_json::from_value(tree.get_mut("machine")?.take()).ok());
    Ok(Content::Damaged { reason, machine })
}

fn store_error(path: &Path, reason: &str) -> SandboxError {
    SandboxError::session_store_error(path.display().to_string(), reason)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use serde_json::json;

    use super::*;
    use crate::Manifest;

    fn state(id: &str, name: Option<&str>, second: i64) -> SessionState {
        SessionState {
            version: 1,
            session_id: id.to_owned(),
            name: name.map(str::to_owned),
            created_at: jiff::Timestamp::from_second(second).unwrap(),
            machine: MachineHandle { client: "memory".to_owned(), state: json!({"id": 7}) },
            manifest: Manifest::new().for_saving(),
            workspace_root: None,
            exposed_ports: vec![80],
            workspace_root_ready: true,
            unfinished: false,
            processes: Vec::new(),
        }
    }

    #[test]
    fn saved_sessions_are_listed_newest_first() {
        let temp = tempfile::tempdir().unwrap();
        let store = SessionStore::open(temp.path().join("a/b")).unwrap();
        let (old, new) = (state("aaaa-1", Some("x"), 1), state("bbbb-2", None, 2));
        store.save(&old).unwrap();
        store.save(&new).unwrap();
        store.save(&new).unwrap();
        fs::write(temp.path().join("a/b/broken.json"), "{").unwrap();
        assert_eq!(store.list().unwrap(), [new.clone(), old.clone()]);
        assert_eq!(store.find("x").unwrap(), old);
        assert_eq!(store.find("aaaa").unwrap(), old);
        assert_eq!(store.find("bb-2").unwrap(), new);
        assert_eq!(store.find("b").unwrap_err().code(), "session_not_found");
        store.remove("aaaa-1").unwrap();
        store.remove("aaaa-1").unwrap();
        assert_eq!(store.list().unwrap().len(), 1);
        let mode = fs::metadata(temp.path().join("a/b/bbbb-2.json")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn damaged_records_are_reported_and_can_be_removed() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().join("s");
        let store = SessionStore::open(&dir).unwrap();
        store.save(&state("aaaa-1", Some("one"), 1)).unwrap();
        let text = fs::read_to_string(dir.join("aaaa-1.json")).unwrap();
        fs::write(dir.join("bbbb-2.json"), &text[..text.len() / 2]).unwrap();
        fs::write(dir.join("cccc-3.json"), text.replace("session_id", "other").as_bytes()).unwrap();
        fs::write(dir.join("dddd-4.json"), &text).unwrap();
        fs::write(dir.join("eeee-5.json"), "").unwrap();
        fs::create_dir_all(dir.join("gggg-7.json/deep")).unwrap();
        std::os::unix::fs::symlink("aaaa-1.json", dir.join("ffff-6.json")).unwrap();
        fs::write(dir.join("notes.txt"), "").unwrap();
        fs::write(dir.join("not an id.json"), "").unwrap();
        let damaged = store.damaged().unwrap();
        let ids: Vec<&str> = damaged.iter().map(|one| one.session_id.as_str()).collect();
        assert_eq!(ids, ["bbbb-2", "cccc-3", "dddd-4", "eeee-5", "ffff-6", "gggg-7"]);
        assert_eq!(damaged[1].machine, Some(state("x", None, 0).machine));
        assert_eq!(damaged[3].reason, "it is empty");
        assert_eq!(store.list().unwrap().len(), 1);
        for given in ["bbbb-2", "bbbb"] {
            let error = store.find(given).unwrap_err();
            assert_eq!((error.code(), error.context()["session"].as_str()), ("session_damaged", Some("bbbb-2")));
        }
        for id in ids {
            store.remove(id).unwrap();
        }
        assert_eq!((store.damaged().unwrap().len(), store.list().unwrap().len()), (0, 1));
    }

    #[test]
    fn an_ambiguous_id_is_an_error() {
        let temp = tempfile::tempdir().unwrap();
        let store = SessionStore::open(temp.path().join("s")).unwrap();
        store.save(&state("aaaa-1", Some("one"), 1)).unwrap();
        assert_eq!(store.save(&state("aaaa-2", Some("one"), 2)).unwrap_err().code(), "sandbox_config_invalid");
        store.save(&state("aaaa-2", Some("two"), 2)).unwrap();
        assert!(store.find("aaaa").unwrap_err().to_string().contains("several"));
    }

    #[test]
    fn one_of_many_concurrent_savers_gets_a_name() {
        let temp = tempfile::tempdir().unwrap();
        let store = SessionStore::open(temp.path().join("s")).unwrap();
        for round in 0..20 {
            let name = format!("name {round}");
            let save = |number: usize| store.save(&state(&format!("{round}-{number}"), Some(&name), 1));
            let results: Vec<_> = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..6).map(|number| scope.spawn(move || save(number))).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1, "{results:?}");
            let owner = store.named(&name).unwrap().unwrap();
            assert_eq!(store.find(&name).unwrap().session_id, owner);
        }
    }

    #[test]
    fn a_name_without_a_session_is_free() {
        let temp = tempfile::tempdir().unwrap();
        let store = SessionStore::open(temp.path().join("s")).unwrap();
        store.save(&state("aaaa-1", Some("x"), 1)).unwrap();
        store.remove("aaaa-1").unwrap();
        assert_eq!(store.named("x").unwrap(), None);
        store.save(&state("aaaa-2", Some("x"), 1)).unwrap();
        // The record is lost, not removed.
        fs::remove_file(temp.path().join("s/aaaa-2.json")).unwrap();
        assert_eq!(store.named("x").unwrap(), None);
        store.save(&state("aaaa-3", Some("x"), 1)).unwrap();
        store.save(&state("aaaa-3", Some("x"), 1)).unwrap();
        assert_eq!(store.named("x").unwrap().as_deref(), Some("aaaa-3"));
    }

    #[test]
    fn an_id_is_never_a_path() {
        let temp = tempfile::tempdir().unwrap();
        let store = SessionStore::open(temp.path().join("s")).unwrap();
        for id in ["../x", "", "a/b", ".", &"a".repeat(65)] {
            assert!(store.remove(id).is_err(), "{id}");
        }
    }

    #[test]
    fn a_directory_that_other_users_can_write_to_is_refused() {
        let temp = tempfile::tempdir().unwrap();
        fs::set_permissions(temp.path(), fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(SessionStore::open(temp.path()).unwrap_err().code(), "session_store_error");
    }

    #[test]
    fn leftovers_of_killed_writers_are_found_when_they_are_old_enough() {
        let temp = tempfile::tempdir().unwrap();
        let store = SessionStore::open(temp.path()).unwrap();
        let drawn = "0123456789abcdef0123456789abcdef";
        let long_ago = std::time::SystemTime::now() - WRITING - Duration::from_secs(60);
        let make = |name: &str, at| {
            let file = File::create(temp.path().join(name)).unwrap();
            file.set_modified(at).unwrap();
        };
        let old = format!(".a-1.{drawn}");
        make(&old, long_ago);
        make(&format!(".b.{drawn}"), std::time::SystemTime::now());
        for other in ["a.json", ".a-1.x", &format!("a.{drawn}"), &format!(".a/b.{drawn}").replace('/', "_"), ".swp"] {
            make(other, long_ago);
        }
        assert_eq!(store.half_written().unwrap(), [old.as_str()]);
        store.remove_half_written(&old).unwrap();
        store.remove_half_written(&old).unwrap();
        assert_eq!(store.half_written().unwrap(), [""; 0]);
        for wrong in ["a.json", "../a", &format!("../.a.{drawn}")] {
            assert_eq!(store.remove_half_written(wrong).unwrap_err().code(), "session_store_error", "{wrong}");
        }
        assert!(temp.path().join("a.json").exists() && temp.path().join(format!(".b.{drawn}")).exists());
    }
}
