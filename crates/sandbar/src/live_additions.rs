//! The only change that an agent's capabilities may make to a running session: new entries.

use sandbar_sandbox::{Manifest, SandboxError};

/// A manifest with the entries that `wanted` adds to `live`; `None` if it adds no entry.
///
/// # Errors
/// `sandbox_config_invalid` names the first difference that a running session does not allow.
pub(crate) fn additions(live: &Manifest, wanted: &Manifest) -> Result<Option<Manifest>, SandboxError> {
    let refuse = |what: &str| {
        let why = "cannot be changed on a session that is running; declare it where the session is made";
        Err(SandboxError::sandbox_config_invalid(what, why))
    };
    let fixed = [
        ("the root", live.root == wanted.root),
        ("the environment", live.environment == wanted.environment),
        ("the users", live.users == wanted.users),
        ("the groups", live.groups == wanted.groups),
        ("the granted paths", live.extra_path_grants == wanted.extra_path_grants),
    ];
    if let Some((what, _)) = fixed.iter().find(|(_, same)| !same) {
        return refuse(what);
    }
    for (path, entry) in live.entries.iter() {
        match wanted.entries.get(path) {
            None => return refuse(&format!("the entry {:?}, which would be removed,", path.as_str())),
            Some(other) if other.kind() != entry.kind() => {
                return refuse(&format!("the type of the entry {:?}", path.as_str()));
            }
            Some(other) if other != entry => return refuse(&format!("the entry {:?}", path.as_str())),
            Some(_) => {}
        }
    }
    let mut addition = wanted.clone();
    addition.entries = sandbar_sandbox::Entries::new();
    addition.environment = sandbar_sandbox::Environment::new();
    addition.users.clear();
    addition.groups.clear();
    addition.extra_path_grants.clear();
    for (path, entry) in wanted.entries.iter().filter(|(path, _)| !live.entries.contains_key(*path)) {
        addition.entries.insert(path.as_str(), entry.clone());
    }
    if !addition.mounts()?.is_empty() {
        return refuse("mounts");
    }
    Ok((!addition.entries.is_empty()).then_some(addition))
}

#[cfg(test)]
mod tests {
    use sandbar_sandbox::{Dir, File, Group, Mount, PathGrant, User};

    use super::*;

    fn live() -> Manifest {
        Manifest::new().file("a", "1").env("X", "1").user(User::new("ann"))
    }

    #[test]
    fn entries_may_be_added_and_nothing_else_may_change() {
        let with = |path: &str, entry: sandbar_sandbox::Entry| live().entry(path, entry);
        let other =
            |first: sandbar_sandbox::Entry| Manifest::new().entry("a", first).env("X", "1").user(User::new("ann"));
        let table: Vec<(Manifest, Result<&[&str], &str>)> = vec![
            (live(), Ok(&[])),
            (with("b", File::new("2").into()), Ok(&["b"])),
            (with("c", Dir::new().into()).file("d", "3"), Ok(&["c", "d"])),
            (live().root("/elsewhere"), Err("the root")),
            (live().env("Y", "2"), Err("the environment")),
            (live().env("X", "2"), Err("the environment")),
            (live().user(User::new("bob")), Err("the users")),
            (live().group(Group::new("staff")), Err("the groups")),
            (
                live().grant(PathGrant::new(sandbar_machine::MachinePath::new("/data").unwrap())),
                Err("the granted paths"),
            ),
            (Manifest::new().env("X", "1").user(User::new("ann")), Err("the entry \"a\", which would be removed,")),
            (other(Dir::new().into()), Err("the type of the entry \"a\"")),
            (other(File::new("other").into()), Err("the entry \"a\"")),
            (with("m", Mount::new("/srv").into()), Err("mounts")),
        ];
        for (wanted, expected) in table {
            match (additions(&live(), &wanted), expected) {
                (Ok(added), Ok(paths)) => {
                    let added = added.unwrap_or_default();
                    let added: Vec<&str> = added.entries.keys().map(|path| path.as_str()).collect();
                    assert_eq!(added, paths);
                }
                (Err(error), Err(what)) => assert!(error.to_string().starts_with(what), "{error}"),
                (other, expected) => panic!("{other:?}, not {expected:?}"),
            }
        }
    }

    #[test]
    fn an_addition_contains_only_entries() {
        let added = additions(&live(), &live().file("b", "2")).unwrap().unwrap();
        assert!(added.environment.is_empty() && added.users.is_empty());
    }
}
