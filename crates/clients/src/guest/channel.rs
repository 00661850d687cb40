//! The channel of one request, as its owner uses it. Dropping it tells the guest to end or to release the request.

use std::{
    future::poll_fn,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use sandbar_guest::protocol::{FRAME_HEADER, FrameHeader, INPUT_WINDOW, MAX_DATA, MAX_PAYLOAD, Open, Request};
use sandbar_machine::{MachineError, Result};

use super::{
    lane::{Incoming, Lane, Shape},
    link::{End, Link},
};

/// Bulk bytes in one frame: a fraction of the window, so that the guest works on one piece while the next is being
/// sent.
const PIECE: usize = INPUT_WINDOW as usize / 4;

/// An open channel.
pub(crate) struct Channel {
    link: Arc<Link>,
    id: u32,
    lane: Arc<Lane>,
    close_mode: CloseMode,
}

/// What the guest is told when the channel is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CloseMode {
    /// End the command.
    Close,
    /// Let the command run on for another client.
    Leave,
}

/// What is sent together with a request: bytes within the first window, and whether they are all.
#[derive(Default)]
pub(crate) struct Batch {
    pub(crate) bytes: Vec<Bytes>,
    pub(crate) ended: bool,
}

impl Channel {
    /// Sends a request; `window` is the number of bulk bytes that may arrive before more credit is given.
    pub(crate) async fn open(link: &Arc<Link>, shape: Shape, window: u32, open: Open) -> Result<Self> {
        Self::open_with(link, shape, window, open, Batch::default()).await
    }

    /// Sends a request and its first bytes in one write.
    pub(crate) async fn open_with(
        link: &Arc<Link>,
        shape: Shape,
        window: u32,
        open: Open,
        batch: Batch,
    ) -> Result<Self> {
        let mut frames = Vec::with_capacity(256);
        link.outbox.ready().await;
        let (id, lane) = link.route(shape, window).map_err(|end| end.error("send a request"))?;
        let channel = Self { link: link.clone(), id, lane, close_mode: CloseMode::Close };
        Request::Open(window, open).encode(id, &mut frames);
        if frames.len() > FRAME_HEADER + MAX_PAYLOAD {
            // The guest never received the request, so there is nothing to close.
            channel.link.forget(id);
            return Err(MachineError::invalid("the request", "is longer than 2 MiB of arguments and environment"));
        }
        for mut bytes in batch.bytes {
            for piece in channel.pieces(&mut bytes) {
                Request::Data(&piece).encode(id, &mut frames);
            }
        }
        if batch.ended {
            Request::End.encode(id, &mut frames);
        }
        link.outbox.push(|out| if out.is_empty() { *out = frames } else { out.extend_from_slice(&frames) });
        Ok(channel)
    }

    /// The next event that the guest sends on this channel.
    pub(crate) async fn next(&self) -> Result<Incoming, End> {
        poll_fn(|cx| self.lane.poll_next(cx)).await
    }

    /// The same as a poll function, for streams.
    pub(crate) fn poll_next(&self, cx: &mut Context<'_>) -> Poll<Result<Incoming, End>> {
        self.lane.poll_next(cx)
    }

    /// The next event, with a timeout: a guest that accepts a request must answer it.
    pub(crate) async fn answer(&self, action: &'static str, patience: Duration) -> Result<Incoming> {
        match tokio::time::timeout(patience, self.next()).await {
            Ok(Ok(incoming)) => Ok(incoming),
            Ok(Err(end)) => Err(end.error(action)),
            Err(_late) => {
                let reason = format!("the guest did not answer within {} seconds", patience.as_secs());
                Err(MachineError::transport(action, reason))
            }
        }
    }

    /// Waits until bytes may be sent.
    pub(crate) async fn writable(&self) {
        poll_fn(|cx| self.lane.poll_credit(cx)).await;
        self.link.outbox.ready().await;
    }

    /// Sends as much of `bytes` as the guest allows and leaves the rest.
    pub(crate) fn send(&self, bytes: &mut Bytes) {
        for piece in self.pieces(bytes) {
            self.link.outbox.push_bulk(&data_header(self.id, piece.len()), &piece);
        }
    }

    /// Takes as many bytes off `bytes` as the guest allows, split into frames. The frames are longer if the guest has
    /// allowed more than its first window.
    fn pieces(&self, bytes: &mut Bytes) -> impl Iterator<Item = Bytes> {
        let mut now = bytes.split_to(self.lane.spend(bytes.len()));
        let piece = if self.lane.is_wide() { MAX_DATA } else { PIECE };
        std::iter::from_fn(move || (!now.is_empty()).then(|| now.split_to(now.len().min(piece))))
    }

    /// Sends a request about this channel.
    pub(crate) fn request(&self, request: &Request<'_>) {
        self.link.outbox.push(|out| request.encode(self.id, out));
    }

    /// The owner consumed this many bytes, so the guest may send as many more.
    pub(crate) fn taken(&self, count: usize) {
        if let Some(grant) = self.lane.taken(count) {
            self.request(&Request::Credit(grant));
        }
    }

    /// Sets what the guest is told when the channel is dropped.
    pub(crate) fn set_close_mode(&mut self, close_mode: CloseMode) {
        self.close_mode = close_mode;
    }

    /// The connection of the channel.
    pub(crate) fn link(&self) -> &Link {
        &self.link
    }
}

/// The header of a data frame alone, so that the bytes that follow need not be copied.
fn data_header(channel: u32, length: usize) -> Vec<u8> {
    let mut frame = Vec::with_capacity(FRAME_HEADER);
    Request::Data(&[]).encode(channel, &mut frame);
    match (FrameHeader::decode(&frame), u32::try_from(length)) {
        (Ok(Some(header)), Ok(length)) => FrameHeader { length, ..header }.encode().to_vec(),
        _ => frame,
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        if self.link.abandon(self.id) {
            self.request(match self.close_mode {
                CloseMode::Close => &Request::Close,
                CloseMode::Leave => &Request::Leave,
            });
        }
    }
}
