//! The methods of `filesystem.Filesystem`.

use sandbar_machine::{EntryKind, MachinePath};
use serde_json::{Value, json};

use super::{
    connect::{Code, RpcError},
    entry::{describe, look, resolve, target},
    envd::{Caller, expand},
};

type Answer = Result<Value, RpcError>;

/// Most entries of one listing.
const MOST_ENTRIES: usize = 100_000;

/// Answers one call.
pub(super) async fn answer(caller: &Caller, method: &str, request: &Value) -> Answer {
    let path = |name: &str| expand(request[name].as_str().unwrap_or_default(), &caller.user);
    match method {
        "Stat" => stat(caller, &path("path")?).await,
        "MakeDir" => make_dir(caller, &path("path")?).await,
        "ListDir" => {
            let depth = request["depth"].as_u64().filter(|depth| *depth > 0).unwrap_or(1);
            list_dir(caller, &path("path")?, depth).await
        }
        "Remove" => remove(caller, &path("path")?).await,
        "Move" => rename(caller, &path("source")?, &path("destination")?).await,
        _ => Err(RpcError::new(Code::Unimplemented, format!("filesystem.Filesystem.{method} is not implemented"))),
    }
}

async fn stat(caller: &Caller, path: &MachinePath) -> Answer {
    let Some(found) = look(caller, path).await? else {
        let message = format!("file not found: lstat {path}: no such file or directory");
        return Err(RpcError::new(Code::NotFound, message));
    };
    Ok(json!({"entry": describe(caller, path, &found).await?}))
}

async fn make_dir(caller: &Caller, path: &MachinePath) -> Answer {
    match resolve(caller, path).await?.1.map(|found| found.kind) {
        None => {}
        Some(EntryKind::Dir) => {
            return Err(RpcError::new(Code::AlreadyExists, format!("directory already exists: {path}")));
        }
        Some(_) => {
            let message = format!("path already exists but it is not a directory: {path}");
            return Err(RpcError::new(Code::InvalidArgument, message));
        }
    }
    caller.sandbox.machine.make_dir(&target(caller, path)).await.map_err(internal("failed to create directory"))?;
    stat(caller, path).await
}

async fn list_dir(caller: &Caller, path: &MachinePath, depth: u64) -> Answer {
    let (real, found) = resolve(caller, path).await?;
    match found.map(|found| found.kind) {
        Some(EntryKind::Dir) => {}
        None => {
            let message = format!("path not found: lstat {path}: no such file or directory");
            return Err(RpcError::new(Code::NotFound, message));
        }
        Some(_) => return Err(RpcError::new(Code::InvalidArgument, format!("path is not a directory: {path}"))),
    }
    let mut entries = Vec::new();
    // Directories still to be read: real path, path in the answer, remaining depth.
    let mut pending = vec![(real, path.clone(), depth)];
    while let Some((real, shown, depth)) = pending.pop() {
        let listed = caller.sandbox.machine.list(&target(caller, &real)).await;
        for found in listed.map_err(internal("error reading directory"))? {
            let (real, shown) = (real.join(&found.name)?, shown.join(&found.name)?);
            let mut entry = describe(caller, &real, &found).await?;
            entry["path"] = json!(shown.to_string());
            entries.push((shown.clone(), entry));
            if found.kind == EntryKind::Dir && depth > 1 {
                pending.push((real, shown, depth - 1));
            }
        }
        if entries.len() > MOST_ENTRIES {
            return Err(RpcError::new(Code::Internal, format!("error reading directory {path}: too many entries")));
        }
    }
    // Depth first, names in byte order.
    entries.sort_by(|(a, _), (b, _)| {
        a.as_bytes().split(|byte| *byte == b'/').cmp(b.as_bytes().split(|byte| *byte == b'/'))
    });
    let entries: Vec<_> = entries.into_iter().map(|(_, entry)| entry).collect();
    Ok(if entries.is_empty() { json!({}) } else { json!({"entries": entries}) })
}

async fn remove(caller: &Caller, path: &MachinePath) -> Answer {
    let removed = caller.sandbox.machine.remove(&target(caller, path)).await;
    removed.map_err(internal("error removing file or directory"))?;
    Ok(json!({}))
}

async fn rename(caller: &Caller, source: &MachinePath, destination: &MachinePath) -> Answer {
    if look(caller, source).await?.is_none() {
        let message = format!("source file not found: rename {source} {destination}: no such file or directory");
        return Err(RpcError::new(Code::NotFound, message));
    }
    let machine = &caller.sandbox.machine;
    if let Some(parent) = destination.parent() {
        machine.make_dir(&target(caller, &parent)).await.map_err(internal("failed to create directory"))?;
    }
    let renamed = machine.rename(&target(caller, source), &target(caller, destination)).await;
    renamed.map_err(internal("error renaming"))?;
    stat(caller, destination).await
}

/// `envd` reports every failed file operation as internal.
fn internal(action: &'static str) -> impl Fn(sandbar_machine::MachineError) -> RpcError {
    move |error| {
        let RpcError { code, message } = RpcError::from(error);
        let code = if code == Code::Unavailable { code } else { Code::Internal };
        RpcError::new(code, format!("{action}: {message}"))
    }
}
