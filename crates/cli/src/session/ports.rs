//! `sandbar session ports`: makes the declared ports of a session reachable on this host's loopback, until a signal.

use std::time::Duration;

use sandbar::SandboxSession;
use serde_json::json;
use tokio::time::sleep;

use super::Sessions;
use crate::{args::PortsArgs, failure::Failure, render::Render, streams::signals::Signals};

/// Interval of the checks whether the session still runs.
const LOOK: Duration = Duration::from_secs(1);

pub(super) async fn run(args: &PortsArgs, sessions: &Sessions, render: &Render) -> Result<u8, Failure> {
    let session = sessions.attach(&args.session).await?;
    if session.ports().declared().is_empty() {
        let what = format!("session {} has no declared ports", args.session);
        let next = "declare ports when you create the session: sandbar session create --port PORT";
        return Err(Failure::new(what).code("exposed_port_unavailable").next(next));
    }
    let mut signals = Signals::listen()?;
    for port in session.ports().declared() {
        let printed = announce(&session, *port, args, render).await?;
        if printed != 0 {
            return Ok(printed);
        }
    }
    tokio::select! {
        // The normal end.
        _signal = signals.next() => Ok(0),
        () = ended(&session) => Err(Failure::new("the session ended").code("session_closed")),
    }
}

/// Waits until the session no longer answers.
async fn ended(session: &SandboxSession) {
    while session.running().await.unwrap_or(false) {
        sleep(LOOK).await;
    }
}

async fn announce(session: &SandboxSession, port: u16, args: &PortsArgs, render: &Render) -> Result<u8, Failure> {
    let shown = session.ports().resolve(port).await?;
    let url = shown.url_for("http");
    let line = if args.json {
        json!({"id": session.id(), "port": port, "host": shown.host(), "host_port": shown.port(), "url": url})
            .to_string()
    } else {
        format!("{port}  {url}")
    };
    render.result(format!("{line}\n").as_bytes())
}
