//! `sandbar session attach` and `session exec --detach`: commands of a session that run without a client.

use std::{io, time::Duration};

use bytes::Bytes;
use sandbar::{
    Command, Control, Machine, MachineError, Process, SandboxSession, TerminalSize,
    machine::{KEPT_PROCESSES, ProcessId},
};
use serde_json::json;
use tokio::{sync::mpsc, time::timeout};

use super::{
    Sessions,
    processes::{commands, missing, without_client},
};
use crate::{
    args::{AttachArgs, CommandArgs, SessionExecArgs},
    failure::Failure,
    render::Render,
    streams::{
        foreground::{conclude, resized},
        relay::{self, Ended, Printing},
        signals::Signals,
        terminal::{self, Raw},
    },
};

/// Keys that detach from a terminal: Ctrl-P, Ctrl-Q.
const DETACH_KEYS: [u8; 2] = [0x10, 0x11];

/// Time limit for output that is still in transit when the client detaches.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// Starts a detached command, and prints its process number.
pub(super) async fn start(
    args: &SessionExecArgs,
    session: &SandboxSession,
    command: Command,
    render: &Render,
) -> Result<u8, Failure> {
    // A client that attaches later may send input.
    let process = session.machine().spawn(command.stdin().kept()).await.map_err(|error| match &error {
        MachineError::Exhausted { what, .. } if what == KEPT_PROCESSES => {
            let id = &args.session;
            let next = format!("`sandbar session ps {id}` lists them, `sandbar session kill {id} PROCESS` ends one");
            Failure::from(error).next(next)
        }
        _ => error.into(),
    })?;
    let Some(id) = process.id else {
        // The program could not be executed; its output holds the reason.
        let mut printing = relay::output(process.output);
        return conclude(printing.ended().await, &args.command, render);
    };
    let text = if args.json { json!({"id": session.id(), "process": id}).to_string() } else { id.to_string() };
    match render.result(format!("{text}\n").as_bytes()) {
        Ok(0) => {
            let _ended_already = process.control.send(Control::Leave).await;
            Ok(0)
        }
        // The caller did not get the process number, so the process ends with this one.
        other => other,
    }
}

pub(super) async fn run(args: &AttachArgs, sessions: &Sessions, render: &Render) -> Result<u8, Failure> {
    let session = sessions.attach(&args.session).await?;
    let machine = session.machine().as_ref();
    let id = match args.process {
        Some(id) => id,
        None => only_detached(machine, &args.session).await?,
    };
    let commands = commands(machine)?;
    let found = commands.list().await?.into_iter().find(|info| info.id == id);
    let tty = found.is_some_and(|info| info.tty);
    let adopted = commands.adopt(id).await.map_err(|error| match error {
        MachineError::Held(_) => {
            let next = format!("wait until it detaches; `sandbar session kill {} {id}` ends the process", args.session);
            Failure::new(format!("another client is attached to process {id}")).code("held").next(next)
        }
        other => other.into(),
    })?;
    let Some(process) = adopted else { return Err(missing(id, &args.session)) };
    let own = |error: io::Error| Failure::new("cannot use the terminal").because(error);
    // Before raw mode, so that no signal ends this process without restoring the terminal.
    let mut signals = Signals::listen()?;
    let raw = if tty && terminal::is_terminal() { Some(Raw::enter().map_err(own)?) } else { None };
    let how = follow(process, raw, &mut signals).await?;
    super::report_repositories(sessions, session.id(), render);
    let no_options = CommandArgs { env: Vec::new(), user: None, tty, timeout: None, command: Vec::new() };
    match how {
        FollowEnd::Detached => {
            render.note(&format!(
                "detached from process {id}; `sandbar session attach {} {id}` attaches again",
                args.session
            ));
            Ok(0)
        }
        FollowEnd::Exited(ended) => conclude(ended, &no_options, render),
    }
}

/// Finds the only detached process.
async fn only_detached(machine: &dyn Machine, session: &str) -> Result<ProcessId, Failure> {
    match &without_client(machine).await?[..] {
        [one] => Ok(one.id),
        [] => {
            let what = format!("session {session} has no detached process");
            let next = format!("start one with `sandbar session exec --detach {session} -- COMMAND`");
            Err(Failure::new(what).code("process_not_found").next(next))
        }
        several => {
            let what = format!("session {session} has {} detached processes", several.len());
            let next = format!("add a process number; `sandbar session ps {session}` lists them");
            Err(Failure::new(what).code("process_ambiguous").next(next))
        }
    }
}

