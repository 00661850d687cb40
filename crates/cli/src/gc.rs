//! `sandbar gc`: removes what dead harnesses left, and nothing else.

mod report;

use sandbar::{
    MachineError,
    client::{
        Remainder, Resident, ResidentState, UnixLocal,
        docker::{Engine, Found},
    },
};

use self::report::{Item, Report};
use crate::{
    args::{GcArgs, GcPlace},
    failure::Failure,
    render::Render,
    runs::{RunPart, RunStore},
    session::{Machines, Orphans},
    signals::{self, Signals},
};

pub(crate) async fn run(args: &GcArgs, render: &Render) -> Result<u8, Failure> {
    let mut signals = Signals::listen()?;
    let mut report = Report::new(args, render);
    let signal = tokio::select! {
        done = everywhere(args, &mut report) => done.map(|()| None),
        // What is half removed is still known to be dead, and goes the next time.
        signal = signals.next() => Ok(Some(signal)),
    };
    report.quiet();
    let signal = signal?;
    let code = report.end(signal)?;
    Ok(signal.map_or(code, signals::code))
}

async fn everywhere(args: &GcArgs, report: &mut Report<'_>) -> Result<(), Failure> {
    if args.sandbox != Some(GcPlace::Docker) {
        local(report).await?;
    }
    if args.sandbox != Some(GcPlace::Local) {
        engine(args, report).await?;
    }
    Ok(())
}

/// Machines, sessions and runs of this user on this host.
async fn local(report: &mut Report<'_>) -> Result<(), Failure> {
    machines(&UnixLocal::new(), report).await?;
    match Machines::of_sessions() {
        Ok(Some(sessions)) => {
            machines(&sessions.local(), report).await?;
            orphans(&sessions, report).await?;
            records(&sessions, report)?;
            gone(&sessions, report).await?;
        }
        Ok(None) => {}
        Err(failure) => report.failed("sessions", failure),
    }
    match RunStore::existing() {
        Ok(Some(store)) => runs(store, report).await,
        Ok(None) => Ok(()),
        Err(failure) => {
            report.failed("runs", failure);
            Ok(())
        }
    }
}

/// What dead machines left in a state directory.
async fn machines(client: &UnixLocal, report: &mut Report<'_>) -> Result<(), Failure> {
    report.doing("looking for what dead machines left");
    let found = match client.machines() {
        Ok(found) => found,
        Err(error) => {
            report.failed("machines", error.into());
            return Ok(());
        }
    };
    let mut dead = Vec::new();
    for Resident { id, state } in found {
        match state {
            ResidentState::Running => report.kept(Item::new("machine", id, "it lives")),
            ResidentState::Removing => report.removing(Item::new("machine", id, "another process removes it"))?,
            ResidentState::Dead => dead.push(id),
        }
    }
    match sweep(client, &dead, report).await {
        Ok((left, removing)) => told(dead, left, &removing, report),
        Err(error) => {
            report.failed("machines", error.into());
            Ok(())
        }
    }
}

/// Removes what dead machines left. Gives back what could not be removed, and the ids of what is still there although this
/// sweep did not fail at it: other processes are removing that.
async fn sweep(
    client: &UnixLocal,
    dead: &[String],
    report: &mut Report<'_>,
) -> Result<(Vec<Remainder>, Vec<String>), MachineError> {
    if dead.is_empty() || report.is_dry() {
        return Ok((Vec::new(), Vec::new()));
    }
    report.doing(&format!("removing what {} dead machines left", dead.len()));
    let left = client.sweep().await?;
    let there = client.machines()?.into_iter().map(|machine| machine.id);
    Ok((left, there.collect()))
}

fn told(dead: Vec<String>, left: Vec<Remainder>, there: &[String], report: &mut Report<'_>) -> Result<(), Failure> {
    for id in dead {
        if left.iter().any(|left| left.id == id) {
            continue;
        }
        match there.contains(&id) {
            true => report.removing(Item::new("machine", id, "another process removes it"))?,
            false => report.removed(Item::new("machine", id, "its supervisor is dead"))?,
        }
    }
    for Remainder { id, error } in left {
        report.failed(&format!("machine {id}"), Failure::new("something of it is left").because(error));
    }
    Ok(())
}

/// Machines that live, and that no session has: whoever made them was killed before they could be written down.
async fn orphans(sessions: &Machines, report: &mut Report<'_>) -> Result<(), Failure> {
    let found = match sessions.orphans() {
        Ok(Orphans::Found(found)) => found,
        Ok(Orphans::Unclear(why)) => {
            report.note(&format!("{why}; machines without a session were left as they are"));
            return Ok(());
        }
        Err(failure) => {
            report.failed("sessions", failure);
            return Ok(());
        }
    };
    for id in found {
        if report.is_removing("machine", &id) {
            continue;
        }
        report.doing(&format!("removing the machine {id}"));
        let removed = if report.is_dry() { Ok(()) } else { sessions.remove_orphan(&id).await };
        report.outcome(Item::new("machine", id, "no session has it"), removed)?;
    }
    Ok(())
}

