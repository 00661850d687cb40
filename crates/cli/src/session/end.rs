//! `sandbar session stop` and `rm`: how a sandbox that stays comes to its end.

use sandbar::{DamagedSession, MachineError, MachineHandle, SandboxClient as _, SandboxError, SessionState};
use serde_json::json;

use super::{
    Home,
    orphans::{self, Orphans},
    removal::{self, Removals},
};
use crate::{
    args::{RmArgs, StopArgs},
    failure::Failure,
    render::Render,
};

pub(super) async fn stop(args: &StopArgs, home: &Home, render: &Render) -> Result<u8, Failure> {
    let mut state = home.find(&args.session)?;
    let id = state.session_id.clone();
    let removals = Removals::patient(render, args.json);
    let ended = removals.wait(&format!("session {id}"), || home.client.delete(&state.machine)).await;
    let has_ended = matches!(ended, Ok(()) | Err(MachineError::StillBeingRemoved { .. }));
    if has_ended {
        home.tell_repositories(&id, render);
        // A machine that is gone is listed as stopped, and not as lost.
        (state.workspace_root_ready, state.unfinished) = (false, false);
        home.store.save(&state).map_err(|error| {
            let what = "the session was stopped, but that cannot be written down, so it is listed as gone";
            Failure::from(error).saying(what)
        })?;
    }
    ended.map_err(|error| removal::failure("stop", &id, error))?;
    if args.json {
        return render.result(format!("{}\n", json!({"id": id, "state": "stopped"})).as_bytes());
    }
    Ok(0)
}

pub(super) async fn remove(args: &RmArgs, home: &Home, render: &Render) -> Result<u8, Failure> {
    let removals = match args.force {
        true => Removals::hurried(render, args.json),
        false => Removals::patient(render, args.json),
    };
    let Wanted { records, mut failures } = wanted(args, home)?;
    let (mut removed, mut left) = (Vec::new(), Vec::new());
    let mut is_lost = false;
    for record in records {
        match remove_one(&record, &removals, (args, home, render)).await {
            Ok(remainder) => {
                is_lost |= record.machine.is_none();
                left.extend(remainder.map(|error| json!({"id": record.id, "error": error.to_string()})));
                removed.push(record.id);
            }
            Err(failure) => failures.push(failure),
        }
    }
    if args.all {
        for name in home.store.half_written()? {
            home.store.remove_half_written(&name)?;
        }
    }
    let mut orphans = Vec::new();
    // Without a record, nobody can tell whose machine it was, unless only one can have been.
    if args.all || (is_lost && !home.store.damaged()?.iter().any(|one| one.machine.is_none())) {
        orphans = sweep(home, &removals, render, &mut failures).await?;
    }
    if is_lost && orphans.is_empty() && !args.json {
        render.note(
            "a damaged record did not say which machine was its own; if it was a container, `sandbar gc` removes it",
        );
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

/// Tells all failures. One that is final decides the exit code; a removal that goes on does so only among its like.
fn conclude(mut failures: Vec<Failure>, args: &RmArgs, render: &Render) -> Result<u8, Failure> {
    failures.sort_by_key(|failure| !failure.is("still_being_removed"));
    let Some(last) = failures.pop() else { return Ok(0) };
    for failure in &failures {
        if args.json { render.failure_document(failure) } else { render.failure(failure) }
    }
    Err(last)
}

/// Removes machines that no session has.
async fn sweep(
    home: &Home,
    removals: &Removals<'_>,
    render: &Render,
    failures: &mut Vec<Failure>,
) -> Result<Vec<String>, Failure> {
    let found = match home.orphans()? {
        Orphans::Found(found) => found,
        Orphans::Unclear(why) => {
            render.note(&format!("{why}; machines without a session were left as they are"));
            return Ok(Vec::new());
        }
    };
    let mut swept = Vec::new();
    for id in found {
        match removals.wait(&format!("machine {id}"), || home.remove_orphan(&id)).await {
            Ok(()) => swept.push(id),
            Err(error) => failures.push(orphans::failure(&id, error)),
        }
    }
    Ok(swept)
}

/// What is known of a session that is to be removed.
struct Record {
    id: String,
    machine: Option<MachineHandle>,
}

impl From<SessionState> for Record {
    fn from(state: SessionState) -> Self {
        Self { id: state.session_id, machine: Some(state.machine) }
    }
}

impl From<DamagedSession> for Record {
    fn from(damaged: DamagedSession) -> Self {
        Self { id: damaged.session_id, machine: damaged.machine }
    }
}

#[derive(Default)]
struct Wanted {
    records: Vec<Record>,
    failures: Vec<Failure>,
}

fn wanted(args: &RmArgs, home: &Home) -> Result<Wanted, Failure> {
    let mut wanted = Wanted::default();
    if args.all {
        wanted.records.extend(home.store.list()?.into_iter().map(Record::from));
        wanted.records.extend(home.store.damaged()?.into_iter().map(Record::from));
        return Ok(wanted);
    }
    for given in &args.sessions {
        let found = match home.store.find(given) {
            Ok(state) => Ok(Record::from(state)),
            Err(SandboxError::SessionDamaged { session, .. }) => {
                let damaged = home.store.damaged()?.into_iter().find(|one| one.session_id == session);
                Ok(damaged.map_or(Record { id: session, machine: None }, Record::from))
            }
            Err(error) => Err(error),
        };
        match found {
            Ok(record) if wanted.records.iter().any(|known| known.id == record.id) => {}
            Ok(record) => wanted.records.push(record),
            Err(error) if args.force && error.code() == "session_not_found" => {}
            Err(error) => wanted.failures.push(error.into()),
        }
    }
    Ok(wanted)
}

/// The machine first: as long as it is there, so is what finds it. Gives back why something of it is left, if its session
/// is to be forgotten all the same.
async fn remove_one(
    record: &Record,
    removals: &Removals<'_>,
    (args, home, render): (&RmArgs, &Home, &Render),
) -> Result<Option<Failure>, Failure> {
    let mut left = None;
    if let Some(machine) = &record.machine
        && let Err(error) = removals.wait(&format!("session {}", record.id), || home.client.delete(machine)).await
    {
        let failure = removal::failure("rm", &record.id, error);
        if !args.force {
            return Err(failure);
        }
        left = Some(failure.without_next());
    }
    home.tell_repositories(&record.id, render);
    home.forget(&record.id).map_err(|failure| match &left {
        Some(left) => Failure::new(format!("{left}; {failure}")).code(left.name()),
        None => failure,
    })?;
    if let Some(left) = &left
        && !args.json
    {
        render.note(&format!("forgot the session {} all the same: {left}", record.id));
    }
    Ok(left)
}
