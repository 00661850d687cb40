//! The command's standard streams as this process's own.
//!
//! A thread reads and another one writes, each for as long as the other side makes it wait, which is the back pressure the
//! command would feel without us. The thread that hears signals never waits for them.

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
    sync::{mpsc, oneshot},
    time::{Instant, timeout, timeout_at},
};

use crate::{
    render,
    writer::{Stream, Writer},
};

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
    /// The reader of our output closed it.
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

/// What the command prints, on its way to our own streams.
pub(crate) struct Printing {
    ended: oneshot::Receiver<Ended>,
    writer: Writer,
}

impl Printing {
    /// How it ended, once it did.
    pub(crate) async fn ended(&mut self) -> Ended {
        (&mut self.ended).await.unwrap_or(Ended::Lost(MachineError::Gone))
    }

    /// From now on the end of the command is not held up by a reader that does not read.
    pub(crate) fn hurry(&self) {
        self.writer.hurry();
    }
}

/// Copies what the command prints to our own streams.
pub(crate) fn output(from: mpsc::Receiver<sandbar::Result<Output>>) -> io::Result<Printing> {
    let (tell, ended) = oneshot::channel();
    let writer = Writer::start()?;
    let printing = Printing { ended, writer: writer.clone() };
    tokio::spawn(async move {
        let ended = tokio::select! {
            biased;
            error = writer.failure() => unwritable(error),
            // The last write may have failed right before the end was seen.
            ended = copy(from, &writer) => writer.take_failure().map_or(ended, unwritable),
        };
        let _caller_gone = tell.send(ended);
    });
    Ok(printing)
}

async fn copy(mut from: mpsc::Receiver<sandbar::Result<Output>>, to: &Writer) -> Ended {
    let exit = loop {
        to.room().await;
        match from.recv().await {
            Some(Ok(Output::Exit(exit))) => break exit,
            Some(Ok(output)) => print(output, to),
            Some(Err(error)) => return Ended::Lost(error),
            None => return Ended::Lost(MachineError::Gone),
        }
    };
    let latest = Instant::now() + LAST_WORDS;
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
    // A terminal that hung up answers with an input/output error.
    let hung_up = Errno::from_io_error(&error) == Some(Errno::IO) && io::stdout().is_terminal();
    if hung_up || error.kind() == io::ErrorKind::BrokenPipe { Ended::Closed } else { Ended::Unwritable(error) }
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
