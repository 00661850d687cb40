//! Commands of the host machine: ordinary processes, known by a variable that everything they start inherits.

use std::{
    fs::File,
    io::{self, Read, Write},
    os::fd::AsFd,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use bytes::Bytes;
use rustix::{
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{Winsize, tcsetwinsize},
};
use sandbar_machine::{Command, Control, Exit, ExitReason, Output, Process, Result, Signal, TerminalSize};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    net::unix::pipe,
    process::Child,
    sync::{mpsc, oneshot, watch},
};

/// What marks a process as part of a tree.
pub(crate) const MARK: &str = "HOST_MACHINE_TREE";

type Outputs = mpsc::Sender<Result<Output>>;

/// Tells who reads an output that the command has ended; what it is given is dropped when all the command wrote was read.
type Ended = oneshot::Sender<mpsc::Sender<()>>;
/// The same for the reader.
type Ending = oneshot::Receiver<mpsc::Sender<()>>;

/// Signals every process whose mark begins like this. A kill repeats until two searches in a row find none: a process in the
/// middle of `execve` has no environment, so one search can miss it.
pub(crate) fn signal_tree(mark: &str, signal: Signal) {
    let mut has_found_none = false;
    loop {
        let pids = marked(mark);
        if pids.is_empty() {
            if has_found_none || signal != Signal::Kill {
                return;
            }
            has_found_none = true;
            std::thread::sleep(Duration::from_millis(10));
            continue;
        }
        has_found_none = false;
        let number = format!("-{}", signal.number());
        let _dead_already = std::process::Command::new("kill").arg(&number).args(&pids).output();
        if signal != Signal::Kill {
            return;
        }
    }
}

fn marked(mark: &str) -> Vec<String> {
    let wanted = format!("{MARK}={mark}").into_bytes();
    let is_marked = |pid: &String| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable.starts_with(&wanted))
    };
    let names = std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter(|name| name.bytes().all(|byte| byte.is_ascii_digit())).filter(is_marked).collect()
}

/// What a command becomes: the process, its mark, and who reads its output.
struct Started {
    child: Child,
    mark: String,
    pumps: Vec<Ended>,
    terminal: Option<File>,
}

/// Starts a prepared command. `stop` ends it with its machine.
pub(crate) fn start(
    command: &Command,
    mut prepared: tokio::process::Command,
    mark: String,
    stop: watch::Receiver<bool>,
) -> io::Result<Process> {
    let (output, receiver) = mpsc::channel(16);
    let (control, requests) = mpsc::channel(16);
    prepared.env(MARK, &mark);
    let (started, stdin) = match command.tty {
        Some(size) => on_terminal(prepared, mark, size, &output)?,
        None => on_pipes(prepared, mark, command, &output)?,
    };
    tokio::spawn(attend(started, command.deadline, requests, output, stop));
    Ok(Process { id: None, stdin, control, output: receiver })
}

fn on_pipes(
    mut prepared: tokio::process::Command,
    mark: String,
    command: &Command,
    output: &Outputs,
) -> io::Result<(Started, Option<mpsc::Sender<Bytes>>)> {
    prepared.stdin(if command.stdin { Stdio::piped() } else { Stdio::null() });
    if command.joined {
        let (reader, writer) = io::pipe()?;
        let mut child = prepared.stdout(writer.try_clone()?).stderr(writer).spawn()?;
        // Our copies of the writer are in the builder.
        drop(prepared);
        let (out, ending) = oneshot::channel();
        let reader = pipe::Receiver::from_owned_fd(reader.into())?;
        tokio::spawn(pump(reader, output.clone(), Output::Stdout, ending));
        let stdin = child.stdin.take().map(feed);
        return Ok((Started { child, mark, pumps: vec![out], terminal: None }, stdin));
    }
    let mut child = prepared.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let ((out, out_ending), (err, err_ending)) = (oneshot::channel(), oneshot::channel());
    tokio::spawn(pump(child.stdout.take().unwrap(), output.clone(), Output::Stdout, out_ending));
    tokio::spawn(pump(child.stderr.take().unwrap(), output.clone(), Output::Stderr, err_ending));
    let stdin = child.stdin.take().map(feed);
    Ok((Started { child, mark, pumps: vec![out, err], terminal: None }, stdin))
}