/// Records whose writers were killed before they had finished.
fn records(sessions: &Machines, report: &mut Report<'_>) -> Result<(), Failure> {
    let store = sessions.store();
    let left = store.half_written().unwrap_or_else(|error| {
        report.failed("sessions", error.into());
        Vec::new()
    });
    for name in left {
        let removed = if report.is_dry() { Ok(()) } else { store.remove_half_written(&name) };
        match removed {
            Ok(()) => report.removed(Item::new("record", name, "it was never written to its end"))?,
            Err(error) => report.failed(&format!("record {name}"), error.into()),
        }
    }
    Ok(())
}

/// Sessions whose machine ended by itself or with the host: all that is left of them is their record.
async fn gone(sessions: &Machines, report: &mut Report<'_>) -> Result<(), Failure> {
    let found = match sessions.gone().await {
        Ok(found) => found,
        Err(failure) => {
            report.failed("sessions", failure);
            return Ok(());
        }
    };
    for state in found {
        let removed = if report.is_dry() { Ok(()) } else { sessions.remove_gone(&state).await };
        match removed {
            Ok(()) => report.removed(Item::new("session", state.session_id, "its machine is gone"))?,
            Err(failure) => report.failed(&format!("session {}", state.session_id), failure),
        }
    }
    Ok(())
}

/// Runs that were never whole, or are no longer.
async fn runs(store: RunStore, report: &mut Report<'_>) -> Result<(), Failure> {
    for part in store.parts() {
        let RunPart { name, why } = part.clone();
        report.doing(&format!("removing {name}"));
        let removed = if report.is_dry() {
            Ok(())
        } else {
            let removing = store.clone();
            let removal = tokio::task::spawn_blocking(move || removing.remove_part(&part)).await;
            removal.unwrap_or_else(|error| Err(std::io::Error::other(error)))
        };
        match removed {
            Ok(()) => report.removed(Item::new("run", name, why))?,
            Err(error) => report.failed(&format!("run {name}"), Failure::new("something of it is left").because(error)),
        }
    }
    Ok(())
}

/// Containers and volumes. No engine is no failure, unless one was asked for.
async fn engine(args: &GcArgs, report: &mut Report<'_>) -> Result<(), Failure> {
    let engine = match Engine::from_env() {
        Ok(engine) => engine,
        Err(error) => return no_engine(args, Failure::from(error), report),
    };
    report.doing(&format!("looking at the engine {engine}"));
    let mut found = match engine.leftovers().await {
        Ok(found) => found,
        Err(error) => return no_engine(args, Failure::from(error).without_machine(), report),
    };
    report.looked_at(&engine);
    let lost = unclaimed(&found.kept, report);
    let (lost, kept) = found.kept.into_iter().partition::<Vec<_>, _>(|one| lost.contains(&one.name));
    found.kept = kept;
    found.dead.extend(lost.into_iter().map(|one| one.unclaimed("no session has it")));
    for Found { kind, name, why, .. } in &found.kept {
        report.kept(Item::new(kind.name(), name.clone(), why.clone()));
    }
    let total = found.dead.len();
    for (at, dead) in found.dead.iter().enumerate() {
        let Found { kind, name, why, .. } = dead;
        report.doing(&format!("removing {} of {total}: {kind} {name}", at + 1));
        let removed = if report.is_dry() { Ok(()) } else { engine.remove_leftover(dead).await };
        report.outcome(Item::new(kind.name(), name.clone(), why.clone()), removed)?;
    }
    Ok(())
}

/// The names of containers that outlive their makers, and that no session has: those makers were killed before they wrote
/// them down.
fn unclaimed(kept: &[Found], report: &mut Report<'_>) -> Vec<String> {
    let found = Machines::of_sessions().and_then(|sessions| match sessions {
        Some(sessions) => sessions.unclaimed(kept),
        None => Ok(Orphans::Found(Vec::new())),
    });
    match found {
        Ok(Orphans::Found(lost)) => return lost,
        Ok(Orphans::Unclear(why)) => report.note(&format!("{why}; containers without a session were left as they are")),
        Err(failure) => report.failed("sessions", failure),
    }
    Vec::new()
}

fn no_engine(args: &GcArgs, failure: Failure, report: &mut Report<'_>) -> Result<(), Failure> {
    if args.sandbox == Some(GcPlace::Docker) {
        return Err(failure);
    }
    report.not_looked_at(&failure.to_string());
    Ok(())
}
