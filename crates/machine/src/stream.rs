//! Bytes on their way to or from a machine.

use std::pin::Pin;

use bytes::{Bytes, BytesMut};
use futures::{Stream, StreamExt, stream};

use crate::{MachineError, Result};

/// Bytes in order, in pieces of any size, with the error that ended them early.
pub type ByteStream = Pin<Box<dyn Stream<Item = Result<Bytes>> + Send>>;

/// A stream of exactly these bytes.
pub fn once(bytes: impl Into<Bytes>) -> ByteStream {
    Box::pin(stream::iter([Ok(bytes.into())]))
}

/// All of a stream's bytes, if they are no more than `limit`.
///
/// # Errors
/// The stream's own, or [`MachineError::Exhausted`] past the limit.
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
