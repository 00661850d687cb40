//! Tests of runs on real trees in temporary directories: copy, diff, apply.

mod copying;
mod crowd;
mod hostile;
mod random;
mod returning;
mod showing;

use std::{
    collections::BTreeMap,
    fs,
    os::unix::{ffi::OsStrExt, fs::PermissionsExt},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use tempfile::TempDir;

use super::*;
use crate::error::full;

/// A source, and a store beside it.
struct World {
    temp: TempDir,
    store: RunStore,
}

impl World {
    fn new() -> Self {
        Self::on(tempfile::tempdir().unwrap())
    }

    fn on(temp: TempDir) -> Self {
        fs::create_dir(temp.path().join("source")).unwrap();
        let store = RunStore::at(temp.path().join("state/sandbar/runs")).unwrap();
        Self { temp, store }
    }

    fn source(&self) -> PathBuf {
        self.temp.path().join("source")
    }

    fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        write(&self.source(), path, content);
    }

    /// A run on a copy of the source.
    fn run(&self) -> RunDir {
        let run = self.store.begin("do it").unwrap();
        copy(&run, &self.source()).unwrap();
        let mut record = run.record().unwrap();
        record.status = RunStatus::Completed;
        run.save(&record).unwrap();
        run
    }
}

fn write(root: &Path, path: &str, content: impl AsRef<[u8]>) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

fn copy(run: &RunDir, source: &Path) -> Result<CopyReport> {
    run.copy_in(source, &CopyOptions::default())
}

/// An error with its causes and its advice.
fn text(error: &Error) -> String {
    [full(error), error.advice().unwrap_or_default().to_owned()].join("; ")
}

/// The whole diff of a run.
fn diff(run: &RunDir) -> Vec<u8> {
    let (changes, diff) = (run.changes(Scope::NotIgnored).unwrap(), run.diff().unwrap());
    changes.shown().flat_map(|change| diff.patch(change).unwrap().text).collect()
}

/// Each change as a verb and a path.
fn verbs(changes: &Changes) -> Vec<String> {
    changes.shown().map(|change| format!("{} {}", change.verb(), change.path)).collect()
}

/// Everything in a tree that git sees: kind and content by name.
fn tree(root: &Path) -> BTreeMap<Vec<u8>, (String, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut left = vec![root.to_owned()];
    while let Some(dir) = left.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let meta = fs::symlink_metadata(&path).unwrap();
            let name = path.strip_prefix(root).unwrap().as_os_str().as_bytes().to_vec();
            if meta.is_dir() {
                left.push(path);
            } else if meta.is_symlink() {
                let to = fs::read_link(&path).unwrap().as_os_str().as_bytes().to_vec();
                found.insert(name, ("link".to_owned(), to));
            } else {
                let program = meta.permissions().mode() & 0o100 != 0;
                let kind = if program { "program" } else { "file" };
                found.insert(name, (kind.to_owned(), fs::read(&path).unwrap()));
            }
        }
    }
    found
}

/// Applies a diff with git itself.
fn git_apply(dir: &Path, diff: &[u8]) -> Result<(), String> {
    let mut command = Command::new("git");
    command.args(["apply", "--whitespace=nowarn", "-"]).current_dir(dir).env("GIT_CEILING_DIRECTORIES", "/");
    command.env("GIT_DIR", "/nonexistent").env_remove("GIT_WORK_TREE");
    command.stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), diff).unwrap();
    let output = child.wait_with_output().unwrap();
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}
