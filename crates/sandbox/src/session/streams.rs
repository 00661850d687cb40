//! A byte stream with an idle timeout whose audit span ends when the stream ends.

use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt, stream};
use sandbar_machine::{ByteStream, MachineError};
use serde_json::json;

use crate::{Result, SandboxError, audit::Span};

/// A stream, the span of its operation, and the number of bytes so far.
struct AuditedStream {
    stream: ByteStream,
    span: Option<Span>,
    path: String,
    bytes: u64,
    idle: Duration,
}

/// Wraps a stream: it ends with an error if no data arrives for `idle`. If it is dropped before its end, the operation
/// is recorded as cancelled.
pub(super) fn audited(stream: ByteStream, span: Span, path: String, idle: Duration) -> ByteStream {
    let audited = AuditedStream { stream, span: Some(span), path, bytes: 0, idle };
    Box::pin(stream::unfold(audited, |mut audited| async move {
        let piece = audited.next().await?;
        Some((piece, audited))
    }))
}

/// As [`audited`], for a stream that may not have opened; the operation has then ended.
pub(super) fn audited_if_open(
    opened: Result<ByteStream>,
    span: Span,
    path: String,
    idle: Duration,
) -> Result<ByteStream> {
    match opened {
        Ok(stream) => Ok(audited(stream, span, path, idle)),
        failed => {
            span.finish(&failed, json!({}));
            failed
        }
    }
}

impl AuditedStream {
    async fn next(&mut self) -> Option<Result<Bytes, MachineError>> {
        // After an error the stream has ended.
        self.span.as_ref()?;
        let next = match tokio::time::timeout(self.idle, self.stream.next()).await {
            Ok(next) => next,
            Err(_) => Some(Err(MachineError::transport("read", format!("no data arrived for {:?}", self.idle)))),
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

    fn finish(&mut self, end: &Result<()>) {
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
        let mut stream = audited(stalls, span, "x".to_owned(), Duration::from_secs(5));
        assert_eq!(stream.next().await.unwrap().unwrap(), "a");
        assert_eq!(stream.next().await.unwrap().unwrap_err().code(), "transport");
        assert!(stream.next().await.is_none());
    }
}
