//! Directories of runs, written by the tests.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, lchown},
    path::{Path, PathBuf},
};

use serde_json::json;

use super::rig::Sandbar;

pub(crate) const ID: &str = "0199f3a2-7c1e-7000-8000-0000000000a1";

/// What is in a file at the beginning, and its digest.
pub(crate) const ONE: &str = "one\n";
const SUM_OF_ONE: &str = "2c8b08da5ce60398e1f19af0e5dccc744df274b826abe585eaba68c525434806";

/// A run on a copy of `source`, in which `kept` and `dir/changes` are `one`.
pub(crate) fn make(sandbar: &Sandbar, id: &str) -> PathBuf {
    let source = sandbar.dir().join("source");
    let run = sandbar.dir().join("state/sandbar/runs").join(id);
    let file = json!({"kind": "file", "mode": 0o644, "size": 4, "sha256": SUM_OF_ONE, "at": 0});
    let base = json!({"version": 1, "entries": {
        ".gitignore": {"kind": "file", "mode": 0o644, "size": 4, "sha256": SUM_OF_ONE},
        "dir": {"kind": "dir", "mode": 0o755},
        "dir/changes": file,
        "kept": file,
    }});
    let record = json!({
        "version": 1,
        "id": id,
        "prompt": "Fix the bug\nand say why",
        "created_at": "2026-01-02T03:04:05Z",
        "status": "completed",
        "source": source.to_str().unwrap(),
        "final_output": "done",
    });
    for root in [&source, &run.join("workspace")] {
        for path in ["dir/changes", "kept", ".gitignore"] {
            write(root, path, ONE);
        }
    }
    write(&run, "record.json", record.to_string());
    write(&run, "base.json", base.to_string());
    write(&run, "base.data", ONE);
    fs::set_permissions(run.parent().unwrap(), fs::Permissions::from_mode(0o700)).unwrap();
    give(sandbar);
    run
}

/// Everything made here belongs to whom the program runs as.
pub(crate) fn give(sandbar: &Sandbar) {
    let own = fs::metadata(sandbar.dir()).map(|meta| std::os::unix::fs::MetadataExt::uid(&meta)).unwrap();
    let mut left = vec![sandbar.dir().join("source"), sandbar.dir().join("state")];
    while let Some(path) = left.pop() {
        lchown(&path, Some(own), Some(own)).unwrap();
        if fs::symlink_metadata(&path).unwrap().is_dir() {
            left.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
}

pub(crate) fn write(root: &Path, path: &str, content: impl AsRef<[u8]>) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}
