//! The buffers that files are read into and leave from, used again and again: fresh memory costs more than the reading.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

/// How long each is.
pub(super) const PIECE: usize = 128 << 10;
/// How many wait to be used again; more than are ever under way at the usual number of threads.
const KEPT: usize = 16;

/// Buffers that nobody uses at the moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Pool(Arc<Mutex<Vec<Vec<u8>>>>);

impl Pool {
    /// An empty piece.
    pub(super) fn take(&self) -> Piece {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        Piece { room: kept.unwrap_or_else(|| vec![0; PIECE]), used: 0, home: self.clone() }
    }
}

/// Bytes that leave together. Its room goes back to where it came from when nobody needs it any more.
#[derive(Debug)]
pub(super) struct Piece {
    room: Vec<u8>,
    used: usize,
    home: Pool,
}

impl Piece {
    /// What may still be filled. What was there before shows; count only what was written with [`Piece::filled`].
    pub(super) fn spare(&mut self) -> &mut [u8] {
        self.room.get_mut(self.used..).unwrap_or_default()
    }

    /// This much of the spare room was filled.
    pub(super) fn filled(&mut self, count: usize) {
        self.used = (self.used + count).min(self.room.len());
    }

    /// Takes what fits of these bytes, and says how much that was.
    pub(super) fn add(&mut self, bytes: &[u8]) -> usize {
        let spare = self.spare();
        let fits = bytes.len().min(spare.len());
        spare[..fits].copy_from_slice(&bytes[..fits]);
        self.filled(fits);
        fits
    }

    pub(super) fn is_full(&self) -> bool {
        self.used == self.room.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.used == 0
    }
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        self.room.get(..self.used).unwrap_or_default()
    }
}

impl From<Piece> for Bytes {
    fn from(piece: Piece) -> Self {
        Self::from_owner(piece)
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        let mut kept = self.home.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() < KEPT {
            kept.push(std::mem::take(&mut self.room));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_used_again_and_shows_nothing_of_before() {
        let pool = Pool::default();
        let mut piece = pool.take();
        assert_eq!(piece.add(b"secret"), 6);
        let bytes = Bytes::from(piece);
        let slice = bytes.slice(1..3);
        drop(bytes);
        assert_eq!(pool.0.lock().unwrap().len(), 0, "a slice still needs it");
        assert_eq!(&slice[..], b"ec");
        drop(slice);
        assert_eq!(pool.0.lock().unwrap().len(), 1);
        let mut again = pool.take();
        assert!(again.is_empty() && Bytes::from_owner(again.as_ref().to_vec()).is_empty());
        assert_eq!(again.add(&vec![1; PIECE + 1]), PIECE);
        assert!(again.is_full() && again.add(b"x") == 0);
    }
}
