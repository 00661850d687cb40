//! `sandbar session create`: a sandbox that stays, or nothing at all.

use sandbar::{Lifetime, Materialised, SandboxSession, SessionOptions};
use serde_json::json;

use super::Home;
use crate::{
    args::CreateArgs,
    failure::Failure,
    git::Guard,
    making::{self, Halt},
    plan, progress,
    render::Render,
    signals::{self, Signals},
};

pub(super) async fn run(args: CreateArgs, home: &Home, render: &Render) -> Result<u8, Failure> {
    let options = options(&args, home, render)?;
    let mut signals = Signals::listen()?;
    match make(options, &args, home, &mut signals, render).await {
        Ok((session, arrived)) => {
            let told = tell(&session, &arrived, &args, render);
            if !matches!(told, Ok(0)) {
                // Nobody knows its id.
                making::discard(&session).await;
                home.forget(session.id())?;
            }
            told
        }
        Err(Halt::Signal(signal)) => Ok(signals::code(signal)),
        Err(Halt::Failed(failure)) => Err(*failure),
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
    let session = making::session(maker, options, signals).await?;
    match keep((&session, &guard), home, signals).await {
        Ok(arrived) => Ok((session, arrived)),
        Err(halt) => {
            making::discard(&session).await;
            home.forget(session.id())?;
            Err(halt)
        }
    }
}

/// Saves the session before it is filled, so that what a killed process leaves can be seen and removed, and after.
async fn keep(
    (session, guard): (&SandboxSession, &Guard),
    home: &Home,
    signals: &mut Signals,
) -> Result<Materialised, Halt> {
    guard.save(&home.repositories(session.id()))?;
    home.store.save(&session.state())?;
    let arrived = making::fill(session, signals).await?;
    home.store.save(&session.state())?;
    Ok(arrived)
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