/// Result of following a process.
enum FollowEnd {
    /// The client detached; the process continues.
    Detached,
    Exited(Ended),
}

/// Shows a process until it ends, or until the client detaches: with the keys, or by any signal.
async fn follow(process: Process, mut raw: Option<Raw>, signals: &mut Signals) -> Result<FollowEnd, Failure> {
    let own = |what: &'static str| move |error: io::Error| Failure::new(what).because(error);
    let Process { stdin, control, output, .. } = process;
    let (keys, mut typed) = mpsc::channel(4);
    relay::pieces(io::stdin(), keys).map_err(own("cannot read standard input"))?;
    let mut printing = relay::output(output);
    if raw.is_some() {
        // A resize makes the program redraw its screen for this terminal.
        redraw(&control, terminal::size());
    }
    let mut watch = DetachFilter::default();
    let mut typing = stdin.is_some();
    // Input that the process has not read yet: a process that does not read must not block signals.
    let mut waiting: Option<Bytes> = None;
    loop {
        tokio::select! {
            ended = printing.ended() => return Ok(FollowEnd::Exited(ended)),
            _signal = signals.next() => return Ok(detach(control, printing).await),
            size = resized(&mut raw) => redraw(&control, size),
            room = room(stdin.as_ref()), if waiting.is_some() => match (room, waiting.take()) {
                (Some(room), Some(piece)) => room.send(piece),
                _ => typing = false,
            },
            // The end of this client's input is not the end of the process's input: another client may send more.
            piece = typed.recv(), if typing && waiting.is_none() => match piece {
                Some(Ok(piece)) => match if raw.is_some() { watch.pass(&piece) } else { Typed::Forward(piece) } {
                    Typed::Forward(piece) => waiting = Some(piece),
                    Typed::Detach => return Ok(detach(control, printing).await),
                },
                _ => typing = false,
            },
        }
    }
}

/// Waits for room for a piece of input; `None` if the process takes no more input.
async fn room(stdin: Option<&mpsc::Sender<Bytes>>) -> Option<mpsc::Permit<'_, Bytes>> {
    stdin?.reserve().await.ok()
}

fn redraw(control: &mpsc::Sender<Control>, size: TerminalSize) {
    let _ended_already = control.try_send(Control::Resize(size));
}

/// Detaches from the process after showing the output that is still in transit.
async fn detach(control: mpsc::Sender<Control>, mut printing: Printing) -> FollowEnd {
    printing.hurry();
    let _ended_already = control.try_send(Control::Leave);
    match timeout(DRAIN_TIMEOUT, printing.ended()).await {
        Ok(ended @ Ended::Exited(_)) => FollowEnd::Exited(ended),
        _ => FollowEnd::Detached,
    }
}

/// Filter that looks for the keys that detach.
#[derive(Default)]
struct DetachFilter {
    /// Whether the first of the two keys was typed.
    begun: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum Typed {
    Forward(Bytes),
    Detach,
}

impl DetachFilter {
    /// Returns the input to forward. The first of the two keys is withheld until the next key.
    fn pass(&mut self, typed: &[u8]) -> Typed {
        let mut inside = Vec::with_capacity(typed.len() + 1);
        for key in typed {
            match (std::mem::take(&mut self.begun), *key) {
                (true, key) if key == DETACH_KEYS[1] => return Typed::Detach,
                (true, key) if key == DETACH_KEYS[0] => {
                    inside.push(key);
                    self.begun = true;
                }
                (true, key) => inside.extend([DETACH_KEYS[0], key]),
                (false, key) if key == DETACH_KEYS[0] => self.begun = true,
                (false, key) => inside.push(key),
            }
        }
        Typed::Forward(inside.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_keys_detach_and_all_others_are_forwarded() {
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
            let (mut keys, mut inside, mut left) = (DetachFilter::default(), Vec::new(), false);
            for piece in &pieces {
                match keys.pass(piece.as_bytes()) {
                    Typed::Forward(bytes) => inside.extend_from_slice(&bytes),
                    Typed::Detach => left = true,
                }
            }
            assert_eq!((!left).then_some(&inside[..]), expected.map(str::as_bytes), "{pieces:?}");
        }
    }
}
