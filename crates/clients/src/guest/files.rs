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

/// Bulk bytes of a file, an archive or records that may be on their way at once.
const WINDOW: u32 = 1 << 20;

/// For answers without bulk bytes. Not 0: a guest without credit does not look whether a worker has come to its end.
const SILENT: u32 = 1;

/// How long the guest may stay silent while it opens something, and while it works on whole trees.
const PATIENCE: Duration = Duration::from_secs(60);
const TREE_PATIENCE: Duration = Duration::from_secs(600);

/// What an index may grow to before it is refused.
#[derive(Clone, Copy)]
pub(super) struct Bounds {
    pub(super) bytes: usize,
    pub(super) entries: usize,
}

/// The largest index anyone is given.
pub(super) const INDEX: Bounds = Bounds { bytes: 512 << 20, entries: 5_000_000 };

/// What an operation does and where, for its errors.
#[derive(Clone)]
pub(super) struct Deed {
    pub(super) action: &'static str,
    pub(super) path: MachinePath,
}

impl Deed {
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

/// A target as the guest is told of it.
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

/// A request that is answered with nothing but its end.
pub(super) async fn plain(link: &Arc<Link>, deed: &Deed, open: Open) -> Result<()> {
    let channel = Channel::open(link, Shape::Plain, SILENT, open).await?;
    match channel.answer(deed.action, TREE_PATIENCE).await? {
        Incoming::Done => Ok(()),
        other => Err(deed.error(other)),
    }
}

/// A file's bytes; an `Err` here means that not even the first will come.
pub(super) async fn download(link: &Arc<Link>, deed: Deed, open: Open) -> Result<ByteStream> {
    let channel = Channel::open(link, Shape::Download, WINDOW, open).await?;
    match channel.answer(deed.action, PATIENCE).await? {
        Incoming::Started => Ok(Box::pin(Download { channel: Some(channel), first: None, deed })),
        other => Err(deed.error(other)),
    }
}

/// An archive's bytes. The guest starts to make it at once, so its first piece says that it can be made.
pub(super) async fn archive(link: &Arc<Link>, deed: Deed, open: Open) -> Result<ByteStream> {
    let channel = Channel::open(link, Shape::Records, WINDOW, open).await?;
    match channel.answer(deed.action, TREE_PATIENCE).await? {
        Incoming::Data(first) => Ok(Box::pin(Download { channel: Some(channel), first: Some(first), deed })),
        Incoming::Done => Ok(Box::pin(Download { channel: None, first: None, deed })),
        other => Err(deed.error(other)),
    }
}

struct Download {
    /// Gone once everything has been said.
    channel: Option<Channel>,
    /// What came before anyone asked.
    first: Option<Bytes>,
    deed: Deed,
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
            Ok(other) => Some(self.deed.error(other)),
            Err(end) => Some(end.error(self.deed.action)),
        };
        self.channel = None;
        Poll::Ready(error.map(Err))
    }
}

/// Bytes to the guest. When `data` fails, what the guest has is dropped with the channel.
pub(super) async fn upload(link: &Arc<Link>, deed: &Deed, open: Open, mut data: ByteStream) -> Result<()> {
    let (batch, mut rest) = first_window(&mut data).await?;
    let mut ended = batch.ended;
    let channel = Channel::open_with(link, Shape::Upload, SILENT, open, batch).await?;
    loop {
        tokio::select! {
            biased;
            answer = channel.answer(deed.action, TREE_PATIENCE), if ended => return match answer? {
                Incoming::Done => Ok(()),
                other => Err(deed.error(other)),
            },
            incoming = channel.next(), if !ended => return match incoming {
                Ok(Incoming::Done) => Err(MachineError::transport(deed.action, "the guest was done before its input was")),
                Ok(other) => Err(deed.error(other)),
                Err(end) => Err(end.error(deed.action)),
            },
            late = tokio::time::timeout(TREE_PATIENCE, channel.writable()), if !rest.is_empty() => {
                late.map_err(|_late| MachineError::transport(deed.action, "the guest stopped taking bytes"))?;
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

/// What can be sent at once without waiting for anyone, and the piece that did not fit: a small file is one write.
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

/// Records from the guest.
pub(super) async fn records(link: &Arc<Link>, deed: &Deed, open: Open, most: Bounds) -> Result<Vec<Record>> {
    let channel = Channel::open(link, Shape::Records, WINDOW, open).await?;
    let (mut records, mut pieces, mut total) = (Vec::new(), Records::default(), 0);
    loop {
        match channel.answer(deed.action, TREE_PATIENCE).await? {
            Incoming::Data(bytes) => {
                total += bytes.len();
                pieces.feed(&bytes, &mut records).map_err(|how| link.violated(deed.action, how))?;
                if total > most.bytes || records.len() > most.entries {
                    let reason =
                        format!("{} has more than {} entries or {} bytes of them", deed.path, most.entries, most.bytes);
                    return Err(MachineError::Exhausted { what: "the index".to_owned(), reason });
                }
                channel.taken(bytes.len());
            }
            Incoming::Done if pieces.is_complete() => return Ok(records),
            Incoming::Done => return Err(link.violated(deed.action, WireError("half a record at the end"))),
            other => return Err(deed.error(other)),
        }
    }
}
