//! A stream that is watched to its end: it may not stall, and the audit hears how it ended, not how it began.

use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt, stream};
use sandbar_machine::{ByteStream, MachineError};
use serde_json::json;

use crate::{SandboxError, audit::Span};

/// A stream, the operation it is, and how far it is.
struct Watched {
    stream: ByteStream,
    span: Option<Span>,
    path: String,
    bytes: u64,
    idle: Duration,
}

/// The same stream; an error ends it when nothing comes for `idle`. Dropped before its end, the operation was cancelled.
pub(super) fn watched(stream: ByteStream, span: Span, path: String, idle: Duration) -> ByteStream {
    let watched = Watched { stream, span: Some(span), path, bytes: 0, idle };
    Box::pin(stream::unfold(watched, |mut watched| async move {
        let piece = watched.next().await?;
        Some((piece, watched))
    }))
}

impl Watched {
    async fn next(&mut self) -> Option<Result<Bytes, MachineError>> {
        // An error is the last thing that is said.
        self.span.as_ref()?;
        let next = match tokio::time::timeout(self.idle, self.stream.next()).await {
            Ok(next) => next,
            Err(_) => Some(Err(MachineError::transport("read", format!("nothing came for {:?}", self.idle)))),
        };
        match &next {
            Some(Ok(piece)) => self.bytes += piece.len() as u64,
            Some(Err(error)) => {
                let error = SandboxError::workspace_archive_read_error(&self.path, error.to_string());
                self.finish(&Err(error));
            }
            None => self.finish(&Ok(())),
        }
        next
    }

    fn finish(&mut self, end: &crate::Result<()>) {
        if let Some(span) = self.span.take() {
            span.finish(end, json!({"bytes": self.bytes}));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Op, audit::Audit};

    #[tokio::test(start_paused = true)]
    async fn a_stream_that_stalls_ends_with_an_error() {
        let stalls: ByteStream = Box::pin(stream::iter([Ok(Bytes::from("a"))]).chain(stream::pending()));
        let span = Audit::off().begin(Op::Read, json!({}));
        let mut stream = watched(stalls, span, "x".to_owned(), Duration::from_secs(5));
        assert_eq!(stream.next().await.unwrap().unwrap(), "a");
        assert_eq!(stream.next().await.unwrap().unwrap_err().code(), "transport");
        assert!(stream.next().await.is_none());
    }
}
