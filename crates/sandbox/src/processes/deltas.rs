//! A subscription to the live output of a process.

use bytes::Bytes;
use tokio::sync::broadcast;

/// The largest piece, in bytes.
pub(super) const PIECE: usize = 8192;

/// Maximum number of pieces that wait for a slow subscriber.
pub(super) const WAITING: usize = 64;

/// The output of a process in pieces of at most 8,192 bytes that never split a character. The table's own calls still
/// return all output. A subscriber that is too slow misses pieces; it delays neither the process nor other callers.
#[derive(Debug)]
pub struct Deltas {
    pieces: broadcast::Receiver<Bytes>,
    missed: u64,
}

impl Deltas {
    pub(super) fn new(pieces: broadcast::Receiver<Bytes>) -> Self {
        Self { pieces, missed: 0 }
    }

    /// The next piece; `None` once the process is no longer in the table or its streams are closed.
    pub async fn next(&mut self) -> Option<Bytes> {
        loop {
            match self.pieces.recv().await {
                Ok(piece) => return Some(piece),
                Err(broadcast::error::RecvError::Lagged(count)) => self.missed = self.missed.saturating_add(count),
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    }

    /// Number of pieces that were missed so far.
    #[must_use]
    pub fn missed(&self) -> u64 {
        self.missed
    }
}
