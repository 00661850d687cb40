//! A tree or a file of the host's as a tar stream: batches of files are read and hashed at once, and leave in order.

use std::{
    fs::File,
    io::Read,
    os::fd::OwnedFd,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
};

use bytes::Bytes;
use futures::stream;
use sandbar_machine::{
    ByteStream, MachineError, Sha256,
    tar::{Kind, Member, end, padding},
};
use sha2::Digest;
use tokio::sync::{mpsc, oneshot};

use super::{
    Report, TreeOptions,
    pieces::{PIECE, Piece, Pool},
    walk::{Broken, Found, changed, walk},
};

/// A batch is full with this many bytes of content, or this many files: each holds a descriptor until it is read. Small
/// files and their headers then are one piece.
const BATCH_BYTES: u64 = PIECE as u64 / 8 * 7;
const BATCH_FILES: usize = 32;
/// Pieces of one batch that may wait for their turn.
const WAITING: usize = 2;

/// More than this only wait for each other.
const MAX_THREADS: usize = 32;

/// The reason when whoever takes the stream stopped taking it.
pub(crate) const NOBODY_READS: &str = "nobody reads on";

/// A stream for a machine to unpack, and the word on how reading went, once the stream has ended.
pub(crate) struct Feed {
    pub(crate) tar: ByteStream,
    pub(crate) report: oneshot::Receiver<Result<Report, (Vec<u8>, String)>>,
}

/// Everything below an open directory.
pub(crate) fn tree(root: OwnedFd, options: TreeOptions) -> Feed {
    feed(move |out| {
        let mut walked = Ok(());
        let find = |batches: &mut Batches| {
            let mut left = options.max_bytes;
            walked = walk(&root, &options, &mut |path, found| {
                if let Found::File { size, .. } = &found {
                    left = left.checked_sub(*size).ok_or_else(|| too_large(path, options.max_bytes))?;
                }
                batches.add(path, found).map_err(|()| nobody_reads())
            });
        };
        let read = read_ahead(options.files, find, out);
        // What the reading threads found comes first: it is what made the walk stop.
        read.and_then(|report| walked.map(|()| report))
    })
}

/// One open file under a name and with permission bits of its own.
pub(crate) fn file(file: File, name: Vec<u8>, mode: u32, max_bytes: u64) -> Feed {
    feed(move |out| {
        let metadata = file.metadata().map_err(|error| Broken { path: name.clone(), reason: error.to_string() })?;
        if !metadata.is_file() {
            return Err(Broken { path: name, reason: "it is not a regular file".to_owned() });
        }
        let size = metadata.len();
        if size > max_bytes {
            return Err(too_large(&name, max_bytes));
        }
        let modified = std::os::unix::fs::MetadataExt::mtime(&metadata).unsigned_abs();
        let find = |batches: &mut Batches| {
            let _nobody_reads_on = batches.add(&name, Found::File { file, mode, size, modified });
        };
        read_ahead(1, find, out)
    })
}

fn too_large(path: &[u8], limit: u64) -> Broken {
    Broken { path: path.to_vec(), reason: format!("makes it larger than {limit} bytes; raise \"max_bytes\"") }
}

fn no_thread(error: std::io::Error) -> Broken {
    Broken { path: Vec::new(), reason: format!("no thread to read it: {error}") }
}

fn nobody_reads() -> Broken {
    Broken { path: Vec::new(), reason: NOBODY_READS.to_owned() }
}

type Out = mpsc::Sender<sandbar_machine::Result<Bytes>>;

/// Runs the reading on a thread of its own; the stream ends with an error when the reading does.
fn feed(read: impl FnOnce(&Out) -> Result<Report, Broken> + Send + 'static) -> Feed {
    let (pieces, arriving) = mpsc::channel(4);
    let (tell, report) = oneshot::channel();
    // A thread that cannot be made drops both ends, which is heard as an early end.
    let _heard_as_an_end = thread::Builder::new().name("reader".to_owned()).spawn(move || {
        let outcome = read(&pieces);
        let last = if outcome.is_ok() { Ok(end()) } else { Err(MachineError::invalid("the source", "cannot be read")) };
        let _nobody_reads_on = pieces.blocking_send(last);
        let _nobody_asks = tell.send(outcome.map_err(|broken| (broken.path, broken.reason)));
    });
    let tar = stream::unfold(arriving, |mut arriving| async move { Some((arriving.recv().await?, arriving)) });
    Feed { tar: Box::pin(tar), report }
}

