//! Sessions keep every promise on the local client: as whoever runs the tests, as an ordinary user, and with the POSIX
//! fallbacks in place of the guest's own ways.
#![cfg(target_os = "linux")]
#![allow(clippy::expect_used, reason = "a test")]

use std::{fs, os::unix::fs::PermissionsExt, process::Command};

use sandbar_clients::UnixLocal;
use sandbar_machine::BareClient;

/// Made by `cargo xtask setup`.
const USER: &str = "sandbar-test";

mod native {
    use super::*;
    sandbar_sandbox::session_conformance!(UnixLocal::new());
}

mod fallbacks {
    use super::*;
    sandbar_sandbox::session_conformance!(BareClient::new(UnixLocal::new()));
}

#[test]
fn an_ordinary_user_has_every_promise_kept() {
    if !rustix::process::getuid().is_root() {
        return;
    }
    // The target directory may be closed to others.
    let place = tempfile::tempdir().expect("a temporary directory");
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).expect("it is open to all");
    let copy = place.path().join("tests");
    fs::copy(std::env::current_exe().expect("this program"), &copy).expect("a copy");
    let output = Command::new("setpriv")
        .args(["--reuid", USER, "--regid", USER, "--clear-groups", "--"])
        .arg(&copy)
        .arg("native::")
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .current_dir("/")
        .output()
        .expect("setpriv runs: `cargo xtask setup` installs it");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(!said.contains(" 0 passed"), "no promises were tried as {USER}: {said}");
}
