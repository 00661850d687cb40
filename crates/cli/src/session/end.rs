//! `sandbar session stop` and `rm`: how a sandbox that stays comes to its end.

use sandbar::{
    DamagedSession, MachineHandle, SandboxClient as _, SandboxError, SandboxSession, SessionOptions, SessionState,
};
use serde_json::json;

use super::{Home, orphans::Orphans};
use crate::{
    args::{RmArgs, StopArgs},
    failure::Failure,
    render::Render,
};

pub(super) async fn stop(args: &StopArgs, home: &Home, render: &Render) -> Result<u8, Failure> {
    let mut state = home.find(&args.session)?;
    let attached =
        SandboxSession::attach(home.client.of(&state.machine)?, state.clone(), SessionOptions::default()).await?;
    if let Some(session) = attached {
        session.close().await?;
    }
    home.tell_repositories(&state.session_id, render);
    // What says, of a machine that is gone, that somebody wanted it so.
    state.workspace_root_ready = false;
    home.store.save(&state).map_err(|error| {
        Failure::from(error).saying("the session was stopped, but that cannot be written down, so it is listed as gone")
    })?;
    if args.json {
        return render.result(format!("{}\n", json!({"id": state.session_id, "state": "stopped"})).as_bytes());
    }
    Ok(0)
}

pub(super) async fn remove(args: &RmArgs, home: &Home, render: &Render) -> Result<u8, Failure> {
    let Wanted { records, mut failures } = wanted(args, home)?;
    let mut removed = Vec::new();
    let mut is_lost = false;
    for record in records {
        match remove_one(&record, (args, home, render)).await {
            Ok(()) => {
                is_lost |= record.machine.is_none();
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
        orphans = sweep(home, render, &mut failures).await?;
    }
    if is_lost && orphans.is_empty() && !args.json {
        render.note(
            "a damaged record did not say which machine was its own; if it was a container, `sandbar gc` removes it",
        );
    }
    if args.json && (failures.is_empty() || !removed.is_empty() || !orphans.is_empty()) {
        let mut document = json!({"removed": removed});
        if !orphans.is_empty() {
            document["orphans"] = orphans.into();
        }
        render.result(format!("{document}\n").as_bytes())?;
    }
    let Some(last) = failures.pop() else { return Ok(0) };
    for failure in &failures {
        if args.json { render.failure_document(failure) } else { render.failure(failure) }
    }
    Err(last)
}

/// Removes machines that no session has.
async fn sweep(home: &Home, render: &Render, failures: &mut Vec<Failure>) -> Result<Vec<String>, Failure> {
    let found = match home.orphans()? {
        Orphans::Found(found) => found,
        Orphans::Unclear(why) => {
            render.note(&format!("{why}; machines without a session were left as they are"));
            return Ok(Vec::new());
        }
    };
    let mut swept = Vec::new();
    for id in found {
        match home.remove_orphan(&id).await {
            Ok(()) => swept.push(id),
            Err(failure) => failures.push(failure),
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

/// The machine first: as long as it is there, so is what finds it.
async fn remove_one(record: &Record, (args, home, render): (&RmArgs, &Home, &Render)) -> Result<(), Failure> {
    if let Some(machine) = &record.machine
        && let Err(error) = home.client.delete(machine).await
    {
        if !args.force {
            let next = "try again, or forget it with --force";
            return Err(Failure::new(format!("cannot remove {}", record.id)).because(error).next(next));
        }
        tracing::warn!(%error, "forgot a session whose machine could not be removed");
    }
    home.tell_repositories(&record.id, render);
    home.forget(&record.id)
}
