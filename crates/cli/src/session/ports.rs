//! `sandbar session ports`: the declared ports of a session on this host's loopback, for as long as somebody wants them.

use std::time::Duration;

use sandbar::SandboxSession;
use serde_json::json;
use tokio::time::sleep;

use super::Home;
use crate::{args::PortsArgs, failure::Failure, render::Render, signals::Signals};

/// How often it is seen whether the session still runs.
const LOOK: Duration = Duration::from_secs(1);

pub(super) async fn run(args: &PortsArgs, home: &Home, render: &Render) -> Result<u8, Failure> {
    let session = home.attach(&args.session).await?;
    if session.exposed_ports().is_empty() {
        let what = format!("the session {} declared no ports", args.session);
        let next = "declare them when it is made: sandbar session create --port PORT";
        return Err(Failure::new(what).code("exposed_port_unavailable").next(next));
    }
    let mut signals = Signals::listen()?;
    for port in session.exposed_ports() {
        let printed = announce(&session, *port, args, render).await?;
        if printed != 0 {
            return Ok(printed);
        }
    }
    tokio::select! {
        // This is how it is meant to end.
        _signal = signals.next() => Ok(0),
        () = ended(&session) => Err(Failure::new("the session ended").code("session_closed")),
    }
}

/// Waits until the session does not answer any more.
async fn ended(session: &SandboxSession) {
    while session.running().await.unwrap_or(false) {
        sleep(LOOK).await;
    }
}

async fn announce(session: &SandboxSession, port: u16, args: &PortsArgs, render: &Render) -> Result<u8, Failure> {
    let shown = session.resolve_exposed_port(port).await?;
    let url = shown.url_for("http");
    let line = if args.json {
        json!({"id": session.id(), "port": port, "host": shown.host(), "host_port": shown.port(), "url": url})
            .to_string()
    } else {
        format!("{port}  {url}")
    };
    render.result(format!("{line}\n").as_bytes())
}
