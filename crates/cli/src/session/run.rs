//! `sandbar session exec` and `shell`: run a command in an existing session.

use std::ffi::OsString;

use sandbar::{Machine, MachineError, MachinePath, Target, sandbox::Intent};

use super::{Sessions, attach};
use crate::{
    args::{CommandArgs, SessionExecArgs, ShellArgs},
    failure::Failure,
    machine::plan::{self, Input},
    render::Render,
    streams::{
        foreground::{attach, conclude},
        relay::Ended,
        signals::Signals,
        terminal,
    },
};

pub(super) async fn exec(args: SessionExecArgs, sessions: &Sessions, render: &Render) -> Result<u8, Failure> {
    let input = Input::choose(args.command.tty, terminal::is_terminal());
    let command = plan::command(&args.command, input)?;
    let session = sessions.attach(&args.session).await?;
    let cwd = match &args.cwd {
        Some(cwd) => session.paths().target(cwd, Intent::Read)?.path,
        None => session.paths().root().clone(),
    };
    if args.detach {
        return attach::start(&args, &session, command.cwd(cwd), render).await;
    }
    let mut signals = Signals::listen()?;
    let ended = attach(session.machine().as_ref(), command.cwd(cwd), input, &mut signals).await?;
    super::report_repositories(sessions, session.id(), render);
    if let Ended::Lost(MachineError::Gone) = &ended {
        return Err(sessions.closed(session.id(), "while the command ran").await.into());
    }
    conclude(ended, &args.command, render)
}

pub(super) async fn shell(args: ShellArgs, sessions: &Sessions, render: &Render) -> Result<u8, Failure> {
    let session = sessions.attach(&args.session).await?;
    let shell = shell_of(session.machine().as_ref()).await?;
    // Without a terminal, the shell reads its input to the end; with a terminal inside, it would wait for more forever.
    let (tty, user) = (terminal::is_terminal(), args.user);
    let command = CommandArgs { env: Vec::new(), user, tty, timeout: None, command: vec![shell] };
    let session = session.id().to_owned();
    exec(SessionExecArgs { session, cwd: None, detach: false, json: false, command }, sessions, render).await
}

/// bash if the machine has it, otherwise sh.
async fn shell_of(machine: &dyn Machine) -> Result<OsString, Failure> {
    for place in ["/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash"] {
        if let Ok(Some(_)) = machine.stat(&Target::from(MachinePath::new(place)?)).await {
            return Ok(place.into());
        }
    }
    Ok("sh".into())
}
