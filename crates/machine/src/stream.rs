//! Streams of bytes to and from a machine.

use std::pin::Pin;

use bytes::{Bytes, BytesMut};
use futures::{Stream, StreamExt, stream};

use crate::{MachineError, Result};

/// Bytes in order, in pieces of any size. An `Err` is the last item: the bytes are incomplete.
pub type ByteStream = Pin<Box<dyn Stream<Item = Result<Bytes>> + Send>>;

/// A stream of exactly these bytes.
pub fn once(bytes: impl Into<Bytes>) -> ByteStream {
    Box::pin(stream::iter([Ok(bytes.into())]))
}

/// Reads a stream to its end, at most `limit` bytes.
///
/// # Errors
/// Those of the stream; [`MachineError::Exhausted`] if it has more than `limit` bytes.
pub async fn collect(mut stream: ByteStream, limit: usize) -> Result<Bytes> {
    let mut all = BytesMut::new();
    while let Some(piece) = stream.next().await {
        let piece = piece?;
        if all.len() + piece.len() > limit {
            return Err(MachineError::Exhausted {
                what: "the buffer".to_owned(),
                reason: format!("more than {limit} bytes arrived"),
            });
        }
        all.extend_from_slice(&piece);
    }
    Ok(all.freeze())
}
