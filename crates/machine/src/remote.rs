//! A [`Process`] over the requests of a provider: what every provider without a guest would write again.
//!
//! A provider says how one command is signalled and fed ([`RemoteCommand`]) and hands over what it prints ([`Events`]);
//! [`process`] keeps the promises of the three channels: control is never queued behind input, output that is not read is
//! not hoarded, a deadline or a dropped `control` kills the command, and a lost connection is an error and not an exit.

use std::{collections::VecDeque, pin::Pin, sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use futures::{
    StreamExt,
    future::BoxFuture,
    stream::{self, BoxStream},
};
use tokio::{
    sync::{mpsc, watch},
    time::Sleep,
};

use crate::{Command, Control, Exit, ExitReason, MachineError, Output, Process, Result, Signal, TerminalSize};

/// Pieces of output, and of input, that wait for their reader.
const WAITING: usize = 16;
/// The most input in one request.
const LARGEST_INPUT: usize = 512 << 10;
/// As long as a clock can wait.
const NEVER: Duration = Duration::from_hours(24 * 365);

/// The requests about one running command. Only [`signal`](Self::signal) is required: a provider without input or terminals
/// refuses commands that ask for them before they start.
pub trait RemoteCommand: Send + Sync + 'static {
    /// Sends input and waits until it is accepted; `false` if the command accepts no more, which is the default. Calls come one
    /// after the other, and the last is followed by [`close_input`](Self::close_input); one that waits is dropped when the command
    /// ends. A command on a terminal is sent input even if it did not ask for [`Command::stdin`].
    fn input(&self, _bytes: Bytes) -> impl Future<Output = Result<bool>> + Send {
        async { Ok(false) }
    }

    /// Ends the input.
    fn close_input(&self) -> impl Future<Output = Result<()>> + Send {
        async { Ok(()) }
    }

    /// Sets the size of its terminal.
    fn resize(&self, _size: TerminalSize) -> impl Future<Output = Result<()>> + Send {
        async { Ok(()) }
    }

    /// Signals it and everything it started; after a kill nothing of it is left. May be called while input is being sent, and
    /// after the machine is gone.
    fn signal(&self, signal: Signal) -> impl Future<Output = Result<()>> + Send;
}

/// Whether a machine is gone. When it is set, or dropped, the processes of its commands end with [`MachineError::Gone`], and the
/// commands are killed in case they still run.
#[derive(Debug, Default)]
pub struct Gone(watch::Sender<bool>);

impl Gone {
    /// The machine is gone, for good.
    pub fn set(&self) {
        self.0.send_replace(true);
    }

    /// Whether it is.
    #[must_use]
    pub fn is_set(&self) -> bool {
        *self.0.borrow()
    }

    /// An error once it is.
    ///
    /// # Errors
    /// [`MachineError::Gone`].
    pub fn check(&self) -> Result<()> {
        if self.is_set() { Err(MachineError::Gone) } else { Ok(()) }
    }

    /// Ends when the machine is gone, or this value is dropped.
    fn wait(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut receiver = self.0.subscribe();
        async move {
            let _dropped_is_gone = receiver.wait_for(|gone| *gone).await;
        }
    }
}

/// The output and the exit of a command, as the provider reports them. Everything that the command itself printed comes before its
/// exit; output of its children may follow.
pub type Events = BoxStream<'static, Result<Output>>;

/// Events that arrive through a channel. A channel that closes before the exit is a lost connection.
#[must_use]
pub fn received(mut events: mpsc::Receiver<Result<Output>>) -> Events {
    Box::pin(stream::poll_fn(move |context| events.poll_recv(context)))
}

/// The process of a command that has begun.
///
/// Call it inside a Tokio runtime: the channels are served by a task that ends with the command.
pub fn process<R: RemoteCommand>(command: &Command, remote: R, events: Events, gone: &Gone) -> Process {
    let remote = Arc::new(remote);
    let (to_output, output) = mpsc::channel(WAITING);
    let (control, requests) = mpsc::channel(WAITING);
    let has_input = command.stdin || command.tty.is_some();
    let (stdin, input) = mpsc::channel(WAITING);
    let feeding = if has_input { feed(input, remote.clone()) } else { Box::pin(std::future::pending()) };
    let task = CommandTask {
        remote,
        output: to_output,
        requests,
        deadline: Box::pin(tokio::time::sleep(command.deadline.unwrap_or(NEVER).min(NEVER))),
        feeding,
        gone: Box::pin(gone.wait()),
        waiting: VecDeque::new(),
        phase: Phase::Running,
        is_held: true,
        is_late: false,
        must_kill: false,
    };
    // The task ends with the command, which is killed when `control` is dropped, and ends with its machine at the latest.
    tokio::spawn(task.run(events));
    Process { id: None, stdin: has_input.then_some(stdin), control, output }
}

