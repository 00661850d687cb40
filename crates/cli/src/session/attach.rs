//! `sandbar session attach`, and `exec --detach`: commands of a session that go on when nobody is there.

use std::{io, time::Duration};

use bytes::Bytes;
use sandbar::{
    Command, Control, KEPT_PROCESSES, Machine, MachineError, Process, ProcessId, SandboxSession, TerminalSize,
};
use serde_json::json;
use tokio::{sync::mpsc, time::timeout};

use super::{
    Home,
    processes::{alone, commands, missing},
};
use crate::{
    args::{AttachArgs, CommandArgs, SessionExecArgs},
    attend::{conclude, resized},
    failure::Failure,
    relay::{self, Ended, Printing},
    render::Render,
    signals::Signals,
    terminal::{self, Raw},
};

/// The two keys that leave a terminal: Ctrl-P, Ctrl-Q.
const LEAVE: [u8; 2] = [0x10, 0x11];

/// How long what was on its way is waited for when somebody leaves.
const AFTERMATH: Duration = Duration::from_secs(1);

/// Starts a command that goes on by itself, and says what it is known by.
pub(super) async fn start(
    args: &SessionExecArgs,
    session: &SandboxSession,
    command: Command,
    render: &Render,
) -> Result<u8, Failure> {
    // Whoever attaches to it later may want to type.
    let process = session.machine().spawn(command.stdin().kept()).await.map_err(|error| match &error {
        MachineError::Exhausted { what, .. } if what == KEPT_PROCESSES => {
            let id = &args.session;
            let next = format!("`sandbar session ps {id}` lists them, `sandbar session kill {id} PROCESS` ends one");
            Failure::from(error).next(next)
        }
        _ => error.into(),
    })?;
    let Some(id) = process.id else {
        // It could not be executed, which its output says.
        let mut printing =
            relay::output(process.output).map_err(|error| Failure::new("cannot write").because(error))?;
        return conclude(printing.ended().await, &args.command, render);
    };
    let text = if args.json { json!({"id": session.id(), "process": id}).to_string() } else { id.to_string() };
    match render.result(format!("{text}\n").as_bytes()) {
        Ok(0) => {
            let _ended_already = process.control.send(Control::Leave).await;
            Ok(0)
        }
        // Nobody knows its number, so it ends with us.
        other => other,
    }
}

pub(super) async fn run(args: &AttachArgs, home: &Home, render: &Render) -> Result<u8, Failure> {
    let session = home.attach(&args.session).await?;
    let machine = session.machine().as_ref();
    let id = match args.process {
        Some(id) => id,
        None => only(machine, &args.session).await?,
    };
    let commands = commands(machine)?;
    let found = commands.list().await?.into_iter().find(|info| info.id == id);
    let tty = found.is_some_and(|info| info.tty);
    let adopted = commands.adopt(id).await.map_err(|error| match error {
        MachineError::Held(_) => {
            let next = format!("wait until it is let go; `sandbar session kill {} {id}` ends it", args.session);
            Failure::new(format!("somebody is attached to process {id}")).code("held").next(next)
        }
        other => other.into(),
    })?;
    let Some(process) = adopted else { return Err(missing(id, &args.session)) };
    let own = |error: io::Error| Failure::new("cannot use the terminal").because(error);
    // First, so that no signal ends this without giving the terminal back.
    let mut signals = Signals::listen()?;
    let raw = if tty && terminal::is_terminal() { Some(Raw::enter().map_err(own)?) } else { None };
    let how = follow(process, raw, &mut signals).await?;
    home.tell_repositories(session.id(), render);
    let no_options = CommandArgs { env: Vec::new(), user: None, tty, timeout: None, command: Vec::new() };
    match how {
        How::Left => {
            render.note(&format!("process {id} goes on; `sandbar session attach {} {id}` comes back", args.session));
            Ok(0)
        }
        How::Ended(ended) => conclude(ended, &no_options, render),
    }
}

/// The one process that nobody holds.
async fn only(machine: &dyn Machine, session: &str) -> Result<ProcessId, Failure> {
    match &alone(machine).await?[..] {
        [one] => Ok(one.id),
        [] => {
            let what = format!("no process of the session {session} waits for somebody");
            let next =
                format!("`sandbar session exec --detach {session} -- COMMAND` starts one, `session shell` a shell");
            Err(Failure::new(what).code("process_not_found").next(next))
        }
        several => {
            let what = format!("{} processes of the session {session} wait for somebody", several.len());
            let next = format!("say which; `sandbar session ps {session}` shows them");
            Err(Failure::new(what).code("process_ambiguous").next(next))
        }
    }
}

