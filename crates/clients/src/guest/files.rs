//! File operations over the guest's channels: downloads, uploads, records and plain requests.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use futures::{FutureExt, Stream, StreamExt};
use sandbar_guest::protocol::{At, Expected, INPUT_WINDOW, Open, Record, Records, Request, WireError};
use sandbar_machine::{ByteStream, MachineError, MachinePath, Result, Stamp, Target};

use super::{
    channel::{Batch, Channel},
    environment::user_name,
    lane::{Incoming, Shape},
    link::Link,
};

/// Bulk bytes of a file, an archive or records that may be in transit.
const WINDOW: u32 = 1 << 20;

/// Window of requests whose answer has no bulk bytes. Not 0: a guest without credit does not check whether its worker
/// has ended.
const SILENT: u32 = 1;

/// How long the guest may be silent while it opens a file, and while it works on a whole tree.
const PATIENCE: Duration = Duration::from_secs(60);
const TREE_PATIENCE: Duration = Duration::from_secs(600);

/// Maximum size of an index.
#[derive(Clone, Copy)]
pub(super) struct Bounds {
    pub(super) bytes: usize,
    pub(super) entries: usize,
}

/// Maximum size of an index that a caller gets.
pub(super) const INDEX: Bounds = Bounds { bytes: 512 << 20, entries: 5_000_000 };

/// Name and path of a file operation, for its errors.
#[derive(Clone)]
pub(super) struct FileOp {
    pub(super) action: &'static str,
    pub(super) path: MachinePath,
}

impl FileOp {
    pub(super) fn new(action: &'static str, target: &Target) -> Self {
        Self { action, path: target.path.clone() }
    }

    fn error(&self, unexpected: Incoming) -> MachineError {
        match unexpected {
            Incoming::Fail(failure) => failure.about(self.action, &self.path),
            _ => MachineError::transport(self.action, "the guest answered out of turn"),
        }
    }
}

/// A target in the guest's form.
pub(super) fn at(target: &Target) -> Result<At> {
    if let Some(mode) = target.mode
        && mode > 0o777
    {
        return Err(MachineError::invalid(format!("mode {mode:o}"), "must be 777 at most"));
    }
    Ok(At {
        path: target.path.as_bytes().to_vec(),
        user: target.user.clone().map(user_name).transpose()?,
        group: target.group.clone().map(user_name).transpose()?,
        beneath: target.beneath.as_ref().map(|root| root.as_bytes().to_vec()),
        mode: target.mode,
        expected: target.expected.map(|expected| match expected {
            sandbar_machine::Expected::Nothing => Expected::Nothing,
            sandbar_machine::Expected::File(Stamp { size, mode, modified_ns }) => {
                Expected::File(size, mode, modified_ns)
            }
        }),
    })
}

/// Sends a request whose answer is only its end.
pub(super) async fn plain(link: &Arc<Link>, op: &FileOp, open: Open) -> Result<()> {
    let channel = Channel::open(link, Shape::Plain, SILENT, open).await?;
    match channel.answer(op.action, TREE_PATIENCE).await? {
        Incoming::Done => Ok(()),
        other => Err(op.error(other)),
    }
}

/// The bytes of a file; an `Err` here means that not even the first byte will arrive.
pub(super) async fn download(link: &Arc<Link>, op: FileOp, open: Open) -> Result<ByteStream> {
    let channel = Channel::open(link, Shape::Download, WINDOW, open).await?;
    match channel.answer(op.action, PATIENCE).await? {
        Incoming::Started => Ok(Box::pin(Download { channel: Some(channel), first: None, op })),
        other => Err(op.error(other)),
    }
}

/// The bytes of an archive. The guest starts to write it at once, so the first piece shows that it can be written.
pub(super) async fn archive(link: &Arc<Link>, op: FileOp, open: Open) -> Result<ByteStream> {
    let channel = Channel::open(link, Shape::Records, WINDOW, open).await?;
    match channel.answer(op.action, TREE_PATIENCE).await? {
        Incoming::Data(first) => Ok(Box::pin(Download { channel: Some(channel), first: Some(first), op })),
        Incoming::Done => Ok(Box::pin(Download { channel: None, first: None, op })),
        other => Err(op.error(other)),
    }
}

