//! Entries of the file system, in the form that `envd` reports them.

use std::time::{Duration, UNIX_EPOCH};

use sandbar_machine::{DirEntry, EntryKind, MachinePath, Target};
use serde_json::{Map, Value, json};

use super::{
    clock,
    connect::{Code, RpcError},
    envd::{Caller, expand},
};

/// Longest chain of symbolic links that is followed.
const MOST_LINKS: usize = 40;
/// Size reported for directories, as on most file systems; machines report 0.
const DIRECTORY_SIZE: u64 = 4096;

/// A path, with the identity of a caller.
pub(super) fn target(caller: &Caller, path: &MachinePath) -> Target {
    Target::from(path).user(&caller.user.name)
}

/// The entry at a path; links are not followed.
pub(super) async fn look(caller: &Caller, path: &MachinePath) -> Result<Option<DirEntry>, RpcError> {
    match caller.sandbox.machine.stat(&target(caller, path)).await {
        Ok(found) => Ok(found),
        Err(error) => match RpcError::from(error) {
            RpcError { code: Code::NotFound, .. } => Ok(None),
            other => Err(other),
        },
    }
}

/// Follows symbolic links at a path; returns the final path and its entry.
pub(super) async fn resolve(caller: &Caller, path: &MachinePath) -> Result<(MachinePath, Option<DirEntry>), RpcError> {
    let mut path = path.clone();
    for _ in 0..MOST_LINKS {
        let found = look(caller, &path).await?;
        let Some(link) = found.as_ref().and_then(|entry| entry.link.clone()) else { return Ok((path, found)) };
        let link = link.to_string_lossy().into_owned();
        let whole = match path.parent() {
            Some(parent) if !link.starts_with('/') => format!("{parent}/{link}"),
            _ => link,
        };
        path = expand(&whole, &caller.user)?;
    }
    let message = format!("cyclic symlink or chain of too many links at {:?}", path.to_string());
    Err(RpcError::new(Code::FailedPrecondition, message))
}

/// The `EntryInfo` of a path. Type and mode of a symbolic link are its target's.
pub(super) async fn describe(caller: &Caller, path: &MachinePath, found: &DirEntry) -> Result<Value, RpcError> {
    let name = path.name().map_or_else(|| "/".into(), |name| name.to_string_lossy().into_owned());
    let mut entry = Map::from_iter([
        ("name".to_owned(), json!(name)),
        ("path".to_owned(), json!(path.to_string())),
        ("permissions".to_owned(), json!(permissions(found))),
        ("owner".to_owned(), json!(caller.sandbox.owner(found.uid))),
        ("group".to_owned(), json!(caller.sandbox.group(found.gid))),
        ("modifiedTime".to_owned(), json!(clock::rfc3339(modified(found)))),
    ]);
    let (kind, mode) = match found.kind {
        EntryKind::Symlink => {
            let (end, there) = match resolve(caller, path).await {
                Ok((end, Some(there))) => (end, Some(there)),
                _ => (path.clone(), None),
            };
            entry.insert("symlinkTarget".to_owned(), json!(end.to_string()));
            there.map_or((None, 0), |there| (kind_name(there.kind), there.mode))
        }
        kind => (kind_name(kind), found.mode),
    };
    let size = match found.kind {
        EntryKind::Dir if found.size == 0 => DIRECTORY_SIZE,
        EntryKind::Symlink => found.link.as_ref().map_or(0, |link| link.len() as u64),
        _ => found.size,
    };
    // Protobuf's JSON omits zeros and writes 64-bit numbers as strings.
    entry.extend(kind.map(|kind| ("type".to_owned(), json!(kind))));
    entry.extend((size > 0).then(|| ("size".to_owned(), json!(size.to_string()))));
    entry.extend((mode & 0o777 > 0).then(|| ("mode".to_owned(), json!(mode & 0o777))));
    Ok(entry.into())
}

fn kind_name(kind: EntryKind) -> Option<&'static str> {
    match kind {
        EntryKind::File => Some("FILE_TYPE_FILE"),
        EntryKind::Dir => Some("FILE_TYPE_DIRECTORY"),
        EntryKind::Symlink => Some("FILE_TYPE_SYMLINK"),
        EntryKind::Other => None,
    }
}

fn modified(found: &DirEntry) -> std::time::SystemTime {
    UNIX_EPOCH + Duration::from_nanos(u64::try_from(found.modified_ns).unwrap_or_default())
}

/// Permissions as Go writes them: one letter for the type, then nine permission bits.
fn permissions(found: &DirEntry) -> String {
    let kind = match found.kind {
        EntryKind::Dir => "d",
        EntryKind::Symlink => "L",
        EntryKind::File | EntryKind::Other => "-",
    };
    let bits = (0..9).rev().zip("rwx".chars().cycle());
    let letters = bits.map(|(bit, letter)| if found.mode >> bit & 1 == 1 { letter } else { '-' });
    kind.chars().chain(letters).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_are_written_as_go_writes_them() {
        let entry =
            |kind, mode| DirEntry { name: "x".into(), kind, size: 0, mode, modified_ns: 0, uid: 0, gid: 0, link: None };
        assert_eq!(permissions(&entry(EntryKind::Dir, 0o755)), "drwxr-xr-x");
        assert_eq!(permissions(&entry(EntryKind::File, 0o640)), "-rw-r-----");
        assert_eq!(permissions(&entry(EntryKind::Symlink, 0o777)), "Lrwxrwxrwx");
    }
}
