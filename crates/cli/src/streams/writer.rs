//! A thread that writes to the standard streams, so that a stalled reader blocks only this thread. The thread starts with
//! the first bytes, because many commands print nothing.

use std::{
    collections::VecDeque,
    io,
    os::fd::{AsFd, BorrowedFd},
    sync::Arc,
    thread,
    time::Duration,
};

use bytes::Bytes;
use parking_lot::{Condvar, Mutex, MutexGuard};
use tokio::{sync::Notify, time::timeout};

use crate::streams::relay::write_all;

/// Maximum number of queued bytes before the source must wait.
const ROOM: usize = 256 * 1024;

/// Maximum number of queued bytes in a hurry: more than a machine can have in transit, so that the exit of a command does
/// not wait behind its output.
const HURRIED_ROOM: usize = ROOM + (8 << 20);

/// How long the writer waits, in a hurry, for a stalled reader.
const STUCK: Duration = Duration::from_millis(500);

/// Maximum number of bytes per write; smaller in a hurry, to distinguish a slow reader from a stalled one.
const PIECE: usize = 64 * 1024;
const HURRIED_PIECE: usize = 4 * 1024;

/// A standard stream of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Stdout,
    Stderr,
}

/// Handle to the thread, which writes in the order of the calls. If the handle is dropped, the thread ends when the queue is
/// empty.
#[derive(Clone)]
pub(crate) struct Writer {
    shared: Arc<Shared>,
    _last_one: Arc<Hangup>,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    /// Wakes the thread: bytes are queued.
    filled: Condvar,
    /// Wakes the waiting callers: bytes were written, a write failed, or the writer is in a hurry.
    moved: Notify,
}

type Write = Box<dyn FnMut(Stream, &[u8]) -> io::Result<()> + Send>;

#[derive(Default)]
struct Queue {
    /// Function of the thread, until the thread starts.
    unstarted: Option<Write>,
    pieces: VecDeque<(Stream, Bytes)>,
    /// Number of queued bytes, including those being written.
    bytes: usize,
    /// Error of each stream that cannot be written any more; later bytes for that stream are dropped.
    failed: [Option<io::Error>; 2],
    hurried: bool,
    ending: bool,
}

/// Guard that closes the queue.
struct Hangup(Arc<Shared>);

impl Drop for Hangup {
    fn drop(&mut self) {
        self.0.queue().ending = true;
        self.0.filled.notify_one();
    }
}

impl Writer {
    pub(crate) fn new() -> Self {
        Self::with(|stream, bytes| match stream {
            Stream::Stdout => write_all(io::stdout().as_fd(), bytes),
            Stream::Stderr => write_all(io::stderr().as_fd(), bytes),
        })
    }

    fn with(write: impl FnMut(Stream, &[u8]) -> io::Result<()> + Send + 'static) -> Self {
        let queue = Queue { unstarted: Some(Box::new(write)), ..Queue::default() };
        let shared = Arc::new(Shared { queue: Mutex::new(queue), ..Shared::default() });
        Self { _last_one: Arc::new(Hangup(Arc::clone(&shared))), shared }
    }

    /// Queues bytes without waiting. If the thread cannot be started, the stream has failed.
    pub(crate) fn push(&self, to: Stream, bytes: impl Into<Bytes>) {
        let bytes = bytes.into();
        let mut queue = self.shared.queue();
        if bytes.is_empty() || queue.failed[to as usize].is_some() {
            return;
        }
        if let Some(write) = queue.unstarted.take() {
            let shared = Arc::clone(&self.shared);
            let started = thread::Builder::new().name("writer".to_owned()).spawn(move || shared.write(write));
            if let Err(error) = started {
                queue.failed = [Some(io::Error::from(error.kind())), Some(error)];
                drop(queue);
                return self.shared.moved.notify_waiters();
            }
        }
        queue.bytes += bytes.len();
        queue.pieces.push_back((to, bytes));
        self.shared.filled.notify_one();
    }

    /// From now on, do not wait for a stalled reader.
    pub(crate) fn hurry(&self) {
        self.shared.queue().hurried = true;
        self.shared.moved.notify_waiters();
    }

    /// Whether the queue has room.
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

    /// Waits until the queue has room.
    pub(crate) async fn room(&self) {
        self.until(Self::has_room).await;
    }

    /// Waits until a stream cannot be written any more, and returns the error.
    pub(crate) async fn failure(&self) -> io::Error {
        let failed = |writer: &Self| writer.shared.queue().failed.iter().any(Option::is_some);
        self.until(failed).await;
        self.take_failure().unwrap_or_else(|| io::ErrorKind::BrokenPipe.into())
    }