/// Members that leave together.
#[derive(Default)]
struct Batch {
    members: Vec<(Member, Option<File>)>,
    files: usize,
    bytes: u64,
    left_out: Vec<(Vec<u8>, &'static str)>,
}

/// What a reading thread says about its batch.
enum Said {
    Piece(Piece),
    Done(Report),
    Failed(Broken),
}

/// A batch that waits for a reading thread.
struct Job {
    batch: Batch,
    said: SyncSender<Said>,
}

/// Takes what a walk finds, and hands it to the reading threads when there is enough.
struct Batches {
    batch: Batch,
    turns: SyncSender<Receiver<Said>>,
    jobs: SyncSender<Job>,
}

impl Batches {
    fn add(&mut self, path: &[u8], found: Found) -> Result<(), ()> {
        let batch = &mut self.batch;
        match found {
            Found::Dir { mode } => batch.members.push((Member::new(Kind::Dir, path, mode), None)),
            Found::Link { to } => {
                let mut member = Member::new(Kind::Symlink, path, 0o777);
                member.link = to;
                batch.members.push((member, None));
            }
            Found::LeftOut(reason) => batch.left_out.push((path.to_vec(), reason)),
            Found::File { file, mode, size, modified } => {
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
        let (said, heard) = sync_channel(WAITING);
        let batch = std::mem::take(&mut self.batch);
        self.jobs.send(Job { batch, said }).map_err(|_| ())?;
        self.turns.send(heard).map_err(|_| ())
    }
}

/// Runs `find` beside `threads` readers, and sends everything in the order it was found.
fn read_ahead(threads: usize, find: impl FnOnce(&mut Batches) + Send, out: &Out) -> Result<Report, Broken> {
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
        // Only the threads hold it now: when the last one ends, so does the walk.
        drop(waiting);
        let walk = move || {
            let mut batches = Batches { batch: Batch::default(), turns, jobs };
            find(&mut batches);
            let _nobody_reads_on = batches.send();
        };
        thread::Builder::new().spawn_scoped(scope, walk).map_err(no_thread)?;
        in_order(coming, out)
    })
}

fn reading(waiting: &Mutex<Receiver<Job>>, pool: &Pool) {
    loop {
        let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(Job { batch, said }) = next else { return };
        let told = match read_batch(batch, pool, &said) {
            Ok(report) => Said::Done(report),
            Err(broken) => Said::Failed(broken),
        };
        let _nobody_reads_on = said.send(told);
    }
}

/// Reads a batch into pieces, straight to where its bytes leave from.
fn read_batch(batch: Batch, pool: &Pool, said: &SyncSender<Said>) -> Result<Report, Broken> {
    let mut report = Report { files: Vec::with_capacity(batch.files), left_out: batch.left_out };
    let mut sheet = Sheet { piece: pool.take(), pool, said };
    for (member, file) in batch.members {
        sheet.add(&member.encode())?;
        let Some(mut file) = file else { continue };
        let mut hash = sha2::Sha256::new();
        let mut left = member.size;
        while left > 0 {
            let spare = sheet.spare()?;
            let want = usize::try_from(left).unwrap_or(PIECE).min(spare.len());
            file.read_exact(&mut spare[..want]).map_err(|error| unreadable(&member.path, &error))?;
            hash.update(&spare[..want]);
            sheet.piece.filled(want);
            left -= want as u64;
        }
        sheet.add(&[0; 512][..padding(member.size)])?;
        report.files.push((member.path, member.size, Sha256(hash.finalize().into())));
    }
    sheet.send()?;
    Ok(report)
}

/// A piece that is being filled, and where it goes when it is full.
struct Sheet<'a> {
    piece: Piece,
    pool: &'a Pool,
    said: &'a SyncSender<Said>,
}

impl Sheet<'_> {
    /// Room for at least one byte.
    fn spare(&mut self) -> Result<&mut [u8], Broken> {
        if self.piece.is_full() {
            self.send()?;
        }
        Ok(self.piece.spare())
    }

    fn add(&mut self, mut bytes: &[u8]) -> Result<(), Broken> {
        while !bytes.is_empty() {
            self.spare()?;
            let taken = self.piece.add(bytes);
            bytes = &bytes[taken..];
        }
        Ok(())
    }

    fn send(&mut self) -> Result<(), Broken> {
        if self.piece.is_empty() {
            return Ok(());
        }
        let full = std::mem::replace(&mut self.piece, self.pool.take());
        self.said.send(Said::Piece(full)).map_err(|_| nobody_reads())
    }
}

fn unreadable(path: &[u8], error: &std::io::Error) -> Broken {
    if error.kind() == std::io::ErrorKind::UnexpectedEof {
        return changed(path);
    }
    Broken { path: path.to_vec(), reason: error.to_string() }
}

fn in_order(coming: Receiver<Receiver<Said>>, out: &Out) -> Result<Report, Broken> {
    let mut report = Report::default();
    for heard in coming {
        loop {
            match heard.recv() {
                Ok(Said::Piece(piece)) => out.blocking_send(Ok(piece.into())).map_err(|_| nobody_reads())?,
                Ok(Said::Failed(broken)) => return Err(broken),
                Ok(Said::Done(part)) => {
                    report.files.extend(part.files);
                    report.left_out.extend(part.left_out);
                    break;
                }
                Err(_) => {
                    let reason = "the reading thread ended early".to_owned();
                    return Err(Broken { path: Vec::new(), reason });
                }
            }
        }
    }
    Ok(report)
}
