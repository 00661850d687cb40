//! `sandbar session stop` and `rm`: how a sandbox that stays comes to its end.

use sandbar::{SandboxSession, SessionOptions, SessionState};
use serde_json::json;

use super::Home;
use crate::{
    args::{RmArgs, StopArgs},
    failure::Failure,
    render::Render,
};

pub(super) async fn stop(args: &StopArgs, home: &Home, render: &Render) -> Result<u8, Failure> {
    let mut state = home.find(&args.session)?;
    let attached = SandboxSession::attach(home.client.clone(), state.clone(), SessionOptions::default()).await?;
    if let Some(session) = attached {
        session.close().await?;
    }
    // What says, of a machine that is gone, that somebody wanted it so.
    state.workspace_root_ready = false;
    home.store.save(&state)?;
    if args.json {
        return render.result(format!("{}\n", json!({"id": state.session_id, "state": "stopped"})).as_bytes());
    }
    Ok(0)
}

pub(super) async fn remove(args: &RmArgs, home: &Home, render: &Render) -> Result<u8, Failure> {
    let (states, mut failures) = wanted(args, home)?;
    let mut removed = Vec::new();
    for state in states {
        match remove_one(&state, args, home).await {
            Ok(()) => removed.push(state.session_id),
            Err(failure) => failures.push(failure),
        }
    }
    if args.json && (failures.is_empty() || !removed.is_empty()) {
        render.result(format!("{}\n", json!({"removed": removed})).as_bytes())?;
    }
    let Some(last) = failures.pop() else { return Ok(0) };
    for failure in &failures {
        if args.json { render.failure_document(failure) } else { render.failure(failure) }
    }
    Err(last)
}

fn wanted(args: &RmArgs, home: &Home) -> Result<(Vec<SessionState>, Vec<Failure>), Failure> {
    if args.all {
        return Ok((home.store.list()?, Vec::new()));
    }
    let (mut states, mut failures) = (Vec::<SessionState>::new(), Vec::new());
    for given in &args.sessions {
        match home.store.find(given) {
            Ok(state) if states.iter().any(|known| known.session_id == state.session_id) => {}
            Ok(state) => states.push(state),
            Err(error) if args.force && error.code() == "session_not_found" => {}
            Err(error) => failures.push(error.into()),
        }
    }
    Ok((states, failures))
}

/// The machine first: as long as it is there, so is what finds it.
async fn remove_one(state: &SessionState, args: &RmArgs, home: &Home) -> Result<(), Failure> {
    if let Err(error) = home.client.delete(&state.machine).await {
        if !args.force {
            let next = "try again, or forget it with --force";
            return Err(Failure::new(format!("cannot remove {}", state.session_id)).because(error).next(next));
        }
        tracing::warn!(%error, "forgot a session whose machine could not be removed");
    }
    Ok(home.store.remove(&state.session_id)?)
}
