//! The temporary directory of one test run: its own, and not empty, because no test may depend on what lies there.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use crate::program::{Failure, Result};

/// Names that tests use below directories of their own.
const STRANGERS: [&str; 8] = ["new", "file", "evil", "out", "link", "workspace", "home", "a"];

/// Short: the paths of sockets are built on it. The process id follows.
const PREFIX: &str = "sbt-";

/// Removed when it is dropped.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new() -> Result<Self> {
        sweep();
        let scratch = Self(std::env::temp_dir().join(format!("{PREFIX}{}", std::process::id())));
        scratch.fill().map_err(|error| Failure::new(format!("{}: {error}", scratch.0.display())))?;
        Ok(scratch)
    }

    /// Other users take part in the tests, so it is as open as the usual one.
    fn fill(&self) -> std::io::Result<()> {
        let _not_there = fs::remove_dir_all(&self.0);
        fs::create_dir(&self.0)?;
        fs::set_permissions(&self.0, fs::Permissions::from_mode(0o1777))?;
        for name in STRANGERS {
            fs::write(self.0.join(name), "in the way")?;
        }
        Ok(())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

/// Removes what interrupted runs left.
fn sweep() {
    for entry in fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let owner = name.strip_prefix(PREFIX).and_then(|number| number.parse::<u32>().ok());
        if owner.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            let _owned_by_another_user = fs::remove_dir_all(entry.path());
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _left_to_the_system = fs::remove_dir_all(&self.0);
    }
}
