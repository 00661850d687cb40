//! The example of a provider as a package of its own, outside of this workspace: nothing in it depends on being inside.

#![allow(clippy::expect_used, reason = "a test")]

use std::{env, fs, path::Path, process::Command};

/// What the package depends on beside sandbar, as the workspace has it locked.
const MANIFEST: &str = r#"[package]
name = "own-provider"
version = "0.1.0"
edition = "2024"
publish = false

[dependencies]
sandbar = { path = "SANDBAR" }
tempfile = "3"
tokio = { version = "1", features = ["fs", "io-util", "macros", "process", "rt", "sync"] }

[workspace]
"#;

#[test]
#[ignore = "slow: it builds all dependencies again; `cargo xtask test --all`"]
fn a_provider_is_registered_and_used_from_outside_the_workspace() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let example = root.join("crates/sandbar/examples/own_provider");
    let package = tempfile::tempdir().expect("a directory");
    let sources = package.path().join("src");
    fs::create_dir(&sources).expect("a directory");
    let sandbar = root.join("crates/sandbar").display().to_string();
    fs::write(package.path().join("Cargo.toml"), MANIFEST.replace("SANDBAR", &sandbar)).expect("a manifest");
    fs::copy(root.join("Cargo.lock"), package.path().join("Cargo.lock")).expect("the versions that are here");
    for name in ["main.rs", "toy.rs"] {
        fs::copy(example.join(name), sources.join(name)).expect("a source");
    }
    let run = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["run", "--quiet", "--offline", "--target-dir"])
        .arg(root.join("target/outside"))
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .current_dir(package.path())
        .output()
        .expect("cargo starts");
    let printed = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success(), "{printed}{}", String::from_utf8_lossy(&run.stderr));
    let header = fs::read_to_string(example.join("main.rs")).expect("the example");
    for line in printed.lines() {
        assert!(header.contains(&format!("//! {line}\n")), "its header does not show {line:?}");
    }
    assert_eq!(printed.lines().count(), 3, "{printed}");
}
