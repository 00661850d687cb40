//! A directory that becomes an archive, removed when it is dropped.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use super::write;
use crate::program::{self, Failure, Result};

pub(super) struct Tree(PathBuf);

impl Tree {
    /// An empty one, beside what it becomes.
    pub(super) fn new(out: &Path, name: &str) -> Result<Self> {
        let tree = Self(out.join(format!(".{name}-{}", std::process::id())));
        let _left_by_a_dead_process = fs::remove_dir_all(&tree.0);
        tree.make(&tree.0)?;
        Ok(tree)
    }

    pub(super) fn file(&mut self, path: &str, bytes: &[u8]) -> Result {
        self.add(path, bytes, 0o644)
    }

    pub(super) fn program(&mut self, path: &str, bytes: &[u8]) -> Result {
        self.add(path, bytes, 0o755)
    }

    /// A manual page or another text, compressed as Debian wants it.
    pub(super) fn compressed(&mut self, path: &str, bytes: &[u8]) -> Result {
        self.file(path, bytes)?;
        program::run(program::at_root("gzip").args(["-9", "-n"]).arg(self.0.join(path)))
    }

    fn add(&mut self, path: &str, bytes: &[u8], mode: u32) -> Result {
        let path = self.0.join(path);
        let mut above: Vec<&Path> = path.ancestors().skip(1).take_while(|above| above.starts_with(&self.0)).collect();
        above.reverse();
        above.into_iter().try_for_each(|above| self.make(above))?;
        write(&path, bytes)?;
        permit(&path, mode)
    }

    /// Directories are readable to all, whatever the umask.
    fn make(&self, path: &Path) -> Result {
        if path.is_dir() {
            return Ok(());
        }
        fs::create_dir(path).map_err(|error| Failure::new(format!("cannot make {}: {error}", path.display())))?;
        permit(path, 0o755)
    }

    /// Size of all files in bytes.
    pub(super) fn bytes(&self) -> u64 {
        fn below(folder: &Path) -> u64 {
            let entries = fs::read_dir(folder).into_iter().flatten().flatten();
            let size = |path: &Path| path.metadata().map_or(0, |about| about.len());
            entries.map(|entry| entry.path()).map(|path| if path.is_dir() { below(&path) } else { size(&path) }).sum()
        }
        below(&self.0)
    }

    /// Packs what is at `from` in it. Everything belongs to root and has one date.
    pub(super) fn pack(&self, from: &str, date: &str, archive: &Path) -> Result {
        let mut tar = program::at_root("tar");
        tar.args(["--create", "--gzip", "--format=gnu", "--sort=name", "--owner=0", "--group=0", "--numeric-owner"]);
        tar.arg(format!("--mtime=@{date}")).arg("--file").arg(archive).arg("--directory").arg(&self.0).arg(from);
        program::run(&mut tar)
    }
}

fn permit(path: &Path, mode: u32) -> Result {
    let permissions = fs::Permissions::from_mode(mode);
    fs::set_permissions(path, permissions).map_err(|error| Failure::new(format!("{}: {error}", path.display())))
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _left_for_the_next_run = fs::remove_dir_all(&self.0);
    }
}
