//! `sandbar exec`: runs one command on a new machine, and removes the machine.

use std::sync::Arc;

use sandbar::{Machine, MachineError, SandboxSession, SessionOptions};
use sandbar_runs::git::Guard;
use tokio::time::Instant;

use crate::{
    args::ExecArgs,
    failure::Failure,
    machine::{
        client,
        plan::{self, Input},
        progress,
        provision::{self, Halt},
    },
    render::Render,
    streams::{
        foreground::{attach, conclude},
        signals::{self, Signals},
        terminal,
    },
};

/// Where the command runs.
enum Sandbox {
    /// A machine without a session, which starts fastest.
    Machine(Arc<dyn Machine>),
    /// A session whose workspace was filled.
    Session(SandboxSession),
}

impl Sandbox {
    fn machine(&self) -> &dyn Machine {
        match self {
            Self::Machine(machine) => machine.as_ref(),
            Self::Session(session) => session.machine().as_ref(),
        }
    }

    async fn remove(&self) -> Result<(), Failure> {
        match self {
            Self::Machine(machine) => Ok(machine.stop().await?),
            Self::Session(session) => Ok(session.delete().await?),
        }
    }
}

pub(crate) async fn run(args: Box<ExecArgs>, render: &Render) -> Result<u8, Failure> {
    let input = Input::choose(args.command.tty, terminal::is_terminal());
    let mut signals = Signals::listen()?;
    let mut command = plan::command(&args.command, input)?;
    let (sandbox, guard) = match make_sandbox(&args, render, &mut signals).await {
        Ok(made) => made,
        Err(Halt::Signal(signal)) => return Ok(signals::code(signal)),
        Err(Halt::Failed(failure)) => return Err(*failure),
    };
    if let Sandbox::Session(session) = &sandbox {
        command = command.cwd(session.paths().root().clone());
    }
    let ended = match announce(sandbox.machine(), &args.machine.ports, render).await {
        Ok(()) => attach(sandbox.machine(), command, input, &mut signals).await,
        Err(error) => Err(error.into()),
    };
    if let Err(failure) = remove(&sandbox, &mut signals).await {
        render.hurried().failure(&failure);
    }
    guard.findings().iter().for_each(|finding| render.note(finding));
    conclude(ended?, &args.command, render)
}

/// Creates the machine, and fills its workspace if the arguments ask for that.
async fn make_sandbox(args: &ExecArgs, render: &Render, signals: &mut Signals) -> Result<(Sandbox, Guard), Halt> {
    let (mut spec, user) = (plan::spec(&args.machine)?, args.command.user.as_ref());
    let manifest = plan::with_user(plan::manifest(&args.fill, &[])?, user)?;
    let guard = plan::guard(&mut spec, &manifest, &args.machine, render)?;
    plan::warn_of_foreign_files(args.machine.workspace.as_ref(), user, render);
    if args.fill.is_empty() {
        let spec = plan::inhabited(spec, user);
        return provision::machine(client::choose(&args.machine.sandbox, render)?, spec, signals)
            .await
            .map(|machine| (Sandbox::Machine(machine), guard));
    }
    plan::can_be_filled(&args.machine)?;
    let mut options = SessionOptions::new(manifest).machine(spec);
    options.secrets = plan::secrets(&args.fill)?;
    options.proxies = plan::proxies(&args.fill)?;
    let meter = progress::Meter::choose(render);
    options.progress = meter.as_ref().map(progress::Meter::listener);
    let session = provision::session(client::choose(&args.machine.sandbox, render)?, options, signals).await?;
    let arrived = provision::fill(&session, signals).await?;
    drop(meter);
    render.left_out(&arrived);
    Ok((Sandbox::Session(session), guard))
}

/// Opens the ports and prints their addresses, before the command starts.
async fn announce(machine: &dyn Machine, ports: &[u16], render: &Render) -> sandbar::machine::Result<()> {
    for port in ports {
        let facet = machine.ports().ok_or(MachineError::Unsupported("expose ports"))?;
        let endpoint = facet.open(*port).await?;
        render.port(*port, &endpoint);
    }
    Ok(())
}

/// Removes the machine. After a signal, the supervisor of the machine completes the removal.
async fn remove(sandbox: &Sandbox, signals: &mut Signals) -> Result<(), Failure> {
    let begun = Instant::now();
    tokio::select! {
        removed = sandbox.remove() => {
            tracing::info!(took = ?begun.elapsed(), "removed the machine");
            removed
        }
        _again = signals.next() => Ok(()),
    }
}