/// How it came to an end.
enum How {
    /// Somebody left, and the process goes on.
    Left,
    Ended(Ended),
}

/// Shows a process until it ends, or whoever watches leaves: by the keys, or by any signal.
async fn follow(process: Process, mut raw: Option<Raw>, signals: &mut Signals) -> Result<How, Failure> {
    let own = |what: &'static str| move |error: io::Error| Failure::new(what).because(error);
    let Process { stdin, control, output, .. } = process;
    let (keys, mut typed) = mpsc::channel(4);
    relay::pieces(io::stdin(), keys).map_err(own("cannot read standard input"))?;
    let mut printing = relay::output(output).map_err(own("cannot write standard output"))?;
    if raw.is_some() {
        // It draws itself anew, for a terminal of this size.
        redraw(&control, terminal::size());
    }
    let mut watch = Keys::default();
    let mut typing = stdin.is_some();
    // What was typed and the process has not taken yet: a process that does not read must not keep signals from us.
    let mut waiting: Option<Bytes> = None;
    loop {
        tokio::select! {
            ended = printing.ended() => return Ok(How::Ended(ended)),
            _signal = signals.next() => return Ok(leave(control, printing).await),
            size = resized(&mut raw) => redraw(&control, size),
            room = room(stdin.as_ref()), if waiting.is_some() => match (room, waiting.take()) {
                (Some(room), Some(piece)) => room.send(piece),
                _ => typing = false,
            },
            // The end of our input is not the end of its: another client may want to type.
            piece = typed.recv(), if typing && waiting.is_none() => match piece {
                Some(Ok(piece)) => match if raw.is_some() { watch.pass(&piece) } else { Passed::On(piece) } {
                    Passed::On(piece) => waiting = Some(piece),
                    Passed::Left => return Ok(leave(control, printing).await),
                },
                _ => typing = false,
            },
        }
    }
}

/// Room for a piece of input, once there is; `None` if the process takes no more.
async fn room(stdin: Option<&mpsc::Sender<Bytes>>) -> Option<mpsc::Permit<'_, Bytes>> {
    stdin?.reserve().await.ok()
}

fn redraw(control: &mpsc::Sender<Control>, size: TerminalSize) {
    let _ended_already = control.try_send(Control::Resize(size));
}

/// Lets go of the process, once what was on its way has been shown.
async fn leave(control: mpsc::Sender<Control>, mut printing: Printing) -> How {
    printing.hurry();
    let _ended_already = control.try_send(Control::Leave);
    match timeout(AFTERMATH, printing.ended()).await {
        Ok(ended @ Ended::Exited(_)) => How::Ended(ended),
        _ => How::Left,
    }
}

/// Looks for the keys that leave.
#[derive(Default)]
struct Keys {
    /// The first of them was typed.
    begun: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum Passed {
    On(Bytes),
    Left,
}

impl Keys {
    /// What goes inside of what was typed. The first of the two keys waits for the one after it.
    fn pass(&mut self, typed: &[u8]) -> Passed {
        let mut inside = Vec::with_capacity(typed.len() + 1);
        for key in typed {
            match (std::mem::take(&mut self.begun), *key) {
                (true, key) if key == LEAVE[1] => return Passed::Left,
                (true, key) if key == LEAVE[0] => {
                    inside.push(key);
                    self.begun = true;
                }
                (true, key) => inside.extend([LEAVE[0], key]),
                (false, key) if key == LEAVE[0] => self.begun = true,
                (false, key) => inside.push(key),
            }
        }
        Passed::On(inside.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_keys_leave_and_all_others_go_inside() {
        let table = [
            (vec!["abc"], Some("abc")),
            (vec!["\x10\x11"], None),
            (vec!["a\x10", "\x11b"], None),
            (vec!["\x10", "x"], Some("\x10x")),
            (vec!["\x10\x10x"], Some("\x10\x10x")),
            (vec!["\x10\x10", "\x11"], None),
            (vec!["\x11\x10"], Some("\x11")),
        ];
        for (pieces, expected) in table {
            let (mut keys, mut inside, mut left) = (Keys::default(), Vec::new(), false);
            for piece in &pieces {
                match keys.pass(piece.as_bytes()) {
                    Passed::On(bytes) => inside.extend_from_slice(&bytes),
                    Passed::Left => left = true,
                }
            }
            assert_eq!((!left).then_some(&inside[..]), expected.map(str::as_bytes), "{pieces:?}");
        }
    }
}