    /// Takes the error of a stream that cannot be written any more.
    pub(crate) fn take_failure(&self) -> Option<io::Error> {
        self.shared.queue().failed.iter_mut().find_map(Option::take)
    }

    /// Waits until everything was written; in a hurry, only as long as a reader makes progress.
    pub(crate) async fn settle(&self) {
        loop {
            let moved = self.shared.moved.notified();
            tokio::pin!(moved);
            // Registered before the check, so that no notification is missed between the two.
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
        self.queue.lock()
    }

    fn write(&self, mut write: Write) {
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

    /// Waits for the next piece; `None` if the queue is closed.
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
            self.filled.wait(&mut queue);
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

/// Whether a stream accepts a short text within `patience`.
pub(crate) fn is_ready(stream: BorrowedFd<'_>, patience: Duration) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let patience = Timespec::try_from(patience).ok();
    // A stream that hung up is also ready: the write fails immediately.
    poll(&mut [PollFd::from_borrowed_fd(stream, PollFlags::OUT)], patience.as_ref()) != Ok(0)
}

/// Time limit for writing to a stream in a hurry.
pub(crate) const PATIENCE: Duration = STUCK;

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// A writer whose reader takes one piece per request.
    fn read_on_demand() -> (Writer, mpsc::Sender<()>, mpsc::Receiver<Vec<u8>>) {
        let (ask, asked) = mpsc::channel();
        let (give, given) = mpsc::channel();
        let writer = Writer::with(move |_, bytes| {
            asked.recv().map_err(|_gone| io::Error::from(io::ErrorKind::BrokenPipe))?;
            give.send(bytes.to_vec()).map_err(|_gone| io::ErrorKind::BrokenPipe.into())
        });
        (writer, ask, given)
    }

    #[tokio::test]
    async fn the_thread_starts_with_the_first_bytes() {
        let (writer, ask, given) = read_on_demand();
        writer.push(Stream::Stdout, "");
        writer.settle().await;
        assert!(writer.shared.queue().unstarted.is_some());
        ask.send(()).expect("the reader lives");
        writer.push(Stream::Stdout, "one");
        assert!(writer.shared.queue().unstarted.is_none());
        assert_eq!(given.recv().expect("a piece"), b"one");
    }

    #[tokio::test]
    async fn without_a_hurry_the_writer_waits_for_a_stalled_reader() {
        let (writer, ask, given) = read_on_demand();
        writer.push(Stream::Stdout, "one");
        assert!(timeout(Duration::from_secs(1), writer.settle()).await.is_err(), "it waits");
        ask.send(()).expect("the reader lives");
        writer.settle().await;
        assert_eq!(given.recv().expect("a piece"), b"one");
    }

    #[tokio::test]
    async fn in_a_hurry_the_writer_gives_up_on_a_stalled_reader() {
        let (writer, _ask, _given) = read_on_demand();
        writer.push(Stream::Stdout, vec![0; ROOM]);
        assert!(!writer.has_room());
        writer.hurry();
        assert!(writer.has_room(), "so that an exit gets through");
        writer.settle().await;
        assert!(!writer.is_empty());
    }

    #[tokio::test]
    async fn a_hurry_wakes_callers_that_already_wait() {
        let (writer, _ask, _given) = read_on_demand();
        writer.push(Stream::Stdout, "unread");
        let waiting = writer.clone();
        let waiting = tokio::spawn(async move { waiting.settle().await });
        tokio::task::yield_now().await;
        writer.hurry();
        timeout(Duration::from_secs(60), waiting).await.expect("it stops waiting").expect("it ends");
    }

    #[tokio::test]
    async fn the_failure_of_one_stream_is_reported_and_the_other_continues() {
        let (tell, told) = mpsc::channel();
        let writer = Writer::with(move |stream, bytes| match stream {
            Stream::Stdout => Err(io::ErrorKind::BrokenPipe.into()),
            Stream::Stderr => tell.send(bytes.to_vec()).map_err(|_gone| io::ErrorKind::BrokenPipe.into()),
        });
        writer.push(Stream::Stdout, "lost");
        writer.push(Stream::Stderr, "heard");
        assert_eq!(told.recv().expect("a piece"), b"heard");
        writer.settle().await;
        assert!(writer.has_failed(Stream::Stdout) && !writer.has_failed(Stream::Stderr));
        assert_eq!(writer.failure().await.kind(), io::ErrorKind::BrokenPipe);
    }
}
