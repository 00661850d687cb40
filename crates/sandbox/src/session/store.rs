//! The sessions of this user on this host, one small file each, so that another process can find them again.

use std::{
    fs::{self, DirBuilder, File},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use rustix::fs::OFlags;

use super::SessionState;
use crate::{Result, SandboxError};

/// A saved session is never larger than this; one whose manifest holds more is refused.
const STATE_LIMIT: u64 = 64 << 20;

/// A directory of saved sessions that only its user can read.
#[derive(Clone, Debug)]
pub struct SessionStore {
    dir: PathBuf,
}

impl SessionStore {
    /// A store in this directory, which is made if missing. One that others could write to is refused.
    ///
    /// # Errors
    /// `session_store_error`.
    pub fn open(dir: impl Into<PathBuf>) -> Result<Self> {
        let dir = dir.into();
        let failed = |cause: io::Error| store_error(&dir, "it cannot be used").because(cause);
        DirBuilder::new().recursive(true).mode(0o700).create(&dir).map_err(failed)?;
        let found = fs::symlink_metadata(&dir).map_err(failed)?;
        let own = rustix::process::geteuid().as_raw();
        if !found.is_dir() || found.uid() != own || found.mode() & 0o022 != 0 {
            return Err(store_error(&dir, "it is a link, belongs to somebody else, or others may write to it"));
        }
        Ok(Self { dir })
    }

    /// Saves a session, in one step.
    ///
    /// # Errors
    /// `session_store_error`.
    pub fn save(&self, state: &SessionState) -> Result<()> {
        let place = self.file(&state.session_id)?;
        let failed = |cause: io::Error| store_error(&place, "it cannot be saved").because(cause);
        let text = serde_json::to_vec_pretty(state).map_err(|cause| failed(cause.into()))?;
        if text.len() as u64 > STATE_LIMIT {
            return Err(SandboxError::limit_exceeded("the saved session", STATE_LIMIT, text.len() as u64));
        }
        self.name_is_free(state)?;
        let temporary = self.dir.join(format!(".{}.{}", state.session_id, uuid::Uuid::new_v4().simple()));
        let written = File::options().write(true).create_new(true).mode(0o600).open(&temporary).and_then(|mut file| {
            file.write_all(&text)?;
            file.sync_all()?;
            fs::rename(&temporary, &place)?;
            File::open(&self.dir)?.sync_all()
        });
        written.map_err(|cause| {
            let _was_never_made = fs::remove_file(&temporary);
            failed(cause)
        })
    }

    fn name_is_free(&self, state: &SessionState) -> Result<()> {
        let Some(name) = &state.name else { return Ok(()) };
        let taken = |other: &&SessionState| other.name.as_ref() == Some(name) && other.session_id != state.session_id;
        match self.list()?.iter().find(taken) {
            None => Ok(()),
            Some(other) => {
                let reason = format!("the name {name:?} is taken by {}", other.session_id);
                Err(SandboxError::sandbox_config_invalid("the session's name", reason))
            }
        }
    }

    /// All sessions, newest first. A file that is not one is passed over.
    ///
    /// # Errors
    /// `session_store_error` when the directory cannot be read.
    pub fn list(&self) -> Result<Vec<SessionState>> {
        let failed = |cause: io::Error| store_error(&self.dir, "it cannot be read").because(cause);
        let mut states = Vec::new();
        for entry in fs::read_dir(&self.dir).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            if path.extension().is_some_and(|extension| extension == "json") {
                match read(&path) {
                    Ok(state) => states.push(state),
                    Err(error) => {
                        tracing::warn!(path = %path.display(), %error, "passed over a file that is no session")
                    }
                }
            }
        }
        states.sort_by(|one, other| (other.created_at, &other.session_id).cmp(&(one.created_at, &one.session_id)));
        Ok(states)
    }

    /// The session with this id, this name, or the only one whose id begins or ends so.
    ///
    /// # Errors
    /// `session_not_found`, also when several fit.
    pub fn find(&self, given: &str) -> Result<SessionState> {
        let states = self.list()?;
        // An id is an id, whatever others are called.
        let mut found: Vec<&SessionState> = states.iter().filter(|state| state.session_id == given).collect();
        if found.is_empty() {
            found = states.iter().filter(|state| state.name.as_deref() == Some(given)).collect();
        }
        if found.is_empty() && given.len() >= 4 {
            let part = |state: &&SessionState| state.session_id.starts_with(given) || state.session_id.ends_with(given);
            found = states.iter().filter(part).collect();
        }
        match found[..] {
            [] => Err(SandboxError::session_not_found(given, "there is none of this id or name")),
            [one] => Ok(one.clone()),
            _ => Err(SandboxError::session_not_found(given, "several sessions fit; give the whole id")),
        }
    }

    /// Forgets a session; one that is not there is fine.
    ///
    /// # Errors
    /// `session_store_error`.
    pub fn remove(&self, session_id: &str) -> Result<()> {
        let place = self.file(session_id)?;
        match fs::remove_file(&place) {
            Err(cause) if cause.kind() != io::ErrorKind::NotFound => {
                Err(store_error(&place, "it cannot be removed").because(cause))
            }
            _ => Ok(()),
        }
    }

    fn file(&self, session_id: &str) -> Result<PathBuf> {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
        if session_id.is_empty() || session_id.len() > 64 || !session_id.chars().all(plain) {
            return Err(SandboxError::session_not_found(session_id, "this is not an id"));
        }
        Ok(self.dir.join(format!("{session_id}.json")))
    }
}

fn read(path: &Path) -> io::Result<SessionState> {
    // Whatever else may have been put there is neither followed nor waited for.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = File::options().read(true).custom_flags(flags.bits().cast_signed()).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut text = Vec::new();
    file.take(STATE_LIMIT).read_to_end(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}

fn store_error(path: &Path, reason: &str) -> SandboxError {
    SandboxError::session_store_error(path.display().to_string(), reason)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use sandbar_machine::MachineHandle;
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
            exposed_ports: vec![80],
            workspace_root_ready: true,
        }
    }

    #[test]
    fn what_is_saved_is_found_again_newest_first() {
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
    fn two_that_fit_are_not_guessed_between() {
        let temp = tempfile::tempdir().unwrap();
        let store = SessionStore::open(temp.path().join("s")).unwrap();
        store.save(&state("aaaa-1", Some("one"), 1)).unwrap();
        assert_eq!(store.save(&state("aaaa-2", Some("one"), 2)).unwrap_err().code(), "sandbox_config_invalid");
        store.save(&state("aaaa-2", Some("two"), 2)).unwrap();
        assert!(store.find("aaaa").unwrap_err().to_string().contains("several"));
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
    fn a_directory_that_others_could_fill_is_refused() {
        let temp = tempfile::tempdir().unwrap();
        fs::set_permissions(temp.path(), fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(SessionStore::open(temp.path()).unwrap_err().code(), "session_store_error");
    }
}