fn on_terminal(
    mut prepared: tokio::process::Command,
    mark: String,
    size: TerminalSize,
    output: &Outputs,
) -> io::Result<(Started, Option<mpsc::Sender<Bytes>>)> {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
    grantpt(&master)?;
    unlockpt(&master)?;
    let path = ptsname(&master, Vec::new())?.into_string().unwrap();
    resize(&master, size);
    let slave = || File::options().read(true).write(true).open(&path);
    let child = prepared.stdin(slave()?).stdout(slave()?).stderr(slave()?).spawn()?;
    // The slave's last copy of ours is in the builder.
    drop(prepared);
    let master = File::from(master);
    let (mut reader, mut writer) = (master.try_clone()?, master.try_clone()?);
    let to = output.clone();
    let reading = tokio::task::spawn_blocking(move || {
        let mut buffer = vec![0; 16 << 10];
        let mut closed = false;
        loop {
            let read = match reader.read(&mut buffer) {
                Ok(read @ 1..) => read,
                // The kernel can report the close before it hands over what was written last. The second report is final.
                Ok(_) | Err(_) if closed => return,
                Ok(_) | Err(_) => {
                    closed = true;
                    continue;
                }
            };
            if to.blocking_send(Ok(Output::Stdout(Bytes::copy_from_slice(&buffer[..read])))).is_err() {
                return;
            }
        }
    });
    let (pump, ending): (Ended, Ending) = oneshot::channel();
    tokio::spawn(async move {
        let _read = ending.await;
        let _hung_up = reading.await;
    });
    let (sender, mut receiver) = mpsc::channel::<Bytes>(4);
    std::thread::spawn(move || {
        while let Some(piece) = receiver.blocking_recv() {
            let _hung_up = writer.write_all(&piece);
        }
        let _hung_up = writer.write_all(b"\x04\x04");
    });
    Ok((Started { child, mark, pumps: vec![pump], terminal: Some(master) }, Some(sender)))
}

fn resize(terminal: impl std::os::fd::AsFd, size: TerminalSize) {
    let size = Winsize { ws_row: size.rows.get(), ws_col: size.cols.get(), ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(terminal, size).unwrap();
}

fn feed(mut stdin: tokio::process::ChildStdin) -> mpsc::Sender<Bytes> {
    let (sender, mut receiver) = mpsc::channel::<Bytes>(4);
    tokio::spawn(async move {
        while let Some(piece) = receiver.recv().await {
            if stdin.write_all(&piece).await.is_err() {
                return;
            }
        }
    });
    sender
}

async fn pump(mut from: impl AsyncRead + AsFd + Unpin, to: Outputs, wrap: fn(Bytes) -> Output, mut ending: Ending) {
    // As much as a pipe holds.
    let mut buffer = vec![0; 64 << 10];
    let piece = |bytes: &[u8]| Ok(wrap(Bytes::copy_from_slice(bytes)));
    let read = loop {
        tokio::select! {
            biased;
            read = &mut ending => break read,
            read = from.read(&mut buffer) => {
                let Ok(read @ 1..) = read else { return };
                if to.send(piece(&buffer[..read])).await.is_err() {
                    return;
                }
            }
        }
    };
    // A read that does not block shows whether the pipe is empty, or has data for which this task was not woken yet.
    if let Ok(last @ 1..) = rustix::io::read(&from, &mut buffer[..])
        && to.send(piece(&buffer[..last])).await.is_err()
    {
        return;
    }
    drop(read);
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        if to.send(piece(&buffer[..read])).await.is_err() {
            return;
        }
    }
}

async fn stopped(stop: &mut watch::Receiver<bool>) {
    let _dropped_is_stopped = stop.wait_for(|stop| *stop).await;
}

async fn attend(
    mut started: Started,
    deadline: Option<Duration>,
    mut control: mpsc::Receiver<Control>,
    output: Outputs,
    mut stop: watch::Receiver<bool>,
) {
    let deadline = tokio::time::sleep(deadline.unwrap_or(Duration::from_secs(1 << 20)));
    tokio::pin!(deadline);
    let (mut late, mut ending) = (false, false);
    let status = loop {
        tokio::select! {
            status = started.child.wait() => break status.unwrap(),
            () = &mut deadline, if !late => {
                late = true;
                signal_tree(&started.mark, Signal::Kill);
            }
            () = stopped(&mut stop), if !ending => {
                ending = true;
                signal_tree(&started.mark, Signal::Kill);
            }
            request = control.recv(), if !ending => match (request, &started.terminal) {
                (Some(Control::Signal(signal)), _) => signal_tree(&started.mark, signal),
                (Some(Control::Resize(size)), Some(terminal)) => resize(terminal, size),
                (Some(Control::Resize(_)), None) | (Some(Control::Leave), _) => {}
                (None, _) => {
                    ending = true;
                    signal_tree(&started.mark, Signal::Kill);
                }
            },
        }
    };
    // What the command itself wrote is in the pipes already; children may hold them open for as long as they like.
    let (read, mut all_read) = mpsc::channel::<()>(1);
    for pump in started.pumps {
        let _at_its_end = pump.send(read.clone());
    }
    drop(read);
    let _terminal_still_open = tokio::time::timeout(Duration::from_secs(60), all_read.recv()).await;
    let _caller_gone = output.send(Ok(Output::Exit(exit(status, late)))).await;
}

fn exit(status: ExitStatus, late: bool) -> Exit {
    let exit = Exit::from(status);
    if late { Exit { reason: ExitReason::Deadline, ..exit } } else { exit }
}
