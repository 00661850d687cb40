//! Processes at a provider: the three channels of the waist over the provider's requests.

use std::{collections::VecDeque, pin::Pin, sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use futures::{StreamExt, future::BoxFuture, stream::BoxStream};
use sandbar_machine::{
    Command, Control, Exit, ExitReason, MachineError, Output, Process, Result, Signal, TerminalSize,
};
use tokio::{
    sync::{mpsc, watch},
    time::Sleep,
};

/// Pieces of output, and of input, that wait for their reader.
const WAITING: usize = 16;
/// The most input in one request.
const LARGEST_INPUT: usize = 512 << 10;
/// As long as a clock can wait.
const NEVER: Duration = Duration::from_hours(24 * 365);

/// The requests about one running command.
pub(crate) trait Remote: Send + Sync + 'static {
    /// Sends input and waits until it is accepted; `false` if the command accepts no more.
    fn input(&self, bytes: Bytes) -> impl Future<Output = Result<bool>> + Send;

    /// Ends the input.
    fn close_input(&self) -> impl Future<Output = Result<()>> + Send;

    /// Sets the size of its terminal.
    fn resize(&self, size: TerminalSize) -> impl Future<Output = Result<()>> + Send;

    /// Signals it and everything it started; after a kill nothing of it is left.
    fn signal(&self, signal: Signal) -> impl Future<Output = Result<()>> + Send;
}

/// The output and the exit of a command, as the provider reports them.
pub(crate) type Events = BoxStream<'static, Result<Output>>;

/// The process of a command that has begun. Its machine is gone when `gone` turns true.
pub(crate) fn process<R: Remote>(command: &Command, remote: R, events: Events, gone: watch::Receiver<bool>) -> Process {
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
        gone,
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
fn feed<R: Remote>(mut input: mpsc::Receiver<Bytes>, remote: Arc<R>) -> BoxFuture<'static, Result<()>> {
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
    gone: watch::Receiver<bool>,
    /// Output that the channel has no room for; no further event is read until it is sent.
    waiting: VecDeque<Result<Output>>,
    phase: Phase,
    is_held: bool,
    is_late: bool,
    /// Whether the command may still run although its process has ended here.
    must_kill: bool,
}

impl<R: Remote> CommandTask<R> {
    async fn run(mut self, mut events: Events) {
        let mut is_feeding = true;
        while self.phase != Phase::Over || !self.waiting.is_empty() {
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
                () = stopped(&mut self.gone), if self.phase != Phase::Over => self.end(MachineError::Gone),
            }
        }
        if self.must_kill {
            self.signal(Signal::Kill).await;
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

    /// Ends the process with an error; the command is killed after the error is sent.
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
        match self.phase {
            Phase::Running => self.signal(Signal::Kill).await,
            Phase::Exited => {}
            Phase::Over => self.waiting.clear(),
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

async fn stopped(gone: &mut watch::Receiver<bool>) {
    let _dropped_is_gone = gone.wait_for(|gone| *gone).await;
}

/// Logs a failed request. A lost connection is also an error in the command's output.
pub(crate) fn log_failure(what: &str, done: Result<()>) {
    if let Err(error) = done {
        tracing::debug!(what, %error, "a request about a command failed");
    }
}
