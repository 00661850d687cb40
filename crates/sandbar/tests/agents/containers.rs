//! The same runs, unchanged, in containers of an engine.

use std::{env, process::Command};

use super::rig::IMAGE;

const DEBIAN: &str = "sandbar-test:bookworm";

/// What is about machines of this host.
const LOCAL: &[&str] = &["ordinary::", "containers::"];

#[test]
fn the_same_runs_pass_in_containers() {
    let found = Command::new("docker").args(["image", "inspect", DEBIAN]).output();
    if !found.is_ok_and(|found| found.status.success()) {
        assert_ne!(env::var("CI").as_deref(), Ok("true"), "no engine with the test images: run `cargo xtask setup`");
        println!("LEFT OUT: no Docker engine with the image {DEBIAN}; `cargo xtask setup` puts both in place");
        return;
    }
    let output = Command::new(env::current_exe().expect("this program"))
        .args(["--test-threads", "2"])
        .args(LOCAL.iter().flat_map(|name| ["--skip", name]))
        .env(IMAGE, DEBIAN)
        .output()
        .expect("this program runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(!said.contains(" 0 passed"), "nothing was tried: {said}");
}
