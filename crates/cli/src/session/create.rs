//! `sandbar session create`: creates a session, or leaves nothing behind.

use sandbar::{Lifetime, SandboxSession, SessionOptions, sandbox::Materialised};
use sandbar_runs::{
    git::Guard,
    sessions::{Condition, CreationRecords, UnfinishedSession},
};
use serde_json::json;

use super::Sessions;
use crate::{
    args::CreateArgs,
    failure::Failure,
    machine::{
        client, plan, progress,
        provision::{self, Halt},
    },
    render::Render,
    streams::signals::{self, Signals},
};

pub(super) async fn run(args: CreateArgs, sessions: &Sessions, render: &Render) -> Result<u8, Failure> {
    free_name(&args, sessions).await?;
    let options = options(&args, sessions, render)?;
    let mut signals = Signals::listen()?;
    match make(options, &args, sessions, &mut signals, render).await {
        Ok((session, arrived)) => {
            let told = tell(&session, &arrived, &args, render);
            if !matches!(told, Ok(0)) {
                // The caller did not get the id of the session.
                note_unfinished(sessions.undo_creation(&session.state()).await?, render);
            }
            told
        }
        Err(Halt::Signal(signal)) => Ok(signals::code(signal)),
        Err(Halt::Failed(failure)) => Err(*failure),
    }
}

/// Frees the name of a session that was never created: its creator was killed after it had written the record.
async fn free_name(args: &CreateArgs, sessions: &Sessions) -> Result<(), Failure> {
    let Some(name) = &args.name else { return Ok(()) };
    let Some(id) = sessions.store().named(name)? else { return Ok(()) };
    if !sessions.abandoned()?.contains(&id) {
        return Ok(());
    }
    match sessions.store().find(&id) {
        Ok(state) if sessions.condition(&state).await == Condition::Gone => Ok(sessions.remove_gone(&state).await?),
        _ => Ok(()),
    }
}

fn options(args: &CreateArgs, sessions: &Sessions, render: &Render) -> Result<(SessionOptions, Guard), Failure> {
    if let Some(name) = &args.name
        && sessions.store().named(name)?.is_some()
    {
        let next = format!("choose another name, or remove the session: sandbar session rm {name}");
        return Err(Failure::new(format!("session {name} already exists")).code("session_exists").next(next));
    }
    plan::can_be_filled(&args.machine)?;
    let mut spec = plan::spec(&args.machine)?;
    spec.lifetime = args.idle.map_or(Lifetime::Detached, Lifetime::Leased);
    let manifest = plan::manifest(&args.fill, &args.env)?;
    let guard = plan::guard(&mut spec, &manifest, &args.machine, render)?;
    let mut options = SessionOptions::new(manifest).machine(spec);
    options.secrets = plan::secrets(&args.fill)?;
    options.proxies = plan::proxies(&args.fill)?;
    options.name.clone_from(&args.name);
    Ok((options, guard))
}

async fn make(
    (mut options, guard): (SessionOptions, Guard),
    args: &CreateArgs,
    sessions: &Sessions,
    signals: &mut Signals,
    render: &Render,
) -> Result<(SandboxSession, Materialised), Halt> {
    let _until_it_has_a_record = provision::unless_signalled(sessions.creation(), signals).await?;
    let meter = if args.json { None } else { progress::Meter::choose(render) };
    options.progress = meter.as_ref().map(progress::Meter::listener);
    let maker = sessions.client_for(&args.machine.sandbox, client::context(render))?;
    let records = sessions.creation_records(&guard);
    let session = match provision::recorded(maker, options, &|state| records.save(state), signals).await {
        Ok(session) => session,
        Err(halt) => return Err(undo(records, halt, render).await),
    };
    match keep(&session, sessions, signals).await {
        Ok(arrived) => Ok((session, arrived)),
        Err(halt) => Err(undo(records, halt, render).await),
    }
}

/// Fills the session after its record is saved, so that the leftovers of a killed process can be listed and removed.
async fn keep(session: &SandboxSession, sessions: &Sessions, signals: &mut Signals) -> Result<Materialised, Halt> {
    let arrived = provision::fill(session, signals).await?;
    sessions.store().save(&session.state())?;
    Ok(arrived)
}

/// Removes an incomplete session, and returns why its creation failed.
async fn undo(records: CreationRecords<'_>, halt: Halt, render: &Render) -> Halt {
    let (unfinished, undone) = records.undo().await;
    note_unfinished(unfinished, render);
    undone.map_or_else(Halt::from, |()| halt)
}

fn note_unfinished(session: Option<UnfinishedSession>, render: &Render) {
    if let Some(session) = session {
        render.note(&format!("{session}; `sandbar session rm {}` removes it", session.id));
    }
}

fn tell(session: &SandboxSession, arrived: &Materialised, args: &CreateArgs, render: &Render) -> Result<u8, Failure> {
    if args.json {
        let document = json!({
            "id": session.id(),
            "name": session.name(),
            "workspace": session.paths().root().to_string(),
            "isolation": session.machine().features().isolation.name(),
            "files": arrived.receipts.len(),
            "left_out": arrived.left_out,
            "ports": session.ports().declared(),
            "created_at": session.state().created_at,
        });
        return render.result(format!("{document}\n").as_bytes());
    }
    render.left_out(arrived);
    render.result(format!("{}\n", session.id()).as_bytes())
}
