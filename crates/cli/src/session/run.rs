//! `sandbar session exec` and `shell`: a command in a sandbox that is already there, and stays.

use std::ffi::OsString;

use sandbar::{Intent, Machine, MachineError, MachinePath, Target};

use super::{Home, attach};
use crate::{
    args::{CommandArgs, SessionExecArgs, ShellArgs},
    attend::{attend, conclude},
    failure::Failure,
    plan::{self, Input},
    relay::Ended,
    render::Render,
    signals::Signals,
    terminal,
};

pub(super) async fn exec(args: SessionExecArgs, home: &Home, render: &Render) -> Result<u8, Failure> {
    let input = Input::choose(args.command.tty, terminal::is_terminal());
    let command = plan::command(&args.command, input)?;
    let session = home.attach(&args.session).await?;
    let cwd = match &args.cwd {
        Some(cwd) => session.paths().target(cwd, Intent::Read)?.path,
        None => session.paths().root().clone(),
    };
    if args.detach {
        return attach::start(&args, &session, command.cwd(cwd), render).await;
    }
    let mut signals = Signals::listen()?;
    let ended = attend(session.machine().as_ref(), command.cwd(cwd), input, &mut signals).await?;
    home.tell_repositories(session.id(), render);
    if let Ended::Lost(MachineError::Gone) = &ended {
        return Err(home.closed(session.id(), "while the command ran").await);
    }
    conclude(ended, &args.command, render)
}

pub(super) async fn shell(args: ShellArgs, home: &Home, render: &Render) -> Result<u8, Failure> {
    let session = home.attach(&args.session).await?;
    let shell = shell_of(session.machine().as_ref()).await?;
    // Without a terminal it reads what it is given, to its end; with one of its own it would wait for more for ever.
    let (tty, user) = (terminal::is_terminal(), args.user);
    let command = CommandArgs { env: Vec::new(), user, tty, timeout: None, command: vec![shell] };
    let session = session.id().to_owned();
    exec(SessionExecArgs { session, cwd: None, detach: false, json: false, command }, home, render).await
}

/// The shell that people like better, if the machine has it.
async fn shell_of(machine: &dyn Machine) -> Result<OsString, Failure> {
    for place in ["/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash"] {
        if let Ok(Some(_)) = machine.stat(&Target::from(MachinePath::new(place)?)).await {
            return Ok(place.into());
        }
    }
    Ok("sh".into())
}
