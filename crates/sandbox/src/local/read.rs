//! Reads a tree or a file of the host as a tar stream. Threads read and hash batches of files; the output is in order.

use std::{
    fs::File,
    io::Read,
    os::fd::OwnedFd,
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
};

use bytes::Bytes;
use futures::stream;
use parking_lot::Mutex;
use sandbar_machine::{
    ByteStream, MachineError, Sha256,
    tar::{Kind, Member, end, padding},
};
use sha2::Digest;
use tokio::sync::{mpsc, oneshot};

use super::{
    Report, TreeOptions,
    pieces::{PIECE, Piece, Pool},
    walk::{TreeError, TreeItem, changed, walk},
};

/// A batch is full with this many bytes of content, or this many files: each file holds a descriptor until it is read. The
/// size is chosen so that small files and their headers fit into one piece.
const BATCH_BYTES: u64 = PIECE as u64 / 8 * 7;
const BATCH_FILES: usize = 32;
/// Pieces of one batch that may wait to be sent.
const WAITING: usize = 2;

/// Largest number of reading threads; more would only wait for each other.
const MAX_THREADS: usize = 32;

/// Reason of the error if the consumer of the stream dropped it.
pub(crate) const READER_GONE: &str = "the reader of the stream is gone";

/// A stream for a machine to unpack, and the result of reading, available after the stream has ended.
pub(crate) struct Feed {
    pub(crate) tar: ByteStream,
    pub(crate) report: oneshot::Receiver<Result<Report, (Vec<u8>, String)>>,
}

/// Reads everything below an open directory.
pub(crate) fn tree(root: OwnedFd, options: TreeOptions) -> Feed {
    feed(move |out| {
        let mut walked = Ok(());
        let find = |batches: &mut Batches| {
            let mut left = options.max_bytes;
            walked = walk(&root, &options, &mut |path, found| {
                if let TreeItem::File { size, .. } = &found {
                    left = left.checked_sub(*size).ok_or_else(|| too_large(path, options.max_bytes))?;
                }
                batches.add(path, found).map_err(|()| reader_gone())
            });
        };
        let read = read_ahead(options.files, find, out);
        // An error of a reading thread comes first: it made the walk stop.
        read.and_then(|report| walked.map(|()| report))
    })
}

/// Reads one open file, with this name and these permission bits in the stream.
pub(crate) fn file(file: File, name: Vec<u8>, mode: u32, max_bytes: u64) -> Feed {
    feed(move |out| {
        let metadata = file.metadata().map_err(|error| TreeError { path: name.clone(), reason: error.to_string() })?;
        if !metadata.is_file() {
            return Err(TreeError { path: name, reason: "it is not a regular file".to_owned() });
        }
        let size = metadata.len();
        if size > max_bytes {
            return Err(too_large(&name, max_bytes));
        }
        let modified = std::os::unix::fs::MetadataExt::mtime(&metadata).unsigned_abs();
        let find = |batches: &mut Batches| {
            let _reader_gone = batches.add(&name, TreeItem::File { file, mode, size, modified });
        };
        read_ahead(1, find, out)
    })
}

fn too_large(path: &[u8], limit: u64) -> TreeError {
    TreeError { path: path.to_vec(), reason: format!("makes the tree larger than {limit} bytes; raise \"max_bytes\"") }
}

fn no_thread(error: std::io::Error) -> TreeError {
    TreeError { path: Vec::new(), reason: format!("cannot start a thread to read it: {error}") }
}

fn reader_gone() -> TreeError {
    TreeError { path: Vec::new(), reason: READER_GONE.to_owned() }
}

type Out = mpsc::Sender<sandbar_machine::Result<Bytes>>;

/// Runs `read` on a new thread. If reading fails, the stream ends with an error.
fn feed(read: impl FnOnce(&Out) -> Result<Report, TreeError> + Send + 'static) -> Feed {
    let (pieces, arriving) = mpsc::channel(4);
    let (outcome_sender, report) = oneshot::channel();
    // If the thread cannot be started, both senders are dropped, and the receivers notice an early end.
    let _noticed_as_an_early_end = thread::Builder::new().name("reader".to_owned()).spawn(move || {
        let outcome = read(&pieces);
        let last = if outcome.is_ok() { Ok(end()) } else { Err(MachineError::invalid("the source", "cannot be read")) };
        let _reader_gone = pieces.blocking_send(last);
        let _receiver_gone = outcome_sender.send(outcome.map_err(|broken| (broken.path, broken.reason)));
    });
    let tar = stream::unfold(arriving, |mut arriving| async move { Some((arriving.recv().await?, arriving)) });
    Feed { tar: Box::pin(tar), report }
}

/// Members that are read together.
#[derive(Default)]
struct Batch {
    members: Vec<(Member, Option<File>)>,
    files: usize,
    bytes: u64,
    left_out: Vec<(Vec<u8>, &'static str)>,
}

/// Message of a reading thread about its batch.
enum ReaderMessage {
    Piece(Piece),
    Done(Report),
    Failed(TreeError),
}

/// A batch for a reading thread.
struct Job {
    batch: Batch,
    messages: SyncSender<ReaderMessage>,
}

/// Collects the items of a walk into batches for the reading threads.
struct Batches {
    batch: Batch,
    turns: SyncSender<Receiver<ReaderMessage>>,
    jobs: SyncSender<Job>,
}

impl Batches {
    fn add(&mut self, path: &[u8], found: TreeItem) -> Result<(), ()> {
        let batch = &mut self.batch;
        match found {
            TreeItem::Dir { mode } => batch.members.push((Member::new(Kind::Dir, path, mode), None)),
            TreeItem::Link { to } => {
                let mut member = Member::new(Kind::Symlink, path, 0o777);
                member.link = to;
                batch.members.push((member, None));
            }
            TreeItem::LeftOut(reason) => batch.left_out.push((path.to_vec(), reason)),
            TreeItem::File { file, mode, size, modified } => {
                let mut member = Member::new(Kind::File, path, mode);
                (member.size, member.modified) = (size, modified);
                batch.members.push((member, Some(file)));
                batch.files += 1;
                batch.bytes = batch.bytes.saturating_add(size);
            }
        }
        let full = batch.bytes >= BATCH_BYTES || batch.files >= BATCH_FILES || batch.members.len() >= 1024;
        if full { self.send() } else { Ok(()) }
    }

