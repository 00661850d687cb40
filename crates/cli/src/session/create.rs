//! `sandbar session create`: creates a session, or leaves nothing behind.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use sandbar::{Lifetime, Materialised, SandboxError, SandboxSession, SessionOptions, SessionState};
use sandbar_runs::{git::Guard, sessions::Condition};
use serde_json::json;
use tokio::time::timeout;

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

/// Time limit for the removal of a session whose creation failed.
const REMOVAL: Duration = Duration::from_secs(60);

pub(super) async fn run(args: CreateArgs, sessions: &Sessions, render: &Render) -> Result<u8, Failure> {
    free_name(&args, sessions).await?;
    let options = options(&args, sessions, render)?;
    let mut signals = Signals::listen()?;
    match make(options, &args, sessions, &mut signals, render).await {
        Ok((session, arrived)) => {
            let told = tell(&session, &arrived, &args, render);
            if !matches!(told, Ok(0)) {
                // The caller did not get the id of the session.
                undo(&session.state(), sessions, render).await?;
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
    let records = Records { sessions, guard: &guard, begun: Mutex::default() };
    let session = match provision::recorded(maker, options, &|state| records.begin(state), signals).await {
        Ok(session) => session,
        Err(halt) => return Err(records.undo(halt, render).await),
    };
    match keep(&session, sessions, signals).await {
        Ok(arrived) => Ok((session, arrived)),
        Err(halt) => Err(records.undo(halt, render).await),
    }
}

/// Fills the session after its record is saved, so that the leftovers of a killed process can be listed and removed.
async fn keep(session: &SandboxSession, sessions: &Sessions, signals: &mut Signals) -> Result<Materialised, Halt> {
    let arrived = provision::fill(session, signals).await?;
    sessions.store().save(&session.state())?;
    Ok(arrived)
}

/// Records of a session, saved before its machine can outlive this process.
struct Records<'a> {
    sessions: &'a Sessions,
    guard: &'a Guard,
    /// The session whose creation began, and the error if its record could not be saved.
    begun: Mutex<(Option<SessionState>, Option<Failure>)>,
}

impl Records<'_> {
    fn begin(&self, state: &SessionState) -> Result<(), SandboxError> {
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        begun.0 = Some(state.clone());
        let repositories = self.sessions.guard_path(&state.session_id);
        if let Err(error) = self.guard.save(&repositories) {
            begun.1 = Some(error.into());
            let place = repositories.display().to_string();
            return Err(SandboxError::session_store_error(place, "the session's repositories cannot be saved"));
        }
        self.sessions.store().save(state)
    }

    /// Removes the incomplete session, and returns why the creation failed.
    async fn undo(self, halt: Halt, render: &Render) -> Halt {
        let (begun, trouble) = self.begun.into_inner().unwrap_or_else(PoisonError::into_inner);
        if let Some(state) = begun
            && let Err(failure) = undo(&state, self.sessions, render).await
        {
            return failure.into();
        }
        trouble.map_or(halt, Halt::from)
    }
}

/// Removes a session whose creation failed. If its machine cannot be removed, the record is retained, so that the session
/// is listed and can be removed later.
async fn undo(state: &SessionState, sessions: &Sessions, render: &Render) -> Result<(), Failure> {
    let id = &state.session_id;
    let why = match timeout(REMOVAL, sessions.client().delete(&state.machine)).await {
        Ok(Ok(())) => return Ok(sessions.forget(id)?),
        Ok(Err(error)) => Failure::from(error).without_next().to_string(),
        Err(_late) => format!("its machine did not end within {} seconds", REMOVAL.as_secs()),
    };
    render.note(&format!("session {id} remains unfinished; {why}; `sandbar session rm {id}` removes it"));
    Ok(())
}

fn tell(session: &SandboxSession, arrived: &Materialised, args: &CreateArgs, render: &Render) -> Result<u8, Failure> {
    if args.json {
        let document = json!({
            "id": session.id(),
            "name": session.name(),
            "workspace": session.paths().root().to_string(),
            "isolation": session.features().isolation.name(),
            "files": arrived.receipts.len(),
            "left_out": arrived.left_out,
            "ports": session.exposed_ports(),
            "created_at": session.state().created_at,
        });
        return render.result(format!("{document}\n").as_bytes());
    }
    render.left_out(arrived);
    render.result(format!("{}\n", session.id()).as_bytes())
}
