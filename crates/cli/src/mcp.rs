//! `sandbar mcp`: serves one sandbox to one MCP client on standard input and output.

use std::{io, os::fd::AsFd, thread, time::Duration};

use bytes::Bytes;
use sandbar::{
    Access, MachineSpec, Manifest, PathGrant, SandboxSession, SessionOptions, Workspace,
    sandbox::audit::{Flushed, Jsonl},
};
use sandbar_mcp::{Connection, Server, WorkspaceAccess};
use sandbar_runs::{git::Guard, writable_parent};
use tokio::sync::{mpsc, oneshot};

use crate::{
    args::{GitArg, Level, McpArgs},
    failure::Failure,
    machine::{
        client, plan, progress,
        provision::{self, Halt},
    },
    patch,
    render::Render,
    streams::{
        relay,
        signals::{self, Signals},
        terminal,
    },
};

/// Time limit for writing the last responses, and then the last events of the audit log.
const WRITE_TIMEOUT: Duration = Duration::from_secs(2);

/// Capacity of the queues of input pieces and of responses.
const QUEUE: usize = 16;

pub(crate) async fn run(args: Box<McpArgs>, render: &Render) -> Result<u8, Failure> {
    let mut signals = Signals::listen()?;
    let (session, guard) = match open(&args, render, &mut signals).await {
        Ok(opened) => opened,
        Err(Halt::Signal(signal)) => return Ok(signals::code(signal)),
        Err(Halt::Failed(failure)) => return Err(*failure),
    };
    let served = tokio::select! {
        served = serve(&session, &args, render) => served.map(|()| 0),
        signal = signals.next() => Ok(signals::code(signal)),
    };
    remove(&session, &mut signals, render).await;
    guard.findings().iter().for_each(|finding| render.note(finding));
    served
}

/// Creates the sandbox and fills its workspace.
async fn open(args: &McpArgs, render: &Render, signals: &mut Signals) -> Result<(SandboxSession, Guard), Halt> {
    let (mut options, guard) = options(args, render)?;
    plan::warn_of_short_secrets(&options.secrets, render);
    if let Workspace::Host { path, access: Access::ReadWrite } = &options.machine.workspace {
        options.patch_journal = patch::journal(path, Some(&options), render);
    }
    plan::warn_of_foreign_files(args.machine.workspace.as_ref(), args.user.as_ref(), render);
    let meter = progress::Meter::choose(render);
    options.progress = meter.as_ref().map(progress::Meter::listener);
    let session = provision::session(client::choose(&args.machine.sandbox, render)?, options, signals).await?;
    patch::report(session.patches().recover().await.map_err(Failure::from)?.as_ref(), render);
    let arrived = provision::fill(&session, signals).await?;
    drop(meter);
    render.left_out(&arrived);
    Ok((session, guard))
}

fn options(args: &McpArgs, render: &Render) -> Result<(SessionOptions, Guard), Failure> {
    if args.machine.isolation != Level::Full {
        let next = "remove --isolation; `sandbar doctor` shows which isolation this host supports";
        return Err(Failure::new("the sandbox of an MCP server needs full isolation").next(next));
    }
    let mut spec = plan::spec(&args.machine)?;
    let manifest = plan::with_user(plan::manifest(&args.fill, &args.env)?, args.user.as_ref())?;
    let guard = plan::guard(&mut spec, &manifest, &args.machine, render)?;
    let manifest = reaching(manifest, &spec);
    let mut options = SessionOptions::new(manifest).machine(spec);
    options.secrets = plan::secrets_of_tools(&args.fill, &args.show_secrets)?;
    options.proxies = plan::proxies(&args.fill)?;
    if let Some(path) = &args.audit {
        let refused = || Failure::new(format!("cannot use --audit {}", path.display()));
        if writable_parent(path, &options).is_some() {
            return Err(refused().next("name a file that the sandbox cannot write to"));
        }
        options = options.audit(Jsonl::open(path).map_err(|error| refused().because(error))?);
    }
    Ok((options, guard))
}

/// Lets the file tools reach every mount of the machine that is outside the workspace, as commands can.
fn reaching(mut manifest: Manifest, spec: &MachineSpec) -> Manifest {
    for mount in &spec.mounts {
        if mount.inside.is_within(&manifest.root) {
            continue;
        }
        let grant = PathGrant::new(mount.inside.clone());
        manifest = manifest.grant(if mount.access == Access::ReadOnly { grant.read_only() } else { grant });
    }
    manifest
}

/// Answers the client until it closes the connection.
async fn serve(session: &SandboxSession, args: &McpArgs, render: &Render) -> Result<(), Failure> {
    let mut ports = Vec::with_capacity(args.machine.ports.len());
    for port in &args.machine.ports {
        let endpoint = session.ports().resolve(*port).await?;
        render.port(*port, &endpoint);
        ports.push((*port, endpoint));
    }
    if terminal::is_terminal() {
        render.note("waiting for an MCP client on standard input; `sandbar mcp --help` shows how a client starts it");
    }
    let acting = args.user.as_ref().map_or_else(|| session.clone(), |user| session.user(user));
    let broken = |error| Failure::new("cannot use standard input and output").because(error);
    let (connection, written) = standard_streams().map_err(broken)?;
    let server =
        Server::new(acting).workspace(workspace(args)).network(plan::network(args.machine.network)).ports(ports);
    let served = server.serve(connection).await;
    served.map_err(|error| Failure::new(error.to_string()).causes_of(&error))?;
    let _unread = tokio::time::timeout(WRITE_TIMEOUT, written).await;
    Ok(())
}

/// What the client may do with the workspace.
fn workspace(args: &McpArgs) -> WorkspaceAccess {
    match args.machine.workspace.as_ref().map(|dir| dir.access) {
        None => WorkspaceAccess::Temporary,
        Some(Access::ReadWrite) if args.machine.git == Some(GitArg::Rw) => WorkspaceAccess::Writable,
        Some(Access::ReadWrite) => WorkspaceAccess::WritableExceptRepositories,
        Some(Access::ReadOnly) => WorkspaceAccess::ReadOnly,
    }
}

/// Takes over both standard streams. The receiver fires when everything is written, or when the client stops reading.
fn standard_streams() -> io::Result<(Connection, oneshot::Receiver<()>)> {
    let (sender, pieces) = mpsc::channel(QUEUE);
    relay::pieces(io::stdin(), sender)?;
    let (answers, mut receiver) = mpsc::channel::<Bytes>(QUEUE);
    let (tell, written) = oneshot::channel();
    let write = move || {
        while let Some(answer) = receiver.blocking_recv() {
            if let Err(error) = relay::write_all(io::stdout().as_fd(), &answer) {
                tracing::warn!(%error, "cannot write to the client");
                break;
            }
        }
        let _receiver_gone = tell.send(());
    };
    thread::Builder::new().name("answers".to_owned()).spawn(write)?;
    Ok((Connection::from_channels(pieces, answers), written))
}

/// Removes the sandbox. After a signal, the supervisor of the machine completes the removal.
async fn remove(session: &SandboxSession, signals: &mut Signals, render: &Render) {
    tokio::select! {
        () = provision::discard(session) => {}
        _again = signals.next() => {}
    }
    let audit = session.audit();
    let flushed = audit.close(WRITE_TIMEOUT).await;
    let lost = audit.dropped() + audit.failed();
    if flushed == Flushed::TimedOut || lost > 0 {
        render.note("the audit log is incomplete; some events could not be written in time");
    }
}
