//! Reusable buffers for file contents: allocating fresh memory costs more than reading.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

/// Size of a buffer in bytes.
pub(super) const PIECE: usize = 128 << 10;
/// Number of free buffers that are retained; more than are in use at the default number of threads.
const POOL_LIMIT: usize = 16;

/// Free buffers.
#[derive(Clone, Debug, Default)]
pub(super) struct Pool(Arc<Mutex<Vec<Vec<u8>>>>);

impl Pool {
    /// An empty piece.
    pub(super) fn take(&self) -> Piece {
        let free = self.0.lock().pop();
        Piece { buffer: free.unwrap_or_else(|| vec![0; PIECE]), used: 0, pool: self.clone() }
    }
}

/// Bytes that are sent together. When it is dropped, its buffer returns to the pool.
#[derive(Debug)]
pub(super) struct Piece {
    buffer: Vec<u8>,
    used: usize,
    pool: Pool,
}

impl Piece {
    /// Unused part of the buffer. It contains old data; [`Piece::filled`] adds only the part that was written.
    pub(super) fn spare(&mut self) -> &mut [u8] {
        self.buffer.get_mut(self.used..).unwrap_or_default()
    }

    /// Marks `count` bytes of the unused part as written.
    pub(super) fn filled(&mut self, count: usize) {
        self.used = (self.used + count).min(self.buffer.len());
    }

    /// Appends as many of these bytes as fit, and returns their number.
    pub(super) fn add(&mut self, bytes: &[u8]) -> usize {
        let spare = self.spare();
        let fits = bytes.len().min(spare.len());
        spare[..fits].copy_from_slice(&bytes[..fits]);
        self.filled(fits);
        fits
    }

    pub(super) fn is_full(&self) -> bool {
        self.used == self.buffer.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.used == 0
    }
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        self.buffer.get(..self.used).unwrap_or_default()
    }
}

impl From<Piece> for Bytes {
    fn from(piece: Piece) -> Self {
        Self::from_owner(piece)
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        let mut free = self.pool.0.lock();
        if free.len() < POOL_LIMIT {
            free.push(std::mem::take(&mut self.buffer));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_reused_without_its_old_content() {
        let pool = Pool::default();
        let mut piece = pool.take();
        assert_eq!(piece.add(b"secret"), 6);
        let bytes = Bytes::from(piece);
        let slice = bytes.slice(1..3);
        drop(bytes);
        assert_eq!(pool.0.lock().len(), 0, "a slice still needs it");
        assert_eq!(&slice[..], b"ec");
        drop(slice);
        assert_eq!(pool.0.lock().len(), 1);
        let mut again = pool.take();
        assert!(again.is_empty() && Bytes::from_owner(again.as_ref().to_vec()).is_empty());
        assert_eq!(again.add(&vec![1; PIECE + 1]), PIECE);
        assert!(again.is_full() && again.add(b"x") == 0);
    }
}
