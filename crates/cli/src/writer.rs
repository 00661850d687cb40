//! A thread that writes to our standard streams: a reader that stops reading holds up this thread and nothing else.

use std::{
    collections::VecDeque,
    io,
    os::fd::{AsFd, BorrowedFd},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use bytes::Bytes;
use tokio::{sync::Notify, time::timeout};

use crate::relay::write_all;

/// What may wait to be written before its source is held up.
const ROOM: usize = 256 * 1024;

/// What more may wait in a hurry. It is larger than everything a machine can have on its way, so that the exit of an ended
/// command is not held up behind its output.
const HURRIED_ROOM: usize = ROOM + (8 << 20);

/// How long a reader may take nothing, in a hurry, until it is no longer waited for.
const STUCK: Duration = Duration::from_millis(500);

/// What is written at once; in a hurry little, so that a slow reader is told from one that does not read.
const PIECE: usize = 64 * 1024;
const HURRIED_PIECE: usize = 4 * 1024;

/// One of our own streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Stdout,
    Stderr,
}

/// Writes in the order in which it is given something. Without it, the thread ends when all is written.
#[derive(Clone)]
pub(crate) struct Writer {
    shared: Arc<Shared>,
    _last_one: Arc<Hangup>,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    /// For the thread: there is something to write.
    filled: Condvar,
    /// For everything else: something was written, failed, or became urgent.
    moved: Notify,
}

#[derive(Default)]
struct Queue {
    pieces: VecDeque<(Stream, Bytes)>,
    /// How much they hold, what is being written included.
    bytes: usize,
    /// Why each stream cannot be written any more; what is meant for it is dropped.
    failed: [Option<io::Error>; 2],
    hurried: bool,
    ending: bool,
}

/// Tells the thread that nothing more comes.
struct Hangup(Arc<Shared>);

impl Drop for Hangup {
    fn drop(&mut self) {
        self.0.queue().ending = true;
        self.0.filled.notify_one();
    }
}

impl Writer {
    pub(crate) fn start() -> io::Result<Self> {
        Self::with(|stream, bytes| match stream {
            Stream::Stdout => write_all(io::stdout().as_fd(), bytes),
            Stream::Stderr => write_all(io::stderr().as_fd(), bytes),
        })
    }

    fn with(write: impl FnMut(Stream, &[u8]) -> io::Result<()> + Send + 'static) -> io::Result<Self> {
        let shared = Arc::<Shared>::default();
        let of_thread = Arc::clone(&shared);
        thread::Builder::new().name("writer".to_owned()).spawn(move || of_thread.write(write))?;
        Ok(Self { _last_one: Arc::new(Hangup(Arc::clone(&shared))), shared })
    }

    /// Takes bytes to be written, and does not wait.
    pub(crate) fn push(&self, to: Stream, bytes: impl Into<Bytes>) {
        let bytes = bytes.into();
        let mut queue = self.shared.queue();
        if bytes.is_empty() || queue.failed[to as usize].is_some() {
            return;
        }
        queue.bytes += bytes.len();
        queue.pieces.push_back((to, bytes));
        self.shared.filled.notify_one();
    }

    /// From now on a reader that does not read is not waited for.
    pub(crate) fn hurry(&self) {
        self.shared.queue().hurried = true;
        self.shared.moved.notify_waiters();
    }

    /// Whether more should be given.
    pub(crate) fn has_room(&self) -> bool {
        let queue = self.shared.queue();
        queue.bytes < if queue.hurried { HURRIED_ROOM } else { ROOM }
    }

    /// Whether everything was written.
    pub(crate) fn is_empty(&self) -> bool {
        self.shared.queue().bytes == 0
    }

    /// Whether this stream cannot be written any more.
    pub(crate) fn has_failed(&self, stream: Stream) -> bool {
        self.shared.queue().failed[stream as usize].is_some()
    }

    /// Waits until there is room.
    pub(crate) async fn room(&self) {
        self.until(Self::has_room).await;
    }

    /// Waits until one of the streams cannot be written any more, and says why.
    pub(crate) async fn failure(&self) -> io::Error {
        let failed = |writer: &Self| writer.shared.queue().failed.iter().any(Option::is_some);
        self.until(failed).await;
        self.take_failure().unwrap_or_else(|| io::ErrorKind::BrokenPipe.into())
    }

    /// Why one of the streams cannot be written any more, if that is so.
    pub(crate) fn take_failure(&self) -> Option<io::Error> {
        self.shared.queue().failed.iter_mut().find_map(Option::take)
    }

    /// Waits until everything was written; in a hurry, only as long as something is read.
    pub(crate) async fn settle(&self) {
        loop {
            let moved = self.shared.moved.notified();
            tokio::pin!(moved);
            // Before the look, so that nothing is missed between the two.
            moved.as_mut().enable();
            let (done, hurried) = {
                let queue = self.shared.queue();
                (queue.bytes == 0, queue.hurried)
            };
            if done {
                return;
            }
            if !hurried {
                moved.await;
            } else if timeout(STUCK, moved).await.is_err() {
                return;
            }
        }
    }

