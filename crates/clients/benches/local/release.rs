//! The `sandbar` command, built for release.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

/// Builds the command, which is not part of the measurement, and returns its path.
pub(crate) fn sandbar() -> PathBuf {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--release", "--package", "sandbar-cli"]).current_dir(env!("CARGO_MANIFEST_DIR"));
    // With the variables that cargo set for this program, build scripts that watch them would rebuild everything.
    for (name, _) in std::env::vars_os() {
        if ["CARGO_MANIFEST_", "CARGO_PKG_"].iter().any(|start| name.to_string_lossy().starts_with(start)) {
            cargo.env_remove(name);
        }
    }
    assert!(cargo.status().unwrap().success(), "the command can be built");
    // Benchmarks are built into `release/deps`.
    let here = std::env::current_exe().unwrap();
    here.parent().and_then(Path::parent).unwrap().join("sandbar")
}
