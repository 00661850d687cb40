//! Runs from their beginning to the way home, on trees in temporary directories.

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
    sync::atomic::AtomicBool,
};

use tempfile::TempDir;

use super::*;
use crate::args::ApplyArgs;

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
        let copied = copy(&run, &self.source()).unwrap();
        let mut record = run.record().unwrap();
        record.source = Some(Name(copied.source.as_os_str().as_bytes().to_vec()));
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

fn copy(run: &RunDir, source: &Path) -> Result<Copied, NotCopied> {
    run.copy_in(source, CopyLimits::default(), &CopyWatch { progress: &|_| {}, cancelled: &AtomicBool::new(false) })
}

fn told(error: NotCopied) -> String {
    match error {
        NotCopied::Failed(failure) => failure.to_string(),
        NotCopied::Cancelled => "cancelled".to_owned(),
    }
}

/// The whole diff of a run.
fn diff(run: &RunDir) -> Vec<u8> {
    let (changes, diff) = (run.changes(Scope::Wanted).unwrap(), Diff::open(run, &run.record().unwrap()).unwrap());
    changes.shown().flat_map(|change| diff.patch(change).unwrap().text).collect()
}

/// What changed, as words.
fn words(changes: &Changes) -> Vec<String> {
    changes.shown().map(|change| format!("{} {}", change.verb(), change.path)).collect()
}

/// Everything in a tree that git would see: by name, what it is and holds.
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

fn apply_args() -> ApplyArgs {
    ApplyArgs { run: String::new(), to: None, force: false, yes: false, dry_run: false, all: false, json: false }
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}
