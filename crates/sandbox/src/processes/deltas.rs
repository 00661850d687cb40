//! What a process prints, while it prints it, for whoever wants to watch.

use bytes::Bytes;
use tokio::sync::broadcast;

/// The largest piece.
pub(super) const PIECE: usize = 8192;

/// Pieces that wait for a slow watcher.
pub(super) const WAITING: usize = 64;

/// A process's output in pieces of at most 8,192 bytes that never split a character. Watching takes nothing away from
/// the table's own calls, and a watcher that is too slow misses pieces instead of holding anybody up.
#[derive(Debug)]
pub struct Deltas {
    pieces: broadcast::Receiver<Bytes>,
    missed: u64,
}

impl Deltas {
    pub(super) fn new(pieces: broadcast::Receiver<Bytes>) -> Self {
        Self { pieces, missed: 0 }
    }

    /// The next piece; `None` once the process is no longer in the table or nobody holds its streams.
    pub async fn next(&mut self) -> Option<Bytes> {
        loop {
            match self.pieces.recv().await {
                Ok(piece) => return Some(piece),
                Err(broadcast::error::RecvError::Lagged(count)) => self.missed = self.missed.saturating_add(count),
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    }

    /// How many pieces were missed so far.
    #[must_use]
    pub fn missed(&self) -> u64 {
        self.missed
    }
}
