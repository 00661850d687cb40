//! `sandbar session create`: a sandbox that stays, or nothing at all.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use sandbar::{Lifetime, Materialised, SandboxClient as _, SandboxError, SandboxSession, SessionOptions, SessionState};
use serde_json::json;
use tokio::time::timeout;

use super::{
    Home,
    list::{self, Condition},
};
use crate::{
    args::CreateArgs,
    failure::Failure,
    git::Guard,
    making::{self, Halt},
    plan, progress,
    render::Render,
    signals::{self, Signals},
};

/// How long a session that is not to be may take to be removed.
const REMOVAL: Duration = Duration::from_secs(60);

pub(super) async fn run(args: CreateArgs, home: &Home, render: &Render) -> Result<u8, Failure> {
    free_name(&args, home).await?;
    let options = options(&args, home, render)?;
    let mut signals = Signals::listen()?;
    match make(options, &args, home, &mut signals, render).await {
        Ok((session, arrived)) => {
            let told = tell(&session, &arrived, &args, render);
            if !matches!(told, Ok(0)) {
                // Nobody knows its id.
                undo(&session.state(), home, render).await?;
            }
            told
        }
        Err(Halt::Signal(signal)) => Ok(signals::code(signal)),
        Err(Halt::Failed(failure)) => Err(*failure),
    }
}

/// Takes the name from a session that was never made: its maker was killed after it had written the record.
async fn free_name(args: &CreateArgs, home: &Home) -> Result<(), Failure> {
    let Some(name) = &args.name else { return Ok(()) };
    let Some(id) = home.store.named(name)? else { return Ok(()) };
    if !home.abandoned()?.contains(&id) {
        return Ok(());
    }
    match home.store.find(&id) {
        Ok(state) if list::condition(&state, &*home.client).await == Condition::Gone => home.remove_gone(&state).await,
        _ => Ok(()),
    }
}

fn options(args: &CreateArgs, home: &Home, render: &Render) -> Result<(SessionOptions, Guard), Failure> {
    if let Some(name) = &args.name
        && home.store.named(name)?.is_some()
    {
        let next = format!("choose another name, or remove it: sandbar session rm {name}");
        return Err(Failure::new(format!("there is a session {name} already")).code("session_exists").next(next));
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
    home: &Home,
    signals: &mut Signals,
    render: &Render,
) -> Result<(SandboxSession, Materialised), Halt> {
    let _until_it_has_a_record = making::unless_signalled(home.making(), signals).await?;
    let meter = if args.json { None } else { progress::Meter::choose(render) };
    options.progress = meter.as_ref().map(progress::Meter::listener);
    let maker = home.maker(&args.machine.sandbox, render)?;
    let records = Records { home, guard: &guard, begun: Mutex::default() };
    let session = match making::recorded(maker, options, &|state| records.begin(state), signals).await {
        Ok(session) => session,
        Err(halt) => return Err(records.undo(halt, render).await),
    };
    match keep(&session, home, signals).await {
        Ok(arrived) => Ok((session, arrived)),
        Err(halt) => Err(records.undo(halt, render).await),
    }
}

/// Fills the session, which is saved already, so that what a killed process leaves can be seen and removed.
async fn keep(session: &SandboxSession, home: &Home, signals: &mut Signals) -> Result<Materialised, Halt> {
    let arrived = making::fill(session, signals).await?;
    home.store.save(&session.state())?;
    Ok(arrived)
}

/// What is written down of a session before its machine can outlive this process.
struct Records<'a> {
    home: &'a Home,
    guard: &'a Guard,
    /// The session that was begun, and why it could not be written down.
    begun: Mutex<(Option<SessionState>, Option<Failure>)>,
}

impl Records<'_> {
    fn begin(&self, state: &SessionState) -> Result<(), SandboxError> {
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        begun.0 = Some(state.clone());
        let repositories = self.home.repositories(&state.session_id);
        if let Err(failure) = self.guard.save(&repositories) {
            begun.1 = Some(failure);
            let place = repositories.display().to_string();
            return Err(SandboxError::session_store_error(place, "the session's repositories cannot be saved"));
        }
        self.home.store.save(state)
    }

    /// Removes what was begun, and says why nothing was made.
    async fn undo(self, halt: Halt, render: &Render) -> Halt {
        let (begun, trouble) = self.begun.into_inner().unwrap_or_else(PoisonError::into_inner);
        if let Some(state) = begun
            && let Err(failure) = undo(&state, self.home, render).await
        {
            return failure.into();
        }
        trouble.map_or(halt, Halt::from)
    }
}

/// Removes a session that is not to be. One whose machine cannot be removed keeps its record: it is listed, and can be
/// removed later.
async fn undo(state: &SessionState, home: &Home, render: &Render) -> Result<(), Failure> {
    let id = &state.session_id;
    let why = match timeout(REMOVAL, home.client.delete(&state.machine)).await {
        Ok(Ok(())) => return home.forget(id),
        Ok(Err(error)) => Failure::from(error).without_next().to_string(),
        Err(_late) => format!("its machine did not end within {} seconds", REMOVAL.as_secs()),
    };
    render.note(&format!("the session {id} is left unfinished: {why}; `sandbar session rm {id}` removes it"));
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