/// Sends the input in order, queued pieces in one request, and then its end.
fn feed<R: RemoteCommand>(mut input: mpsc::Receiver<Bytes>, remote: Arc<R>) -> BoxFuture<'static, Result<()>> {
    Box::pin(async move {
        while let Some(first) = input.recv().await {
            let mut bytes = BytesMut::from(first);
            while bytes.len() < LARGEST_INPUT
                && let Ok(more) = input.try_recv()
            {
                bytes.extend_from_slice(&more);
            }
            while !bytes.is_empty() {
                let piece = bytes.split_to(bytes.len().min(LARGEST_INPUT)).freeze();
                if !remote.input(piece).await? {
                    return Ok(());
                }
            }
        }
        remote.close_input().await
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Running,
    /// Its exit was sent; output of its children may follow.
    Exited,
    Over,
}

/// The state of the task that connects a command with the channels of its process.
struct CommandTask<R> {
    remote: Arc<R>,
    output: mpsc::Sender<Result<Output>>,
    requests: mpsc::Receiver<Control>,
    deadline: Pin<Box<Sleep>>,
    feeding: BoxFuture<'static, Result<()>>,
    gone: BoxFuture<'static, ()>,
    /// Output that the channel has no room for; no further event is read until it is sent.
    waiting: VecDeque<Result<Output>>,
    phase: Phase,
    is_held: bool,
    is_late: bool,
    /// Whether the command may still run although its process has ended here.
    must_kill: bool,
}

impl<R: RemoteCommand> CommandTask<R> {
    async fn run(mut self, mut events: Events) {
        let mut is_feeding = true;
        while self.phase != Phase::Over {
            let is_running = self.phase == Phase::Running;
            tokio::select! {
                event = events.next(), if self.waiting.is_empty() => self.on_event(event),
                () = room(&self.output), if !self.waiting.is_empty() => {
                    // Without a receiver, output is read and discarded, so that the command is not blocked.
                    let _no_reader = self.waiting.pop_front().map(|first| self.output.try_send(first));
                }
                () = &mut self.deadline, if is_running && !self.is_late => {
                    self.is_late = true;
                    self.signal(Signal::Kill).await;
                }
                request = self.requests.recv(), if self.is_held => match request {
                    Some(Control::Signal(signal)) if is_running => self.signal(signal).await,
                    Some(Control::Resize(size)) if is_running => log_failure("resize", self.remote.resize(size).await),
                    Some(_) => {}
                    None => self.on_control_dropped().await,
                },
                fed = &mut self.feeding, if is_feeding => {
                    is_feeding = false;
                    // The command would work on with a part of its input missing.
                    if let (Err(error), true) = (fed, is_running) {
                        self.abandon(error);
                    }
                }
                () = &mut self.gone => self.abandon(MachineError::Gone),
            }
        }
        // Neither waits for the other: a kill for a reader, or an error for a kill that has no connection.
        let remote = self.must_kill.then(|| self.remote.clone());
        let kill = async {
            if let Some(remote) = remote {
                log_failure("kill", remote.signal(Signal::Kill).await);
            }
        };
        tokio::join!(kill, self.deliver());
    }

    /// Sends the output that is left, until the process is dropped.
    async fn deliver(&mut self) {
        while !self.waiting.is_empty() {
            tokio::select! {
                () = room(&self.output) => {
                    let _no_reader = self.waiting.pop_front().map(|first| self.output.try_send(first));
                }
                request = self.requests.recv(), if self.is_held => if request.is_none() {
                    self.waiting.clear();
                }
            }
        }
    }

    fn on_event(&mut self, event: Option<Result<Output>>) {
        match event {
            Some(Ok(Output::Exit(exit))) => {
                let late = Exit { code: 137, reason: ExitReason::Deadline };
                self.waiting.push_back(Ok(Output::Exit(if self.is_late { late } else { exit })));
                self.phase = Phase::Exited;
            }
            Some(Ok(printed)) => self.waiting.push_back(Ok(printed)),
            Some(Err(error)) => self.abandon(error),
            None if self.phase == Phase::Exited => self.phase = Phase::Over,
            None => self.abandon(MachineError::transport("follow a command", "its stream ended before the command")),
        }
    }

    /// Ends the process with an error, and has the command killed.
    fn abandon(&mut self, error: MachineError) {
        self.must_kill = self.phase == Phase::Running;
        self.end(error);
    }

    /// Ends the process with an error, unless it has exited.
    fn end(&mut self, error: MachineError) {
        if self.phase == Phase::Running {
            self.waiting.push_back(Err(error));
        }
        self.phase = Phase::Over;
    }

    /// Kills a command that nothing controls any more.
    async fn on_control_dropped(&mut self) {
        self.is_held = false;
        if self.phase == Phase::Running {
            self.signal(Signal::Kill).await;
        }
    }

    async fn signal(&mut self, signal: Signal) {
        log_failure("signal", self.remote.signal(signal).await);
    }
}

/// Waits until the channel has room or no receiver. There is one sender, so that the room stays.
async fn room(output: &mpsc::Sender<Result<Output>>) {
    let _room_or_no_reader = output.reserve().await;
}

/// Logs a failed request. A lost connection is also an error in the command's output.
fn log_failure(what: &str, done: Result<()>) {
    if let Err(error) = done {
        tracing::debug!(what, %error, "a request about a command failed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reports each signal.
    struct Reporting(mpsc::UnboundedSender<Signal>);

    impl RemoteCommand for Reporting {
        async fn signal(&self, signal: Signal) -> Result<()> {
            let _told = self.0.send(signal);
            Ok(())
        }
    }

    #[tokio::test]
    async fn a_machine_that_is_gone_kills_a_command_whose_output_is_not_read() {
        let endless = stream::repeat_with(|| Ok(Output::Stdout(Bytes::from_static(b"x"))));
        let (told, mut signals) = mpsc::unbounded_channel();
        let gone = Gone::default();
        let mut process = process(&Command::new(["yes"]), Reporting(told), endless.boxed(), &gone);
        // Until nothing more fits: the task waits for a reader.
        while process.output.len() < WAITING {
            tokio::task::yield_now().await;
        }
        gone.set();
        let signal = tokio::time::timeout(Duration::from_secs(60), signals.recv()).await.expect("a signal");
        assert_eq!(signal, Some(Signal::Kill));
        let mut last = None;
        while let Some(output) = process.output.recv().await {
            last = Some(output);
        }
        assert!(matches!(last, Some(Err(MachineError::Gone))), "{last:?}");
    }
}
