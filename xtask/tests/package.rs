//! What is published builds: each crate from its own package, the guest inside it from the packaged sources, offline.

#![allow(clippy::expect_used, reason = "a test")]

use std::{
    env, fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

const PACKAGES: [&str; 14] = [
    "sandbar-host-files",
    "sandbar-http",
    "sandbar-jsonl",
    "sandbar-machine",
    "sandbar-guest",
    "sandbar-sandbox",
    "sandbar-clients",
    "sandbar-macros",
    "sandbar-agent",
    "sandbar-mock",
    "sandbar",
    "sandbar-runs",
    "sandbar-mcp",
    "sandbar-cli",
];

#[test]
#[ignore = "slow: it builds all dependencies again; `cargo xtask test --all`"]
fn the_packaged_crates_build() {
    let place = fresh("packaged");
    let mut cargo = package(&place);
    // Its own home: a package of the same version that was unpacked before would be taken for this one.
    succeed(cargo.env("CARGO_HOME", cargo_home(&place.join("home"))));
}

/// The cheap half of the above: what a package must hold that the compiler would miss first.
#[test]
fn packages_hold_what_they_include_and_a_guest_that_compiles() {
    let place = fresh("packed");
    succeed(package(&place).arg("--no-verify"));
    for name in PACKAGES {
        let unpacked = unpack(&place, name);
        for (file, included) in includes(&unpacked.join("src")) {
            assert!(included.exists(), "{} includes {}, which is not packed", file.display(), included.display());
        }
    }
    // As the build script of `sandbar-clients` does with it: a workspace of its own.
    let manifest = unpack(&place, "sandbar-guest").join("Cargo.toml");
    let text = fs::read_to_string(&manifest).expect("the manifest");
    fs::write(&manifest, text + "\n[workspace]\n").expect("write");
    let mut check = cargo();
    succeed(check.args(["check", "--quiet", "--offline", "--manifest-path"]).arg(manifest));
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").to_owned()
}

fn cargo() -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.env("CARGO_PROFILE_DEV_DEBUG", "0").current_dir(root());
    command
}

/// An empty directory. Its own, because the outer cargo holds the lock of the usual one.
fn fresh(name: &str) -> PathBuf {
    let place = root().join("target").join(name);
    let _not_there = fs::remove_dir_all(&place);
    fs::create_dir_all(&place).expect("a directory");
    place
}

fn package(place: &Path) -> Command {
    let mut command = cargo();
    command
        .args(["package", "--offline", "--allow-dirty", "--quiet"])
        .args(PACKAGES.iter().flat_map(|package| ["--package", package]))
        .arg("--target-dir")
        .arg(place);
    command
}

#[track_caller]
fn succeed(command: &mut Command) {
    let run = command.output().expect("the program starts");
    assert!(run.status.success(), "{command:?}: {}", String::from_utf8_lossy(&run.stderr));
}

fn unpack(place: &Path, name: &str) -> PathBuf {
    let directory = format!("{name}-{}", env!("CARGO_PKG_VERSION"));
    let archive = place.join("package").join(format!("{directory}.crate"));
    succeed(Command::new("tar").arg("--extract").arg("--file").arg(archive).arg("--directory").arg(place));
    place.join(directory)
}

/// Every file that a source includes by a plain path, with the source.
fn includes(folder: &Path) -> Vec<(PathBuf, PathBuf)> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            all.extend(includes(&path));
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            let text = fs::read_to_string(&path).expect("a source");
            let names = ["include_str!(\"", "include_bytes!(\""].into_iter().flat_map(|call| text.split(call).skip(1));
            let names = names.filter_map(|rest| rest.split_once('"')).map(|(name, _)| folder.join(name));
            all.extend(names.map(|name| (path.clone(), name)));
        }
    }
    all
}

/// A home for cargo with everything that is in the usual one but unpacked sources.
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
