//! The directory of everything that outlives a process: runs, sessions and the machines of sessions.

use std::{
    env,
    path::{Path, PathBuf},
};

use crate::{Error, ErrorKind, Result};

/// Where runs and sessions of one user are stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateDir(PathBuf);

impl StateDir {
    /// The given directory.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// `$XDG_STATE_HOME/sandbar`, or `~/.local/state/sandbar`.
    pub fn from_env() -> Result<Self> {
        Self::choose(env::var_os("XDG_STATE_HOME").map(PathBuf::from), env::home_dir())
    }

    fn choose(state_home: Option<PathBuf>, home: Option<PathBuf>) -> Result<Self> {
        // The XDG specification says that a relative path is ignored.
        let state_home = state_home.filter(|dir| dir.is_absolute());
        let home = || home.filter(|home| home.is_absolute()).map(|home| home.join(".local/state"));
        let found = state_home.or_else(home).ok_or_else(|| {
            let message = "cannot tell where sessions are kept; neither XDG_STATE_HOME nor HOME is set";
            Error::new(ErrorKind::StateDir, message).with_advice("set XDG_STATE_HOME to a directory of your own")
        })?;
        Ok(Self(found.join("sandbar")))
    }

    /// The directory itself.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The directory of runs.
    pub fn runs(&self) -> PathBuf {
        self.0.join("runs")
    }

    /// The directory of the records of sessions.
    pub fn sessions(&self) -> PathBuf {
        self.0.join("sessions")
    }

    /// The directory of the journals of patches to directories of the host.
    pub fn patches(&self) -> PathBuf {
        self.0.join("patches")
    }

    /// The directory of the machines of sessions.
    pub fn machines(&self) -> PathBuf {
        self.0.join("machines")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_is_stored_where_the_environment_says() {
        let found = |state: &str, home: &str| {
            let path = |text: &str| Some(PathBuf::from(text)).filter(|path| !path.as_os_str().is_empty());
            StateDir::choose(path(state), path(home)).map(|dir| dir.path().display().to_string()).ok()
        };
        assert_eq!(found("/state", "/home/a").as_deref(), Some("/state/sandbar"));
        assert_eq!(found("", "/home/a").as_deref(), Some("/home/a/.local/state/sandbar"));
        assert_eq!(found("relative", "/home/a").as_deref(), Some("/home/a/.local/state/sandbar"));
        assert_eq!(found("", ""), None);
        assert_eq!(found("relative", "too"), None);
    }
}
