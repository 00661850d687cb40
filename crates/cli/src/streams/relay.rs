//! Connects the standard streams of a command with those of this process.
//!
//! One thread reads and another thread writes. Each blocks while its other side is slow, so the command sees the same back
//! pressure as without sandbar. The thread that handles signals never waits for them.

use std::{
    io::{self, IsTerminal},
    os::fd::{AsFd, BorrowedFd},
    thread,
    time::Duration,
};

use bytes::Bytes;
use rustix::{
    buffer::spare_capacity,
    event::{PollFd, PollFlags, poll},
    fs::{FileType, fstat},
    io::Errno,
};
use sandbar::{Exit, MachineError, Output};
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, timeout, timeout_at},
};

use crate::{
    render,
    streams::writer::{Stream, Writer},
};

/// Maximum number of bytes per read of standard input.
const CHUNK: usize = 64 * 1024;

/// Limits for children that outlive the command: how long they may be silent, and how long they may print.
const SILENCE: Duration = Duration::from_millis(50);
const DRAIN_LIMIT: Duration = Duration::from_millis(500);

/// How the output ended.
#[derive(Debug)]
pub(crate) enum Ended {
    /// The command exited, and its output was written.
    Exited(Exit),
    /// The reader of standard output closed the pipe.
    Closed,
    /// Standard output or standard error cannot be written.
    Unwritable(io::Error),
    /// The machine was lost.
    Lost(MachineError),
}

/// Copies standard input to the command until the input ends or the command reads no more.
pub(crate) fn input(to: mpsc::Sender<Bytes>) -> io::Result<()> {
    let copy = move || {
        loop {
            match read(io::stdin().as_fd()) {
                Ok(piece) if piece.is_empty() => return,
                Ok(piece) => {
                    if to.blocking_send(piece).is_err() {
                        return;
                    }
                }
                // The command sees the end of its input, as with a terminal that hung up.
                Err(error) => return tracing::warn!(%error, "cannot read standard input"),
            }
        }
    };
    // /dev/null ends immediately, and needs no thread.
    if !is_null(io::stdin().as_fd()) {
        thread::Builder::new().name("input".to_owned()).spawn(copy)?;
    }
    Ok(())
}

/// Whether the stream is `/dev/null`.
fn is_null(stream: BorrowedFd<'_>) -> bool {
    let null = rustix::fs::makedev(1, 3);
    fstat(stream)
        .is_ok_and(|stat| stat.st_rdev == null && FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice)
}

/// Sends the pieces of a stream to a channel, and the error if reading fails.
pub(crate) fn pieces(from: impl AsFd + Send + 'static, to: mpsc::Sender<io::Result<Bytes>>) -> io::Result<()> {
    let send = move || {
        loop {
            let piece = read(from.as_fd());
            let is_last = piece.as_ref().map_or(true, Bytes::is_empty);
            let is_end = piece.as_ref().is_ok_and(Bytes::is_empty);
            if is_end || to.blocking_send(piece).is_err() || is_last {
                return;
            }
        }
    };
    thread::Builder::new().name("pieces".to_owned()).spawn(send)?;
    Ok(())
}

fn read(from: BorrowedFd<'_>) -> io::Result<Bytes> {
    let mut piece = Vec::with_capacity(CHUNK);
    loop {
        match rustix::io::read(from, spare_capacity(&mut piece)) {
            Ok(_count) => return Ok(piece.into()),
            Err(error) => wait_out(from, PollFlags::IN, error)?,
        }
    }
}

/// Output of a command that is being copied to the standard streams.
pub(crate) struct Printing {
    ended: oneshot::Receiver<Ended>,
    writer: Writer,
}

impl Printing {
    /// Waits for the end of the output.
    pub(crate) async fn ended(&mut self) -> Ended {
        (&mut self.ended).await.unwrap_or(Ended::Lost(MachineError::Gone))
    }

    /// From now on, a stalled reader does not delay the end of the command.
    pub(crate) fn hurry(&self) {
        self.writer.hurry();
    }
}

/// Copies the output of the command to the standard streams.
pub(crate) fn output(from: mpsc::Receiver<sandbar::machine::Result<Output>>) -> Printing {
    let (tell, ended) = oneshot::channel();
    let writer = Writer::new();
    let printing = Printing { ended, writer: writer.clone() };
    tokio::spawn(async move {
        let ended = tokio::select! {
            biased;
            error = writer.failure() => unwritable(error),
            // The last write may have failed just before the end.
            ended = copy(from, &writer) => writer.take_failure().map_or(ended, unwritable),
        };
        let _caller_gone = tell.send(ended);
    });
    printing
}

async fn copy(mut from: mpsc::Receiver<sandbar::machine::Result<Output>>, to: &Writer) -> Ended {
    let exit = loop {
        to.room().await;
        match from.recv().await {
            Some(Ok(Output::Exit(exit))) => break exit,
            Some(Ok(output)) => print(output, to),
            Some(Err(error)) => return Ended::Lost(error),
            None => return Ended::Lost(MachineError::Gone),
        }
    };
    let latest = Instant::now() + DRAIN_LIMIT;
    while let Ok(Ok(Some(Ok(output)))) = timeout_at(latest, async {
        to.room().await;
        timeout(SILENCE, from.recv()).await
    })
    .await
    {
        print(output, to);
    }
    to.settle().await;
    Ended::Exited(exit)
}

fn print(output: Output, to: &Writer) {
    match output {
        Output::Stdout(bytes) => to.push(Stream::Stdout, bytes),
        Output::Stderr(bytes) => to.push(Stream::Stderr, bytes),
        Output::Omitted(count) => to.push(Stream::Stderr, render::omitted(count)),
        Output::Exit(_) => {}
    }
}

fn unwritable(error: io::Error) -> Ended {
    // A terminal that hung up returns an input/output error.
    let hung_up = Errno::from_io_error(&error) == Some(Errno::IO) && io::stdout().is_terminal();
    if hung_up || error.kind() == io::ErrorKind::BrokenPipe { Ended::Closed } else { Ended::Unwritable(error) }
}

/// Writes without the buffer of the standard library, so that output appears immediately.
pub(crate) fn write_all(to: BorrowedFd<'_>, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(to, bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => bytes = &bytes[count..],
            Err(error) => wait_out(to, PollFlags::OUT, error)?,
        }
    }
    Ok(())
}

/// Retries interrupted calls, and polls a stream that another process made non-blocking.
fn wait_out(stream: BorrowedFd<'_>, until: PollFlags, error: Errno) -> io::Result<()> {
    match error {
        Errno::INTR => Ok(()),
        Errno::AGAIN => match poll(&mut [PollFd::from_borrowed_fd(stream, until)], None) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        },
        error => Err(error.into()),
    }
}
