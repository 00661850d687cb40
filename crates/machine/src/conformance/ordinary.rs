//! Running the tests of this program again as a user without privileges.

use std::{
    env,
    ffi::OsStr,
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::PathBuf,
    process::{Command, id},
    sync::atomic::{AtomicU32, Ordering},
};

/// User with subordinate ids, created by `cargo xtask setup`.
const USER: &str = "sandbar-test";
/// Number of a user that does not exist and has no subordinate ids.
pub const STRANGER: u32 = 64_321;

/// Number of the next directory: several tests of one process do this at the same time.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// A temporary directory, removed on drop.
struct TempDir(PathBuf);

impl Drop for TempDir {
    fn drop(&mut self) {
        let _best_effort = fs::remove_dir_all(&self.0);
    }
}

/// Runs tests of this program again as a user without privileges, and returns the output of the test runner. If this process
/// does not run as root, it is such a user already: the result is `None`.
///
/// # Panics
/// If a test fails, or `setpriv` or the user does not exist.
#[allow(clippy::must_use_candidate, reason = "most want only that it passes")]
pub fn as_ordinary_user(words: &[&str]) -> Option<String> {
    run_again(USER, words, &[])
}

/// Runs tests as [`as_ordinary_user`] does, with these variables in an otherwise small environment.
///
/// # Panics
/// As [`as_ordinary_user`].
#[allow(clippy::must_use_candidate, reason = "most want only that it passes")]
pub fn as_ordinary_user_with(words: &[&str], variables: &[(&str, &OsStr)]) -> Option<String> {
    run_again(USER, words, variables)
}

/// Runs tests as [`as_ordinary_user`] does, as a user that has no account and no subordinate ids.
///
/// # Panics
/// If a test fails, or `setpriv` does not exist.
#[allow(clippy::must_use_candidate, reason = "most want only that it passes")]
pub fn as_stranger(words: &[&str]) -> Option<String> {
    run_again(&STRANGER.to_string(), words, &[])
}

fn run_again(user: &str, words: &[&str], variables: &[(&str, &OsStr)]) -> Option<String> {
    if fs::metadata("/proc/self").is_ok_and(|own| own.uid() != 0) {
        return None;
    }
    // Other users may not be able to enter the target directory.
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let directory = TempDir(env::temp_dir().join(format!("sandbar-tests-{}-{number}", id())));
    fs::create_dir(&directory.0).expect("a temporary directory");
    fs::set_permissions(&directory.0, fs::Permissions::from_mode(0o755)).expect("every user may enter it");
    let copy = directory.0.join("tests");
    fs::copy(env::current_exe().expect("this program"), &copy).expect("a copy");
    let output = Command::new("setpriv")
        .args(["--reuid", user, "--regid", user, "--clear-groups", "--"])
        .arg(&copy)
        .args(words)
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .envs(variables.iter().copied())
        .current_dir("/")
        .output()
        .expect("setpriv runs: `cargo xtask setup` installs it");
    let report = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "as {user}: {report}{}", String::from_utf8_lossy(&output.stderr));
    assert!(!report.contains(" 0 passed"), "no test ran as {user}: {report}");
    Some(report)
}
