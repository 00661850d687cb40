//! The bytes of one file on their way into another, with holes where there are only zeros.

use std::{
    fs::File,
    io::{self, Read},
    os::unix::fs::FileExt,
    sync::atomic::{AtomicBool, Ordering},
};

use sha2::{Digest, Sha256};

use crate::runs::index::Sum;

/// So many zeros become a hole.
const HOLE: usize = 64 << 10;

/// Copies as much as there was when it was opened, whatever is added meanwhile; its digest and its size, or nothing when somebody ended it.
pub(in crate::runs) fn copy(
    (source, size): (&File, u64),
    target: &File,
    buffer: &mut [u8],
    cancelled: &AtomicBool,
) -> io::Result<Option<(Sum, u64)>> {
    let mut source = source.take(size);
    let mut digest = Sha256::new();
    let (mut at, mut end) = (0_u64, 0_u64);
    loop {
        if cancelled.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let length = match source.read(buffer) {
            Ok(0) => break,
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        digest.update(&buffer[..length]);
        for piece in buffer[..length].chunks(HOLE) {
            if piece.len() < HOLE || piece.iter().any(|byte| *byte != 0) {
                target.write_all_at(piece, at)?;
                end = at + piece.len() as u64;
            }
            at += piece.len() as u64;
        }
    }
    if end < at {
        target.set_len(at)?;
    }
    Ok(Some((Sum(digest.finalize().into()), at)))
}
