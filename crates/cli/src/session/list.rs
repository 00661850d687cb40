//! `sandbar session ls`: the sessions of this user, or the files of one of them.

use std::time::{SystemTime, UNIX_EPOCH};

use futures::{StreamExt, stream};
use sandbar::{
    SandboxError, SandboxSession, SessionState,
    machine::{DirEntry, EntryKind},
    sandbox::DamagedSession,
};
use sandbar_runs::{format_size, sessions::Condition};
use serde_json::{Value, json};

use super::Sessions;
use crate::{
    args::{LsArgs, values::SessionPath},
    failure::Failure,
    render::{Render, Style, inert_line},
    view::units::age,
};

/// Maximum number of machines that are queried concurrently.
const AT_ONCE: usize = 16;

fn style(condition: Condition) -> Style {
    match condition {
        Condition::Running => Style::Good,
        Condition::Stopped | Condition::Gone => Style::Faint,
        Condition::Damaged => Style::Bad,
        _ => Style::Doubtful,
    }
}

pub(super) async fn sessions(args: &LsArgs, sessions: &Sessions, render: &Render) -> Result<u8, Failure> {
    let abandoned = sessions.abandoned()?;
    let states = sessions.store().list()?;
    let asked = stream::iter(states).map(|state| async {
        let condition = match sessions.condition(&state).await {
            // The machine does not exist yet.
            Condition::Gone if state.unfinished && !abandoned.contains(&state.session_id) => Condition::Unfinished,
            condition => condition,
        };
        (state, condition)
    });
    let found: Vec<(SessionState, Condition)> = asked.buffered(AT_ONCE).collect().await;
    let damaged = sessions.store().damaged()?;
    let text = if args.json {
        let sound = found.iter().map(|(state, condition)| document(state, *condition));
        let sessions: Vec<Value> = sound.chain(damaged.iter().map(damaged_document)).collect();
        format!("{}\n", json!({"sessions": sessions}))
    } else {
        table(&found, &damaged, now(), render)
    };
    let printed = render.result(text.as_bytes())?;
    for DamagedSession { session_id, reason, .. } in damaged.iter().filter(|_| !args.json) {
        render.note(&format!(
            "the record of {session_id} is damaged: {reason}; `sandbar session rm {session_id}` removes it"
        ));
    }
    Ok(printed)
}

fn damaged_document(damaged: &DamagedSession) -> Value {
    json!({
        "id": damaged.session_id,
        "name": null,
        "created_at": null,
        "state": Condition::Damaged.name(),
        "workspace": null,
        "ports": [],
        "reason": damaged.reason,
    })
}

fn document(state: &SessionState, condition: Condition) -> Value {
    json!({
        "id": state.session_id,
        "name": state.name,
        "created_at": state.created_at,
        "state": condition.name(),
        "workspace": state.workspace().to_string(),
        "ports": state.exposed_ports,
    })
}

fn table(found: &[(SessionState, Condition)], damaged: &[DamagedSession], now: i64, render: &Render) -> String {
    let names = found.iter().filter_map(|(state, _)| state.name.as_ref());
    let wide = names.map(|name| name.chars().count()).max().unwrap_or(0).max(4);
    let head = format!("{:36}  {:wide$}  {:>4}  {:10}  WORKSPACE", "ID", "NAME", "AGE", "STATE");
    let mut text = render.paint(Style::Faint, &head);
    text.push('\n');
    for (state, condition) in found {
        let name = inert_line(state.name.as_deref().unwrap_or("-"));
        let age = age(now.saturating_sub(state.created_at.as_second()));
        let condition = render.paint(style(*condition), &format!("{:10}", condition.name()));
        let (id, root) = (inert_line(&state.session_id), inert_line(&state.workspace().to_string()));
        text.push_str(&format!("{id:36}  {name:wide$}  {age:>4}  {condition}  {root}\n"));
    }
    for DamagedSession { session_id: id, .. } in damaged {
        let condition = render.paint(style(Condition::Damaged), &format!("{:10}", Condition::Damaged.name()));
        text.push_str(&format!("{id:36}  {:wide$}  {:>4}  {condition}  -\n", "-", "-"));
    }
    text
}

pub(super) fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

pub(super) async fn files(
    args: &LsArgs,
    place: &SessionPath,
    sessions: &Sessions,
    render: &Render,
) -> Result<u8, Failure> {
    let session = sessions.attach(&place.session).await?;
    let path = if place.path.is_empty() { ".".into() } else { place.path.clone() };
    let entries = match session.list(&path).await {
        Ok(entries) => entries,
        Err(error) => vec![itself(&session, place, error).await?],
    };
    let text = if args.json {
        let entries: Vec<Value> = entries.iter().map(entry_document).collect();
        let document = json!({"id": session.id(), "path": path.to_string_lossy(), "entries": entries});
        format!("{document}\n")
    } else if args.long {
        long(&entries)
    } else {
        entries.iter().map(|entry| format!("{}\n", shown(entry))).collect()
    };
    render.result(text.as_bytes())
}

/// The entry at the path, if it is not a directory.
async fn itself(session: &SandboxSession, place: &SessionPath, error: SandboxError) -> Result<DirEntry, Failure> {
    match session.stat(&place.path).await {
        Ok(Some(entry)) if entry.kind != EntryKind::Dir => Ok(entry),
        _ => Err(error.into()),
    }
}

fn entry_document(entry: &DirEntry) -> Value {
    json!({
        "name": entry.name.to_string_lossy(),
        "kind": entry.kind,
        "size": entry.size,
        "mode": format!("{:04o}", entry.mode),
        "modified_ns": entry.modified_ns,
        "uid": entry.uid,
        "gid": entry.gid,
        "link": entry.link.as_ref().map(|link| link.to_string_lossy()),
    })
}

fn long(entries: &[DirEntry]) -> String {
    let now = now();
    let line = |entry: &DirEntry| {
        let kind = match entry.kind {
            EntryKind::File => '-',
            EntryKind::Dir => 'd',
            EntryKind::Symlink => 'l',
            EntryKind::Other => '?',
        };
        let link = entry.link.as_ref().map(|link| format!(" -> {}", inert_line(&link.to_string_lossy())));
        let age = age(now.saturating_sub(entry.modified_ns / 1_000_000_000));
        let (mode, size) = (entry.mode, format_size(entry.size));
        format!("{kind}{mode:04o}  {size:>6}  {age:>4}  {}{}\n", shown(entry), link.unwrap_or_default())
    };
    entries.iter().map(line).collect()
}

fn shown(entry: &DirEntry) -> String {
    let name = inert_line(&entry.name.to_string_lossy());
    if entry.kind == EntryKind::Dir { format!("{name}/") } else { name }
}