    fn send(&mut self) -> Result<(), ()> {
        let (messages, receiver) = sync_channel(WAITING);
        let batch = std::mem::take(&mut self.batch);
        self.jobs.send(Job { batch, messages }).map_err(|_| ())?;
        self.turns.send(receiver).map_err(|_| ())
    }
}

/// Runs `find` and `threads` readers in parallel, and sends everything in the order of the walk.
fn read_ahead(threads: usize, find: impl FnOnce(&mut Batches) + Send, out: &Out) -> Result<Report, TreeError> {
    let threads = threads.clamp(1, MAX_THREADS);
    let (turns, coming) = sync_channel(threads);
    let (jobs, waiting) = sync_channel::<Job>(threads);
    let waiting = Arc::new(Mutex::new(waiting));
    let pool = Pool::default();
    thread::scope(|scope| {
        for _ in 0..threads {
            let (waiting, pool) = (waiting.clone(), pool.clone());
            thread::Builder::new().spawn_scoped(scope, move || reading(&waiting, &pool)).map_err(no_thread)?;
        }
        // Now only the threads hold the receiver: when the last thread ends, the walk ends too.
        drop(waiting);
        let walk = move || {
            let mut batches = Batches { batch: Batch::default(), turns, jobs };
            find(&mut batches);
            let _reader_gone = batches.send();
        };
        thread::Builder::new().spawn_scoped(scope, walk).map_err(no_thread)?;
        in_order(coming, out)
    })
}

fn reading(waiting: &Mutex<Receiver<Job>>, pool: &Pool) {
    loop {
        let next = waiting.lock().recv();
        let Ok(Job { batch, messages }) = next else { return };
        let last = match read_batch(batch, pool, &messages) {
            Ok(report) => ReaderMessage::Done(report),
            Err(broken) => ReaderMessage::Failed(broken),
        };
        let _reader_gone = messages.send(last);
    }
}

/// Reads a batch directly into the pieces that are sent.
fn read_batch(batch: Batch, pool: &Pool, messages: &SyncSender<ReaderMessage>) -> Result<Report, TreeError> {
    let mut report = Report { files: Vec::with_capacity(batch.files), left_out: batch.left_out };
    let mut writer = PieceWriter { piece: pool.take(), pool, messages };
    for (member, file) in batch.members {
        writer.add(&member.encode())?;
        let Some(mut file) = file else { continue };
        let mut hash = sha2::Sha256::new();
        let mut left = member.size;
        while left > 0 {
            let spare = writer.spare()?;
            let want = usize::try_from(left).unwrap_or(PIECE).min(spare.len());
            file.read_exact(&mut spare[..want]).map_err(|error| unreadable(&member.path, &error))?;
            hash.update(&spare[..want]);
            writer.piece.filled(want);
            left -= want as u64;
        }
        writer.add(&[0; 512][..padding(member.size)])?;
        report.files.push((member.path, member.size, Sha256(hash.finalize().into())));
    }
    writer.send()?;
    Ok(report)
}

/// Fills pieces and sends each one that is full.
struct PieceWriter<'a> {
    piece: Piece,
    pool: &'a Pool,
    messages: &'a SyncSender<ReaderMessage>,
}

impl PieceWriter<'_> {
    /// Unused part of the current piece, at least one byte.
    fn spare(&mut self) -> Result<&mut [u8], TreeError> {
        if self.piece.is_full() {
            self.send()?;
        }
        Ok(self.piece.spare())
    }

    fn add(&mut self, mut bytes: &[u8]) -> Result<(), TreeError> {
        while !bytes.is_empty() {
            self.spare()?;
            let taken = self.piece.add(bytes);
            bytes = &bytes[taken..];
        }
        Ok(())
    }

    fn send(&mut self) -> Result<(), TreeError> {
        if self.piece.is_empty() {
            return Ok(());
        }
        let full = std::mem::replace(&mut self.piece, self.pool.take());
        self.messages.send(ReaderMessage::Piece(full)).map_err(|_| reader_gone())
    }
}

fn unreadable(path: &[u8], error: &std::io::Error) -> TreeError {
    if error.kind() == std::io::ErrorKind::UnexpectedEof {
        return changed(path);
    }
    TreeError { path: path.to_vec(), reason: error.to_string() }
}

fn in_order(coming: Receiver<Receiver<ReaderMessage>>, out: &Out) -> Result<Report, TreeError> {
    let mut report = Report::default();
    for messages in coming {
        loop {
            match messages.recv() {
                Ok(ReaderMessage::Piece(piece)) => out.blocking_send(Ok(piece.into())).map_err(|_| reader_gone())?,
                Ok(ReaderMessage::Failed(broken)) => return Err(broken),
                Ok(ReaderMessage::Done(part)) => {
                    report.files.extend(part.files);
                    report.left_out.extend(part.left_out);
                    break;
                }
                Err(_) => {
                    let reason = "the reading thread ended early".to_owned();
                    return Err(TreeError { path: Vec::new(), reason });
                }
            }
        }
    }
    Ok(report)
}
