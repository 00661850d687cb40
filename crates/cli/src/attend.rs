//! A running command and the person who started it: streams, signals and terminal of the one for the other.

use std::time::Duration;

use sandbar::{Command, Control, Exit, ExitReason, Machine, MachineError, Process, Signal};
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, sleep_until, timeout},
};

use crate::{
    args::CommandArgs,
    failure::{self, Failure},
    plan::Input,
    relay::{self, Ended},
    render::{self, Render},
    signals::{self, Signals},
    terminal::Raw,
};

/// The exit code of a command that ran out of time.
const TIMED_OUT: u8 = 124;

/// How long a command whose terminal goes away may take to end by itself.
const HANG_UP: Duration = Duration::from_secs(2);

/// How long the output of a killed command is waited for.
const AFTERMATH: Duration = Duration::from_millis(500);

/// Runs the command to its end, or to the end of somebody's patience.
pub(crate) async fn attend(
    machine: &dyn Machine,
    command: Command,
    input: Input,
    signals: &mut Signals,
) -> Result<Ended, Failure> {
    let own = |what: &'static str| move |error: std::io::Error| Failure::new(what).because(error);
    let raw = match input {
        Input::Typed => Some(Raw::enter().map_err(own("cannot use the terminal"))?),
        Input::Empty | Input::Copied => None,
    };
    let Process { stdin, control, output, .. } = tokio::select! {
        process = machine.spawn(command) => process?,
        signal = signals.next() => return Ok(killed_by(signal)),
    };
    if let Some(stdin) = stdin {
        relay::input(stdin).map_err(own("cannot read standard input"))?;
    }
    let ended = relay::output(output).map_err(own("cannot write standard output"))?;
    Ok(Watch { control, raw, asked: false, kill_at: None }.until(ended, signals).await)
}

/// What stands between a running command and the person who started it.
struct Watch {
    control: mpsc::Sender<Control>,
    raw: Option<Raw>,
    /// Whether somebody already asked the command to end.
    asked: bool,
    kill_at: Option<Instant>,
}

/// What a signal of ours means for the command.
#[derive(Debug, PartialEq, Eq)]
enum Reaction {
    /// It gets the same.
    Forward,
    /// Its terminal goes away: it is told so, and then not waited for long.
    HangUp,
    /// It was asked before.
    Kill,
}

impl Reaction {
    fn to(signal: Signal, has_terminal: bool, was_asked: bool) -> Self {
        match (has_terminal, was_asked) {
            (true, false) => Self::HangUp,
            (false, false) => Self::Forward,
            // Programs without a terminal use it to mean something else, and get it often.
            (false, true) if signal == Signal::Hangup => Self::Forward,
            (_, true) => Self::Kill,
        }
    }
}

impl Watch {
    async fn until(mut self, mut ended: oneshot::Receiver<Ended>, signals: &mut Signals) -> Ended {
        loop {
            let kill_at = self.kill_at.unwrap_or_else(Instant::now);
            tokio::select! {
                ended = &mut ended => return ended.unwrap_or(Ended::Lost(MachineError::Gone)),
                signal = signals.next() => match Reaction::to(signal, self.raw.is_some(), self.asked) {
                    Reaction::Forward => {
                        self.asked |= signal != Signal::Hangup;
                        self.send(Control::Signal(signal));
                    }
                    Reaction::HangUp => {
                        self.asked = true;
                        self.kill_at = Some(Instant::now() + HANG_UP);
                        self.send(Control::Signal(Signal::Hangup));
                        self.send(Control::Signal(signal));
                    }
                    Reaction::Kill => return self.kill(ended).await,
                },
                size = resized(&mut self.raw) => self.send(Control::Resize(size)),
                () = sleep_until(kill_at), if self.kill_at.is_some() => return self.kill(ended).await,
            }
        }
    }

    fn send(&self, control: Control) {
        // A full queue means that the command has a dozen of them to think about, a closed one that it is gone.
        let _has_enough = self.control.try_send(control);
    }

    /// Ends the command for certain. Nobody may be reading what it printed, so that is not waited for.
    async fn kill(self, ended: oneshot::Receiver<Ended>) -> Ended {
        self.send(Control::Signal(Signal::Kill));
        match timeout(AFTERMATH, ended).await {
            Ok(Ok(ended)) => ended,
            Ok(Err(_)) | Err(_) => killed_by(Signal::Kill),
        }
    }
}

pub(crate) async fn resized(raw: &mut Option<Raw>) -> sandbar::TerminalSize {
    match raw {
        Some(raw) => raw.resized().await,
        None => std::future::pending().await,
    }
}

fn killed_by(signal: Signal) -> Ended {
    Ended::Exited(Exit { code: signals::code(signal).into(), reason: ExitReason::Signaled })
}

/// The exit code, and the words that go with it.
pub(crate) fn conclude(ended: Ended, args: &CommandArgs, render: &Render) -> Result<u8, Failure> {
    match ended {
        Ended::Exited(Exit { reason: ExitReason::Deadline, .. }) => {
            let limit = args.timeout.unwrap_or_default();
            render.note(&format!("the command ran longer than {limit:?} and was ended; give it more with --timeout"));
            Ok(TIMED_OUT)
        }
        Ended::Exited(Exit { reason: reason @ (ExitReason::Memory | ExitReason::Disk), code }) => {
            let option = if reason == ExitReason::Memory { "--memory" } else { "--disk" };
            let why = reason.limit().unwrap_or_default();
            render.note(&format!("the command was ended: {why}; give the machine more with {option}"));
            Ok(u8::try_from(code).unwrap_or(failure::OWN))
        }
        Ended::Exited(exit) => Ok(u8::try_from(exit.code).unwrap_or(failure::OWN)),
        Ended::Closed => Ok(render::CLOSED),
        Ended::Unwritable(error) => Err(Failure::new("cannot write what the command printed").because(error)),
        Ended::Lost(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_signal_asks_and_the_second_kills() {
        for signal in [Signal::Interrupt, Signal::Terminate, Signal::Quit] {
            assert_eq!(Reaction::to(signal, false, false), Reaction::Forward);
            assert_eq!(Reaction::to(signal, false, true), Reaction::Kill);
            assert_eq!(Reaction::to(signal, true, false), Reaction::HangUp);
            assert_eq!(Reaction::to(signal, true, true), Reaction::Kill);
        }
        assert_eq!(Reaction::to(Signal::Hangup, false, true), Reaction::Forward);
        assert_eq!(Reaction::to(Signal::Hangup, true, true), Reaction::Kill);
    }
}
