//! What is published builds: each crate from its own package, the guest inside it from the packaged sources, offline.

#![allow(clippy::expect_used, reason = "a test")]

use std::{
    env, fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

#[test]
fn the_packaged_crates_build() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let place = root.join("target/packaged");
    let _not_there = fs::remove_dir_all(&place);
    let packages = [
        "sandbar-machine",
        "sandbar-guest",
        "sandbar-sandbox",
        "sandbar-clients",
        "sandbar-macros",
        "sandbar-agent",
        "sandbar-mock",
        "sandbar",
        "sandbar-cli",
    ];
    let run = Command::new(cargo)
        .args(["package", "--offline", "--allow-dirty", "--quiet"])
        .args(packages.iter().flat_map(|package| ["--package", package]))
        // Its own directory: the outer cargo holds the lock of the usual one.
        .arg("--target-dir")
        .arg(&place)
        .env("CARGO_HOME", cargo_home(&place.join("home")))
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .current_dir(root)
        .output()
        .expect("cargo runs");
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
}

/// A home for cargo with everything that is in the usual one but unpacked sources: a package of the same version that was
/// unpacked before would be taken for this one.
fn cargo_home(place: &Path) -> PathBuf {
    let usual = env::var_os("CARGO_HOME").map(PathBuf::from);
    let usual = usual.or_else(|| env::home_dir().map(|home| home.join(".cargo"))).expect("a home for cargo");
    fs::create_dir_all(place.join("registry")).expect("a directory");
    for (from, to, left_out) in
        [(usual.clone(), place.to_owned(), "registry"), (usual.join("registry"), place.join("registry"), "src")]
    {
        for entry in fs::read_dir(from).into_iter().flatten().flatten().filter(|entry| entry.file_name() != left_out) {
            symlink(entry.path(), to.join(entry.file_name())).expect("a link");
        }
    }
    place.to_owned()
}
