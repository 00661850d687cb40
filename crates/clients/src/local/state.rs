//! The state directory of live machines, which only one user can access.

use std::{
    fs::DirBuilder,
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
};

use rustix::process::getuid;
use sandbar_machine::{MachineError, Result};

use crate::random::{hex, random_bytes};

/// Creates the directory if it is missing, checks that no other user can have changed it, and draws a random id in it.
pub(super) fn prepare(chosen: Option<&Path>) -> Result<(PathBuf, String)> {
    let directory = directory(chosen)?;
    // The fallback is below a directory of the user that may not exist yet; the parents of the others must exist.
    let is_second = chosen.is_none() && directory != usual();
    let made = DirBuilder::new().mode(0o700).recursive(is_second).create(&directory);
    if let Err(error) = made
        && error.kind() != io::ErrorKind::AlreadyExists
    {
        return Err(failed(&directory, error));
    }
    check(&directory)?;
    let name = random_bytes::<8>().map_err(|source| failed(&directory, source))?;
    Ok((directory, hex(&name)))
}

/// Path of the state directory, whether it exists or not.
pub(super) fn directory(chosen: Option<&Path>) -> Result<PathBuf> {
    match chosen {
        Some(chosen) => std::path::absolute(chosen).map_err(|source| failed(chosen, source)),
        None => {
            let usual = usual();
            Ok(if is_taken(&usual) { second_choice_from_env().unwrap_or(usual) } else { usual })
        }
    }
}

fn usual() -> PathBuf {
    std::env::temp_dir().join(format!("sandbar-{}", getuid().as_raw()))
}

/// Whether the path belongs to another user; only that user or root can remove it.
fn is_taken(usual: &Path) -> bool {
    std::fs::symlink_metadata(usual).is_ok_and(|found| found.uid() != getuid().as_raw())
}

/// A directory that only this user can create.
fn second_choice_from_env() -> Option<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".local/state")))?;
    Some(state.join("sandbar/machines"))
}

/// The usual parent is writable for all users, so another user may have created the directory first.
pub(super) fn check(directory: &Path) -> Result<()> {
    let found = std::fs::symlink_metadata(directory).map_err(|source| failed(directory, source))?;
    let bad = |reason: &str| {
        let fix = "remove it, or choose another state directory";
        Err(MachineError::invalid(format!("state directory {}", directory.display()), format!("{reason}; {fix}")))
    };
    if !found.is_dir() {
        return bad("is not a directory");
    }
    if found.uid() != getuid().as_raw() {
        return bad("belongs to another user");
    }
    if found.mode() & 0o077 != 0 {
        return bad("can be used by other users (its mode must be 700)");
    }
    Ok(())
}

fn failed(directory: &Path, source: io::Error) -> MachineError {
    MachineError::Start {
        stage: format!("preparing the state directory {}", directory.display()),
        source: source.into(),
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    #[test]
    fn a_state_directory_is_made_private_and_names_differ() {
        let temp = tempfile::tempdir().expect("tempdir");
        let directory = temp.path().join("state");
        let (path, first) = prepare(Some(&directory)).expect("prepare");
        let (_, second) = prepare(Some(&directory)).expect("prepare again");
        assert_eq!(path, directory);
        assert_ne!(first, second);
        assert!(first.len() == 16 && first.bytes().all(|byte| byte.is_ascii_hexdigit()));
        assert_eq!(fs::metadata(&directory).expect("metadata").mode() & 0o7777, 0o700);
    }

    #[test]
    fn a_directory_others_can_use_or_have_replaced_is_refused() {
        let temp = tempfile::tempdir().expect("tempdir");
        let open = temp.path().join("open");
        fs::create_dir(&open).expect("create");
        fs::set_permissions(&open, fs::Permissions::from_mode(0o755)).expect("chmod");
        let link = temp.path().join("link");
        std::os::unix::fs::symlink(temp.path(), &link).expect("symlink");
        let file = temp.path().join("file");
        fs::write(&file, "").expect("write");
        for bad in [open, link, file] {
            let error = prepare(Some(&bad)).expect_err("refused").to_string();
            assert!(error.contains("choose another state directory"), "{error}");
        }
        let missing = prepare(Some(&temp.path().join("no/such"))).expect_err("no parent");
        assert_eq!(missing.code(), "start");
    }
}
