//! `sandbar exec`: one command on a machine of its own, from the first signal it may get to the last thing it leaves.

use std::sync::Arc;

use sandbar::{Machine, MachineError, SandboxSession, SessionOptions};
use tokio::time::Instant;

use crate::{
    args::ExecArgs,
    attend::{attend, conclude},
    client,
    failure::Failure,
    git::Guard,
    making::{self, Halt},
    plan::{self, Input},
    progress,
    render::Render,
    signals::{self, Signals},
    terminal,
};

/// Where the command runs.
enum Ground {
    /// A bare machine, which is the quickest.
    Machine(Arc<dyn Machine>),
    /// A workspace that was filled first.
    Session(SandboxSession),
}

impl Ground {
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
    let (ground, guard) = match ground(&args, render, &mut signals).await {
        Ok(made) => made,
        Err(Halt::Signal(signal)) => return Ok(signals::code(signal)),
        Err(Halt::Failed(failure)) => return Err(*failure),
    };
    if let Ground::Session(session) = &ground {
        command = command.cwd(session.paths().root().clone());
    }
    let ended = match announce(ground.machine(), &args.machine.ports, render).await {
        Ok(()) => attend(ground.machine(), command, input, &mut signals).await,
        Err(error) => Err(error.into()),
    };
    if let Err(failure) = remove(&ground, &mut signals).await {
        render.hurried().failure(&failure);
    }
    guard.findings().iter().for_each(|finding| render.note(finding));
    conclude(ended?, &args.command, render)
}

/// Makes what the command runs on, and fills it if there is something to fill it with.
async fn ground(args: &ExecArgs, render: &Render, signals: &mut Signals) -> Result<(Ground, Guard), Halt> {
    let (mut spec, user) = (plan::spec(&args.machine)?, args.command.user.as_ref());
    let manifest = plan::with_user(plan::manifest(&args.fill, &[])?, user)?;
    let guard = plan::guard(&mut spec, &manifest, &args.machine, render)?;
    plan::warn_of_strangers(args.machine.workspace.as_ref(), user, render);
    if args.fill.is_empty() {
        let spec = plan::inhabited(spec, user);
        return making::machine(client::choose(&args.machine.sandbox, render)?, spec, signals)
            .await
            .map(|machine| (Ground::Machine(machine), guard));
    }
    plan::can_be_filled(&args.machine)?;
    let mut options = SessionOptions::new(manifest).machine(spec);
    options.secrets = plan::secrets(&args.fill)?;
    options.proxies = plan::proxies(&args.fill)?;
    let meter = progress::Meter::choose(render);
    options.progress = meter.as_ref().map(progress::Meter::listener);
    let session = making::session(client::choose(&args.machine.sandbox, render)?, options, signals).await?;
    let arrived = making::fill(&session, signals).await?;
    drop(meter);
    render.left_out(&arrived);
    Ok((Ground::Session(session), guard))
}

/// Opens the ports and says where they are, before there is anything to connect to.
async fn announce(machine: &dyn Machine, ports: &[u16], render: &Render) -> sandbar::Result<()> {
    for port in ports {
        let facet = machine.ports().ok_or(MachineError::Unsupported("expose ports"))?;
        let endpoint = facet.open(*port).await?;
        render.port(*port, &endpoint);
    }
    Ok(())
}

/// Removes everything. Somebody who cannot wait for it leaves that to the machine's supervisor.
async fn remove(ground: &Ground, signals: &mut Signals) -> Result<(), Failure> {
    let begun = Instant::now();
    tokio::select! {
        removed = ground.remove() => {
            tracing::info!(took = ?begun.elapsed(), "removed the machine");
            removed
        }
        _again = signals.next() => Ok(()),
    }
}
