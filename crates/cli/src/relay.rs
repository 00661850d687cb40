//! The command's standard streams as this process's own: one thread for what comes, one for what goes.
//!
//! Reading and writing here may block for as long as the other side pleases, which is the back pressure the command
//! would feel without us; the thread that hears signals must not.

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
    io::Errno,
};
use sandbar::{Exit, MachineError, Output};
use tokio::{
    runtime::Handle,
    sync::{mpsc, oneshot},
    time::{Instant, timeout, timeout_at},
};

use crate::render;

/// What is read of our standard input at once.
const CHUNK: usize = 64 * 1024;

/// How long children that outlive the command may be silent before we leave, and how long they may talk.
const SILENCE: Duration = Duration::from_millis(50);
const LAST_WORDS: Duration = Duration::from_millis(500);

/// How the output came to its end.
#[derive(Debug)]
pub(crate) enum Ended {
    /// The command ended, and all it printed was written.
    Exited(Exit),
    /// Nobody reads our output any more.
    Closed,
    /// Our output cannot be written.
    Unwritable(io::Error),
    /// The machine was lost.
    Lost(MachineError),
}

/// Copies our standard input to the command until either has enough.
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
                // The command sees an end, as it would of a terminal that hung up.
                Err(error) => return tracing::warn!(%error, "cannot read standard input"),
            }
        }
    };
    thread::Builder::new().name("input".to_owned()).spawn(copy)?;
    Ok(())
}

/// Sends what can be read, piece by piece, to whoever wants it, and the error that ended it early.
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

/// Copies what the command prints to our own streams, and says how that ended.
pub(crate) fn output(from: mpsc::Receiver<sandbar::Result<Output>>) -> io::Result<oneshot::Receiver<Ended>> {
    let (tell, told) = oneshot::channel();
    let runtime = Handle::current();
    let copy = move || {
        let ended = runtime.block_on(copy(from));
        let _nobody_waits = tell.send(ended);
    };
    thread::Builder::new().name("output".to_owned()).spawn(copy)?;
    Ok(told)
}

async fn copy(mut from: mpsc::Receiver<sandbar::Result<Output>>) -> Ended {
    let exit = loop {
        match from.recv().await {
            Some(Ok(Output::Exit(exit))) => break exit,
            Some(Ok(output)) => {
                if let Err(ended) = write(&output) {
                    return ended;
                }
            }
            Some(Err(error)) => return Ended::Lost(error),
            None => return Ended::Lost(MachineError::Gone),
        }
    };
    let latest = Instant::now() + LAST_WORDS;
    while let Ok(Ok(Some(Ok(output)))) = timeout_at(latest, timeout(SILENCE, from.recv())).await {
        if write(&output).is_err() {
            break;
        }
    }
    Ended::Exited(exit)
}

fn write(output: &Output) -> Result<(), Ended> {
    let written = match output {
        Output::Stdout(bytes) => write_all(io::stdout().as_fd(), bytes),
        Output::Stderr(bytes) => write_all(io::stderr().as_fd(), bytes),
        Output::Omitted(count) => write_all(io::stderr().as_fd(), render::omitted(*count).as_bytes()),
        Output::Exit(_) => Ok(()),
    };
    match written {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Ended::Closed),
        // A terminal that hung up.
        Err(error) if Errno::from_io_error(&error) == Some(Errno::IO) && io::stdout().is_terminal() => {
            Err(Ended::Closed)
        }
        Err(error) => Err(Ended::Unwritable(error)),
    }
}

/// Past the standard library's buffer: what the command printed is seen when it was printed.
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

/// Interruptions are tried again; a stream that somebody else made non-blocking is waited for.
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