    async fn until(&self, reached: impl Fn(&Self) -> bool) {
        loop {
            let moved = self.shared.moved.notified();
            tokio::pin!(moved);
            moved.as_mut().enable();
            if reached(self) {
                return;
            }
            moved.await;
        }
    }
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, mut write: impl FnMut(Stream, &[u8]) -> io::Result<()>) {
        while let Some((stream, piece)) = self.next() {
            let result = write(stream, &piece);
            let mut queue = self.queue();
            queue.bytes -= piece.len();
            if let Err(error) = result {
                queue.fail(stream, error);
            }
            drop(queue);
            self.moved.notify_waiters();
        }
    }

    /// Waits for the next piece; `None` when there will be no more.
    fn next(&self) -> Option<(Stream, Bytes)> {
        let mut queue = self.queue();
        loop {
            let most = if queue.hurried { HURRIED_PIECE } else { PIECE };
            if let Some((stream, bytes)) = queue.pieces.front_mut() {
                let (stream, piece) = (*stream, bytes.split_to(most.min(bytes.len())));
                if bytes.is_empty() {
                    queue.pieces.pop_front();
                }
                return Some((stream, piece));
            }
            if queue.ending {
                return None;
            }
            queue = self.filled.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Queue {
    fn fail(&mut self, stream: Stream, error: io::Error) {
        self.failed[stream as usize] = Some(error);
        let dropped: usize = self.pieces.iter().filter(|(to, _)| *to == stream).map(|(_, bytes)| bytes.len()).sum();
        self.pieces.retain(|(to, _)| *to != stream);
        self.bytes -= dropped;
    }
}

/// Whether a stream can take a short text now or soon.
pub(crate) fn is_ready(stream: BorrowedFd<'_>, patience: Duration) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let patience = Timespec::try_from(patience).ok();
    // A stream that hung up is ready too: to fail at once.
    poll(&mut [PollFd::from_borrowed_fd(stream, PollFlags::OUT)], patience.as_ref()) != Ok(0)
}

/// How long a stream is waited for, in a hurry.
pub(crate) const PATIENCE: Duration = STUCK;

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// A writer whose reader takes a piece whenever one is asked for.
    fn read_on_demand() -> (Writer, mpsc::Sender<()>, mpsc::Receiver<Vec<u8>>) {
        let (ask, asked) = mpsc::channel();
        let (give, given) = mpsc::channel();
        let writer = Writer::with(move |_, bytes| {
            asked.recv().map_err(|_gone| io::Error::from(io::ErrorKind::BrokenPipe))?;
            give.send(bytes.to_vec()).map_err(|_gone| io::ErrorKind::BrokenPipe.into())
        });
        (writer.expect("a thread"), ask, given)
    }

    #[tokio::test]
    async fn without_a_hurry_everything_is_waited_for() {
        let (writer, ask, given) = read_on_demand();
        writer.push(Stream::Stdout, "one");
        assert!(timeout(Duration::from_secs(1), writer.settle()).await.is_err(), "it waits");
        ask.send(()).expect("the reader lives");
        writer.settle().await;
        assert_eq!(given.recv().expect("a piece"), b"one");
    }

    #[tokio::test]
    async fn in_a_hurry_a_reader_that_does_not_read_is_left() {
        let (writer, _ask, _given) = read_on_demand();
        writer.push(Stream::Stdout, vec![0; ROOM]);
        assert!(!writer.has_room());
        writer.hurry();
        assert!(writer.has_room(), "so that an exit gets through");
        writer.settle().await;
        assert!(!writer.is_empty());
    }

    #[tokio::test]
    async fn a_hurry_reaches_what_waits_already() {
        let (writer, _ask, _given) = read_on_demand();
        writer.push(Stream::Stdout, "unread");
        let waiting = writer.clone();
        let waiting = tokio::spawn(async move { waiting.settle().await });
        tokio::task::yield_now().await;
        writer.hurry();
        timeout(Duration::from_secs(60), waiting).await.expect("it stops waiting").expect("it ends");
    }

    #[tokio::test]
    async fn a_stream_that_fails_is_told_and_the_other_goes_on() {
        let (tell, told) = mpsc::channel();
        let writer = Writer::with(move |stream, bytes| match stream {
            Stream::Stdout => Err(io::ErrorKind::BrokenPipe.into()),
            Stream::Stderr => tell.send(bytes.to_vec()).map_err(|_gone| io::ErrorKind::BrokenPipe.into()),
        });
        let writer = writer.expect("a thread");
        writer.push(Stream::Stdout, "lost");
        writer.push(Stream::Stderr, "heard");
        assert_eq!(told.recv().expect("a piece"), b"heard");
        writer.settle().await;
        assert!(writer.has_failed(Stream::Stdout) && !writer.has_failed(Stream::Stderr));
        assert_eq!(writer.failure().await.kind(), io::ErrorKind::BrokenPipe);
    }
}