struct Download {
    /// `None` once the stream has ended.
    channel: Option<Channel>,
    /// Bytes that arrived with the answer to the request.
    first: Option<Bytes>,
    op: FileOp,
}

impl Stream for Download {
    type Item = Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let first = self.first.take();
        let Some(channel) = &self.channel else { return Poll::Ready(None) };
        let incoming = match first {
            Some(bytes) => Ok(Incoming::Data(bytes)),
            None => ready!(channel.poll_next(cx)),
        };
        let error = match incoming {
            Ok(Incoming::Data(bytes)) => {
                channel.taken(bytes.len());
                return Poll::Ready(Some(Ok(bytes)));
            }
            Ok(Incoming::Done) => None,
            Ok(other) => Some(self.op.error(other)),
            Err(end) => Some(end.error(self.op.action)),
        };
        self.channel = None;
        Poll::Ready(error.map(Err))
    }
}

/// Sends bytes to the guest. If `data` fails, the channel is dropped, and the guest drops what it has.
pub(super) async fn upload(link: &Arc<Link>, op: &FileOp, open: Open, mut data: ByteStream) -> Result<()> {
    let (batch, mut rest) = first_window(&mut data).await?;
    let mut ended = batch.ended;
    let channel = Channel::open_with(link, Shape::Upload, SILENT, open, batch).await?;
    loop {
        tokio::select! {
            biased;
            answer = channel.answer(op.action, TREE_PATIENCE), if ended => return match answer? {
                Incoming::Done => Ok(()),
                other => Err(op.error(other)),
            },
            incoming = channel.next(), if !ended => return match incoming {
                Ok(Incoming::Done) => Err(MachineError::transport(op.action, "the guest finished before its input")),
                Ok(other) => Err(op.error(other)),
                Err(end) => Err(end.error(op.action)),
            },
            late = tokio::time::timeout(TREE_PATIENCE, channel.writable()), if !rest.is_empty() => {
                late.map_err(|_late| MachineError::transport(op.action, "the guest stopped taking bytes"))?;
                channel.send(&mut rest);
            }
            piece = data.next(), if rest.is_empty() && !ended => match piece {
                Some(piece) => {
                    rest = piece?;
                    channel.send(&mut rest);
                }
                None => {
                    ended = true;
                    channel.request(&Request::End);
                }
            },
        }
    }
}

/// The bytes that can be sent without waiting, and the piece that did not fit: a small file is one write.
async fn first_window(data: &mut ByteStream) -> Result<(Batch, Bytes)> {
    let mut batch = Batch::default();
    let mut room = INPUT_WINDOW as usize;
    while room > 0 {
        match data.next().now_or_never() {
            None => break,
            Some(None) => {
                batch.ended = true;
                break;
            }
            Some(Some(piece)) => {
                let mut piece = piece?;
                let now = piece.split_to(piece.len().min(room));
                room -= now.len();
                batch.bytes.push(now);
                if !piece.is_empty() {
                    return Ok((batch, piece));
                }
            }
        }
    }
    Ok((batch, Bytes::new()))
}

/// Reads records from the guest.
pub(super) async fn records(link: &Arc<Link>, op: &FileOp, open: Open, most: Bounds) -> Result<Vec<Record>> {
    let channel = Channel::open(link, Shape::Records, WINDOW, open).await?;
    let (mut records, mut pieces, mut total) = (Vec::new(), Records::default(), 0);
    loop {
        match channel.answer(op.action, TREE_PATIENCE).await? {
            Incoming::Data(bytes) => {
                total += bytes.len();
                pieces.feed(&bytes, &mut records).map_err(|how| link.violated(op.action, how))?;
                if total > most.bytes || records.len() > most.entries {
                    let reason =
                        format!("{} has more than {} entries or {} bytes of them", op.path, most.entries, most.bytes);
                    return Err(MachineError::Exhausted { what: "the index".to_owned(), reason });
                }
                channel.taken(bytes.len());
            }
            Incoming::Done if pieces.is_complete() => return Ok(records),
            Incoming::Done => return Err(link.violated(op.action, WireError("half a record at the end"))),
            other => return Err(op.error(other)),
        }
    }
}
