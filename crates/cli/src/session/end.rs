//! `sandbar session stop` and `rm`: end and remove sessions.

use sandbar::{MachineError, client::registry::Fate};
use sandbar_runs::sessions::RemovableSession;
use serde_json::json;

use super::{
    Sessions,
    removal::{self, Removals},
};
use crate::{
    args::{RmArgs, StopArgs},
    failure::Failure,
    render::Render,
};

pub(super) async fn stop(args: &StopArgs, sessions: &Sessions, render: &Render) -> Result<u8, Failure> {
    let mut state = sessions.find(&args.session)?;
    let id = state.session_id.clone();
    let removals = Removals::patient(render, args.json);
    let ended = removals.wait(&format!("session {id}"), || sessions.client().delete(&state.machine)).await;
    let has_ended = matches!(ended, Ok(()) | Err(MachineError::StillBeingRemoved { .. }));
    if has_ended {
        super::report_repositories(sessions, &id, render);
        // Without the machine, the session is listed as `stopped`, not as `gone`.
        (state.workspace_root_ready, state.unfinished) = (false, false);
        sessions.store().save(&state).map_err(|error| {
            let what = "the session was stopped, but its record cannot be saved, so it is listed as gone";
            Failure::from(error).saying(what)
        })?;
    }
    ended.map_err(|error| removal::failure("stop", &id, error))?;
    if args.json {
        return render.result(format!("{}\n", json!({"id": id, "state": "stopped"})).as_bytes());
    }
    Ok(0)
}

pub(super) async fn remove(args: &RmArgs, sessions: &Sessions, render: &Render) -> Result<u8, Failure> {
    let removals = match args.force {
        true => Removals::hurried(render, args.json),
        false => Removals::patient(render, args.json),
    };
    let RemovalSet { records, mut failures } = wanted(args, sessions)?;
    let (mut removed, mut left) = (Vec::new(), Vec::new());
    let mut is_lost = false;
    for record in records {
        match remove_one(&record, &removals, (args, sessions, render)).await {
            Ok(remainder) => {
                is_lost |= record.machine.is_none();
                left.extend(remainder.map(|error| json!({"id": record.id, "error": error.to_string()})));
                removed.push(record.id);
            }
            Err(failure) => failures.push(failure),
        }
    }
    if args.all {
        for name in sessions.store().half_written()? {
            sessions.store().remove_half_written(&name)?;
        }
    }
    let mut orphans = Vec::new();
    // Without a record, the machine of a session is unknown, unless only one machine has no record.
    if args.all || (is_lost && !sessions.store().damaged()?.iter().any(|one| one.machine.is_none())) {
        orphans = sweep(sessions, &removals, render, &mut failures).await?;
    }
    if is_lost && orphans.is_empty() && !args.json {
        render
            .note("a damaged record did not name its machine; if the machine was a container, `sandbar gc` removes it");
    }
    if args.json && (failures.is_empty() || !removed.is_empty() || !orphans.is_empty()) {
        let mut document = json!({"removed": removed});
        for (name, list) in [("orphans", json!(orphans)), ("left", json!(left))] {
            if list != json!([]) {
                document[name] = list;
            }
        }
        render.result(format!("{document}\n").as_bytes())?;
    }
    conclude(failures, args, render)
}

/// Reports all failures. A final failure decides the exit code; removals in progress do so only if there is no final one.
fn conclude(mut failures: Vec<Failure>, args: &RmArgs, render: &Render) -> Result<u8, Failure> {
    failures.sort_by_key(|failure| !failure.is("still_being_removed"));
    let Some(last) = failures.pop() else { return Ok(0) };
    for failure in &failures {
        if args.json { render.failure_document(failure) } else { render.failure(failure) }
    }
    Err(last)
}

/// Removes machines without a session.
async fn sweep(
    sessions: &Sessions,
    removals: &Removals<'_>,
    render: &Render,
    failures: &mut Vec<Failure>,
) -> Result<Vec<String>, Failure> {
    let found = sessions.orphans().await?;
    found.notes.iter().for_each(|note| render.note(note));
    failures.extend(found.failures.into_iter().map(Failure::from));
    let Some(leftovers) = sessions.registry().default_provider()?.leftovers() else { return Ok(Vec::new()) };
    let mut swept = Vec::new();
    for thing in found.things.into_iter().filter(|thing| thing.fate == Fate::Remove) {
        let id = &thing.name;
        match removals.wait(&format!("machine {id}"), || leftovers.remove(&thing)).await {
            Ok(()) => swept.push(thing.name),
            Err(error) => {
                let code = error.code();
                let what = format!("cannot remove machine {id}, which has no session");
                failures.push(Failure::new(what).because(error).code(code));
            }
        }
    }
    Ok(swept)
}

#[derive(Default)]
struct RemovalSet {
    records: Vec<RemovableSession>,
    failures: Vec<Failure>,
}

fn wanted(args: &RmArgs, sessions: &Sessions) -> Result<RemovalSet, Failure> {
    let mut wanted = RemovalSet::default();
    if args.all {
        wanted.records = sessions.removable()?;
        return Ok(wanted);
    }
    for given in &args.sessions {
        match sessions.find_removable(given) {
            Ok(record) if wanted.records.iter().any(|known| known.id == record.id) => {}
            Ok(record) => wanted.records.push(record),
            Err(error) if args.force && error.code() == "session_not_found" => {}
            Err(error) => wanted.failures.push(error.into()),
        }
    }
    Ok(wanted)
}

/// Removes the machine, then the record, so that an existing machine always has a record. With `--force`, the record is
/// removed even if the machine cannot be, and that failure is returned.
async fn remove_one(
    record: &RemovableSession,
    removals: &Removals<'_>,
    (args, sessions, render): (&RmArgs, &Sessions, &Render),
) -> Result<Option<Failure>, Failure> {
    let mut left = None;
    if let Some(machine) = &record.machine
        && let Err(error) = removals.wait(&format!("session {}", record.id), || sessions.client().delete(machine)).await
    {
        let failure = removal::failure("rm", &record.id, error);
        if !args.force {
            return Err(failure);
        }
        left = Some(failure.without_next());
    }
    super::report_repositories(sessions, &record.id, render);
    sessions.forget(&record.id).map_err(Failure::from).map_err(|failure| match &left {
        Some(left) => Failure::new(format!("{left}; {failure}")).code(left.name()),
        None => failure,
    })?;
    if let Some(left) = &left
        && !args.json
    {
        render.note(&format!("removed the record of session {}, but not its machine; {left}", record.id));
    }
    Ok(left)
}
