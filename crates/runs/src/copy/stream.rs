//! Copies the bytes of one file to another, with holes for zeros.

use std::{
    fs::File,
    io::{self, Read},
    os::unix::fs::FileExt,
};

use sha2::{Digest as _, Sha256};
use tokio_util::sync::CancellationToken;

use crate::index::Digest;

/// Size of a run of zeros that becomes a hole.
const HOLE: usize = 64 << 10;

/// Copies `size` bytes, even if the source grows. Returns digest and size, or `None` if cancelled.
pub(crate) fn copy(
    (source, size): (&File, u64),
    target: &File,
    buffer: &mut [u8],
    cancel: &CancellationToken,
) -> io::Result<Option<(Digest, u64)>> {
    let mut source = source.take(size);
    let mut digest = Sha256::new();
    let (mut at, mut end) = (0_u64, 0_u64);
    loop {
        if cancel.is_cancelled() {
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
    Ok(Some((Digest(digest.finalize().into()), at)))
}
