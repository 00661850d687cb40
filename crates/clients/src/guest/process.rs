//! A process of the guest as three channels, and the task that copies between them and the guest.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use sandbar_guest::protocol::{ExitKind, FailKind, Open, Request, Spawn};
use sandbar_machine::{
    Control, Exit, ExitReason, MachineError, MachinePath, Output, Process, ProcessId, Result, Signal,
};
use tokio::sync::mpsc;

use super::{
    channel::{Channel, CloseMode},
    ending::{Deadline, MachineEnd},
    lane::{Incoming, Shape},
    link::Link,
};

const ACTION: &str = "run a command";
pub(super) const UNEXPECTED_ANSWER: &str = "the guest answered out of turn";

/// How long the guest may take to start a program.
const PATIENCE: Duration = Duration::from_secs(60);

/// Exit code of a command that was killed, as shells report it.
const KILLED: i32 = 137;

/// Number of items that may wait in each channel of a process.
const STDIN_PIECES: usize = 8;
const CONTROLS: usize = 16;
const OUTPUT_PIECES: usize = 16;

/// Starts a command; `window` is the number of bytes of its output that may wait for a reader.
pub(super) async fn start(machine: &Arc<MachineEnd>, spawn: Spawn, cwd: &MachinePath, window: u32) -> Result<Process> {
    let (takes_input, keep) = (spawn.stdin || spawn.tty.is_some(), spawn.keep);
    let limit = Some(Duration::from_millis(spawn.deadline_ms)).filter(|limit| !limit.is_zero());
    let deadline = limit.and_then(|limit| Deadline::new(limit, machine));
    let channel = Channel::open(&machine.link, Shape::Process, window, Open::Spawn(spawn)).await?;
    match channel.answer(ACTION, PATIENCE).await? {
        Incoming::Started => Ok(connect(channel, None, takes_input, deadline)),
        Incoming::Kept(id, _) if keep => Ok(connect(channel, Some(ProcessId(id)), takes_input, deadline)),
        Incoming::Fail(failure) => Err(failure.of_spawn(cwd)),
        _ => Err(MachineError::transport(ACTION, UNEXPECTED_ANSWER)),
    }
}

/// Takes over a detached command; `None` if there is no such command.
pub(super) async fn adopt(link: &Arc<Link>, process: ProcessId, window: u32) -> Result<Option<Process>> {
    let mut channel = Channel::open(link, Shape::Process, window, Open::Adopt(process.0)).await?;
    // A caller that gives up here does not want to end the command.
    channel.set_close_mode(CloseMode::Leave);
    match channel.answer(ACTION, PATIENCE).await? {
        Incoming::Kept(id, input) if id == process.0 => Ok(Some(connect(channel, Some(process), input, None))),
        Incoming::Fail(failure) if failure.kind == FailKind::NoProcess => Ok(None),
        Incoming::Fail(failure) if failure.kind == FailKind::Held => Err(MachineError::Held(process)),
        Incoming::Fail(failure) => Err(failure.of_spawn(&MachinePath::root())),
        _ => Err(MachineError::transport(ACTION, UNEXPECTED_ANSWER)),
    }
}

/// The three channels of a running command.
fn connect(mut channel: Channel, id: Option<ProcessId>, takes_input: bool, deadline: Option<Deadline>) -> Process {
    if id.is_some() {
        channel.set_close_mode(CloseMode::Leave);
    }
    let (stdin, stdin_end) = mpsc::channel(STDIN_PIECES);
    let (control, control_end) = mpsc::channel(CONTROLS);
    let (output_end, output) = mpsc::channel(OUTPUT_PIECES);
    let pump = Pump {
        channel,
        stdin: takes_input.then_some(stdin_end),
        input: Bytes::new(),
        control: Some(control_end),
        output: Some(output_end),
        held: None,
        kept: id.is_some(),
        exited: false,
    };
    tokio::spawn(pump.run_until(deadline));
    Process { id, stdin: takes_input.then_some(stdin), control, output }
}

/// Copies bytes and requests between the caller's channels and the guest's until the guest is done.
struct Pump {
    channel: Channel,
    /// `None` once the caller closed it or the command ended.
    stdin: Option<mpsc::Receiver<Bytes>>,
    /// Bytes taken from `stdin` that the guest does not accept yet.
    input: Bytes,
    /// `None` once the caller dropped it.
    control: Option<mpsc::Receiver<Control>>,
    /// `None` once the caller dropped it. Output is then read and discarded, so that the command does not block.
    output: Option<mpsc::Sender<Result<Output>>>,
    /// Output that waits for a free slot in `output`.
    held: Option<Output>,
    /// Whether the command survives this client unless it is told to end.
    kept: bool,
    exited: bool,
}

/// The event that woke the pump.
enum Step {
    Controlled(Option<Control>),
    Placed(bool),
    Arrived(Incoming),
    Typed(Option<Bytes>),
    Allowed,
    Lost(MachineError),
}

impl Pump {
    /// Runs until the guest is done, or has missed the command's deadline.
    async fn run_until(mut self, deadline: Option<Deadline>) {
        let Some(deadline) = deadline else { return self.run().await };
        tokio::select! {
            () = self.run() => return,
            () = deadline.broken() => deadline.enforce().await,
        }
        if !self.exited {
            self.held.get_or_insert(Output::Exit(Exit { code: KILLED, reason: ExitReason::Deadline }));
        }
        let (Some(sender), Some(output)) = (&self.output, self.held.take()) else { return };
        let _caller_gone = sender.send(Ok(output)).await;
    }

