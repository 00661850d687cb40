//! Connects a running command with the caller's streams, signals and terminal.

use std::time::Duration;

use sandbar::{Command, Control, Exit, ExitReason, Machine, Process, Signal};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until, timeout},
};

use crate::{
    args::CommandArgs,
    failure::{self, Failure},
    machine::plan::Input,
    render::{self, Render},
    streams::{
        relay::{self, Ended, Printing},
        signals::{self, Signals},
        terminal::Raw,
    },
};

/// Exit code of a command that timed out.
const TIMED_OUT: u8 = 124;

/// Grace period of a command whose terminal hangs up.
const HANG_UP: Duration = Duration::from_secs(2);

/// Time limit for the remaining output of a killed command.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// Runs the command until it exits, or until the caller's signals kill it.
pub(crate) async fn attach(
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
    let deadline = command.deadline;
    let Process { stdin, control, output, .. } = tokio::select! {
        process = machine.spawn(command) => process?,
        signal = signals.next() => return Ok(killed_by(signal)),
    };
    if let Some(stdin) = stdin {
        relay::input(stdin).map_err(own("cannot read standard input"))?;
    }
    let printing = relay::output(output);
    let deadline = deadline.map(|deadline| Instant::now() + deadline);
    Ok(CommandMonitor { control, raw, printing, asked: false, deadline, kill_at: None }.until(signals).await)
}

/// A running command with its control channel, terminal and output.
struct CommandMonitor {
    control: mpsc::Sender<Control>,
    raw: Option<Raw>,
    printing: Printing,
    /// Whether a signal already asked the command to end.
    asked: bool,
    /// When the machine kills the command; unread output must not delay this process then.
    deadline: Option<Instant>,
    kill_at: Option<Instant>,
}

/// Reaction to a signal to this process.
#[derive(Debug, PartialEq, Eq)]
enum Reaction {
    /// Forward the signal.
    Forward,
    /// Hang up the terminal, and kill the command after a grace period.
    HangUp,
    /// Kill the command, which was asked to end before.
    Kill,
}

impl Reaction {
    fn to(signal: Signal, has_terminal: bool, was_asked: bool) -> Self {
        match (has_terminal, was_asked) {
            (true, false) => Self::HangUp,
            (false, false) => Self::Forward,
            // Programs without a terminal use SIGHUP for other purposes, such as a reload.
            (false, true) if signal == Signal::Hangup => Self::Forward,
            (_, true) => Self::Kill,
        }
    }
}

impl CommandMonitor {
    async fn until(mut self, signals: &mut Signals) -> Ended {
        loop {
            let (deadline, kill_at) = (self.deadline, self.kill_at);
            tokio::select! {
                ended = self.printing.ended() => return ended,
                signal = signals.next() => {
                    self.printing.hurry();
                    match Reaction::to(signal, self.raw.is_some(), self.asked) {
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
                        Reaction::Kill => return self.kill().await,
                    }
                }
                size = resized(&mut self.raw) => self.send(Control::Resize(size)),
                () = at(deadline) => {
                    self.deadline = None;
                    self.printing.hurry();
                }
                () = at(kill_at) => return self.kill().await,
            }
        }
    }

    fn send(&self, control: Control) {
        // If the queue is full, enough signals are pending; if it is closed, the command has ended.
        let _has_enough = self.control.try_send(control);
    }

    /// Kills the command, and does not wait for a reader of its output.
    async fn kill(mut self) -> Ended {
        self.printing.hurry();
        self.send(Control::Signal(Signal::Kill));
        timeout(DRAIN_TIMEOUT, self.printing.ended()).await.unwrap_or_else(|_unread| killed_by(Signal::Kill))
    }
}

/// Waits until the deadline, or forever without one.
async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
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

/// Returns the exit code, and reports why the command was killed.
pub(crate) fn conclude(ended: Ended, args: &CommandArgs, render: &Render) -> Result<u8, Failure> {
    // A message must not wait for a reader that the end of the command did not wait for.
    let render = &render.hurried();
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
        Ended::Unwritable(error) => Err(Failure::new("cannot write the output of the command").because(error)),
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
