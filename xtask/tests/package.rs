//! What is published builds: each crate from its own package, the guest inside it from the packaged sources, offline.

#![allow(clippy::expect_used, reason = "a test")]

use std::{path::Path, process::Command};

#[test]
fn the_packaged_crates_build() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    // Anew: a package of the same version that was built before would be taken for this one.
    let place = root.join("target/packaged");
    let _not_there = std::fs::remove_dir_all(&place);
    let packages = ["sandbar-machine", "sandbar-guest", "sandbar-sandbox", "sandbar-clients", "sandbar", "sandbar-cli"];
    let run = Command::new(cargo)
        .args(["package", "--offline", "--allow-dirty", "--quiet"])
        .args(packages.iter().flat_map(|package| ["--package", package]))
        // Its own directory: the outer cargo holds the lock of the usual one.
        .arg("--target-dir")
        .arg(&place)
        .current_dir(root)
        .output()
        .expect("cargo runs");
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
}