    async fn run(&mut self) {
        loop {
            match self.step().await {
                // Dropping the channel tells the guest.
                Step::Controlled(Some(Control::Leave)) if self.kept => return self.send_rest(),
                Step::Controlled(Some(control)) => self.control(control),
                Step::Controlled(None) => {
                    self.control = None;
                    if !self.exited && self.has_no_reader() {
                        // Closing the channel kills the process tree.
                        return self.channel.set_close_mode(CloseMode::Close);
                    }
                    if !self.exited {
                        self.control(Control::Signal(Signal::Kill));
                    }
                }
                Step::Placed(false) => self.discard(),
                Step::Placed(true) => {}
                Step::Typed(Some(piece)) => {
                    self.input = piece;
                    self.channel.send(&mut self.input);
                }
                Step::Typed(None) => {
                    self.stdin = None;
                    self.channel.request(&Request::End);
                }
                Step::Allowed => self.channel.send(&mut self.input),
                Step::Arrived(Incoming::Done) => {
                    if self.kept {
                        // The caller got everything, so the guest can forget the command.
                        self.channel.request(&Request::Close);
                    }
                    return;
                }
                Step::Arrived(Incoming::Fail(failure)) => {
                    return self.fail(failure.of_spawn(&MachinePath::root())).await;
                }
                Step::Arrived(incoming) => self.arrived(incoming),
                Step::Lost(error) => return self.fail(error).await,
            }
        }
    }

    /// Waits for the first event; controls come before everything else.
    async fn step(&mut self) -> Step {
        let outbox = &self.channel.link().outbox;
        let free = !outbox.congested();
        tokio::select! {
            biased;
            control = receive(&mut self.control), if free && self.control.is_some() => Step::Controlled(control),
            placed = place(&self.output, &mut self.held, &self.channel), if self.held.is_some() => Step::Placed(placed),
            incoming = self.channel.next(), if self.held.is_none() => match incoming {
                Ok(incoming) => Step::Arrived(incoming),
                Err(end) => Step::Lost(end.error(ACTION)),
            },
            () = self.channel.writable(), if !self.input.is_empty() => Step::Allowed,
            piece = receive(&mut self.stdin), if free && self.stdin.is_some() && self.input.is_empty() => Step::Typed(piece),
            () = outbox.ready(), if !free => Step::Placed(true),
        }
    }

    /// Sends the input that was queued before, as far as the guest accepts it.
    fn send_rest(&mut self) {
        self.channel.send(&mut self.input);
        while self.input.is_empty()
            && let Some(Ok(piece)) = self.stdin.as_mut().map(mpsc::Receiver::try_recv)
        {
            self.input = piece;
            self.channel.send(&mut self.input);
        }
    }

    fn has_no_reader(&self) -> bool {
        self.output.as_ref().is_none_or(mpsc::Sender::is_closed)
    }

    fn control(&self, control: Control) {
        match control {
            Control::Signal(signal) => self.channel.request(&Request::Signal(signal.number())),
            Control::Resize(size) => self.channel.request(&Request::Resize(size.rows.get(), size.cols.get())),
            Control::Leave => {}
        }
    }

    fn arrived(&mut self, incoming: Incoming) {
        let output = match incoming {
            Incoming::Data(bytes) => Output::Stdout(bytes),
            Incoming::ErrorData(bytes) => Output::Stderr(bytes),
            Incoming::Omitted(count) => Output::Omitted(count),
            Incoming::Exit(code, how) => {
                self.exited = true;
                // The command, which would read the input, has ended.
                self.stdin = None;
                self.input = Bytes::new();
                Output::Exit(Exit { code, reason: reason(how) })
            }
            Incoming::Started | Incoming::Kept(..) | Incoming::Done | Incoming::Fail(_) => return,
        };
        let Some(sender) = &self.output else { return self.channel.taken(length(&output)) };
        let count = length(&output);
        match sender.try_send(Ok(output)) {
            Ok(()) => self.channel.taken(count),
            Err(mpsc::error::TrySendError::Full(Ok(output))) => self.held = Some(output),
            Err(mpsc::error::TrySendError::Full(Err(_)) | mpsc::error::TrySendError::Closed(_)) => {
                self.output = None;
                self.channel.taken(count);
            }
        }
    }

    fn discard(&mut self) {
        self.output = None;
        if let Some(output) = self.held.take() {
            self.channel.taken(length(&output));
        }
    }

    /// Sends the last item to the caller, after the output that was waiting.
    async fn fail(&mut self, error: MachineError) {
        let Some(sender) = self.output.take() else { return };
        if let Some(output) = self.held.take()
            && sender.send(Ok(output)).await.is_err()
        {
            return;
        }
        let _caller_gone = sender.send(Err(error)).await;
    }
}

async fn receive<T>(from: &mut Option<mpsc::Receiver<T>>) -> Option<T> {
    match from {
        Some(receiver) => receiver.recv().await,
        None => None,
    }
}

/// Sends the waiting output once there is a free slot; `false` if the caller dropped the receiver.
async fn place(to: &Option<mpsc::Sender<Result<Output>>>, held: &mut Option<Output>, channel: &Channel) -> bool {
    let Some(sender) = to else { return false };
    let Ok(permit) = sender.reserve().await else { return false };
    if let Some(output) = held.take() {
        let count = length(&output);
        permit.send(Ok(output));
        channel.taken(count);
    }
    true
}

fn length(output: &Output) -> usize {
    match output {
        Output::Stdout(bytes) | Output::Stderr(bytes) => bytes.len(),
        Output::Omitted(_) | Output::Exit(_) => 0,
    }
}

pub(super) fn reason(how: ExitKind) -> ExitReason {
    match how {
        ExitKind::Exited => ExitReason::Exited,
        ExitKind::Signaled => ExitReason::Signaled,
        ExitKind::Deadline => ExitReason::Deadline,
        ExitKind::Memory => ExitReason::Memory,
        ExitKind::Disk => ExitReason::Disk,
    }
}
