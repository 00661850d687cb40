//! The same tests once more, as a user without privileges.

use std::{
    env,
    ffi::OsStr,
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::PathBuf,
    process::{Command, id},
    sync::atomic::{AtomicU32, Ordering},
};

/// Made by `cargo xtask setup`, with ids to hand out.
const USER: &str = "sandbar-test";
/// Nobody has this number, so that nothing was set aside for it.
pub const STRANGER: u32 = 64_321;

/// Several may do this at once in one process.
static PLACES: AtomicU32 = AtomicU32::new(0);

/// A directory that is gone when this is.
struct Place(PathBuf);

impl Drop for Place {
    fn drop(&mut self) {
        let _best_effort = fs::remove_dir_all(&self.0);
    }
}

/// Runs tests of this very program again, as a user without privileges, and gives what the test runner said. Only root can;
/// anyone else is that user, and there is nothing to say.
///
/// # Panics
/// When they do not pass, or `setpriv` and the user are not there.
#[allow(clippy::must_use_candidate, reason = "most want only that it passes")]
pub fn as_ordinary_user(words: &[&str]) -> Option<String> {
    run_again(USER, words, &[])
}

/// The same with these variables, beside which there are few.
///
/// # Panics
/// As [`as_ordinary_user`].
#[allow(clippy::must_use_candidate, reason = "most want only that it passes")]
pub fn as_ordinary_user_with(words: &[&str], variables: &[(&str, &OsStr)]) -> Option<String> {
    run_again(USER, words, variables)
}

/// The same as somebody the system has never heard of, who has one id and no way to more.
///
/// # Panics
/// When they do not pass, or `setpriv` is not there.
#[allow(clippy::must_use_candidate, reason = "most want only that it passes")]
pub fn as_stranger(words: &[&str]) -> Option<String> {
    run_again(&STRANGER.to_string(), words, &[])
}

fn run_again(user: &str, words: &[&str], variables: &[(&str, &OsStr)]) -> Option<String> {
    if fs::metadata("/proc/self").is_ok_and(|own| own.uid() != 0) {
        return None;
    }
    // The target directory may be closed to others.
    let place =
        Place(env::temp_dir().join(format!("sandbar-tests-{}-{}", id(), PLACES.fetch_add(1, Ordering::Relaxed))));
    fs::create_dir(&place.0).expect("a temporary directory");
    fs::set_permissions(&place.0, fs::Permissions::from_mode(0o755)).expect("it is open to all");
    let copy = place.0.join("tests");
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
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "as {user}: {said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(!said.contains(" 0 passed"), "nothing was tried as {user}: {said}");
    Some(said)
}
