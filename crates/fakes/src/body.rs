//! Bodies of requests and responses: whole, streamed, slow or cut.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures::{Stream, StreamExt as _, stream};
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};

use crate::log::Recorder;

/// Any error, as a source.
pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The body of a response.
pub(crate) type Body = UnsyncBoxBody<Bytes, BoxError>;

/// Wait before a reset, which would discard bytes that the client has not received yet.
const BEFORE_RESET: Duration = Duration::from_millis(20);

/// Ends a connection by an armed fault.
#[derive(Debug, thiserror::Error)]
#[error("a fault cuts the connection here")]
pub(crate) struct Cut;

/// A body of exactly these bytes.
pub(crate) fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// A streamed body; an error in the stream resets the connection.
pub(crate) fn streamed(bytes: impl Stream<Item = Result<Bytes, BoxError>> + Send + 'static) -> Body {
    StreamBody::new(bytes.map(|piece| piece.map(Frame::data))).boxed_unsync()
}

/// The same body, cut by a reset of the connection after this many bytes.
pub(crate) fn cut_after(body: Body, bytes: usize) -> Body {
    let state = (body.into_data_stream(), Some(bytes));
    streamed(stream::unfold(state, |(mut source, left)| async move {
        let left = left?;
        if left > 0
            && let Some(piece) = source.next().await
        {
            let Ok(piece) = piece else { return Some((piece, (source, None))) };
            let piece = piece.slice(..piece.len().min(left));
            let left = left - piece.len();
            return Some((Ok(piece), (source, Some(left))));
        }
        tokio::time::sleep(BEFORE_RESET).await;
        Some((Err(Cut.into()), (source, None)))
    }))
}

/// The same body, in pieces of this many bytes.
pub(crate) fn slowly(body: Body, at_once: usize, every: Duration) -> Body {
    let state = (body.into_data_stream(), Bytes::new());
    streamed(stream::unfold(state, move |(mut source, mut rest)| async move {
        while rest.is_empty() {
            match source.next().await? {
                Ok(piece) => rest = piece,
                Err(error) => return Some((Err(error), (source, rest))),
            }
        }
        tokio::time::sleep(every).await;
        let now = rest.split_to(at_once.clamp(1, rest.len()));
        Some((Ok(now), (source, rest)))
    }))
}

/// Limit for reading the rest of a body after an early response, in bytes; the same as in Go's HTTP server.
const LATE_BODY_LIMIT: usize = 256 * 1024;

/// A request's body; the bytes that are read are recorded in the log.
///
/// A response that comes before the end of the body must not close the connection: the client would fail while it
/// writes, and never see the response. When this value is dropped, a task therefore reads the rest.
#[derive(Debug)]
pub(crate) struct RequestBody {
    body: Option<Incoming>,
    recorder: Recorder,
}

impl RequestBody {
    pub(crate) fn new(body: Incoming, recorder: Recorder) -> Self {
        Self { body: Some(body), recorder }
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        let Some(mut body) = self.body.take().filter(|body| !body.is_end_stream()) else { return };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        runtime.spawn(async move {
            let mut left = LATE_BODY_LIMIT;
            while let Some(Ok(frame)) = body.frame().await {
                let length = frame.data_ref().map_or(0, Bytes::len);
                let Some(rest) = left.checked_sub(length) else { return };
                left = rest;
            }
        });
    }
}

impl HttpBody for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = self.get_mut();
        let Some(body) = &mut this.body else { return Poll::Ready(None) };
        let polled = Pin::new(body).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(bytes) = frame.data_ref()
        {
            this.recorder.add(bytes);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map(HttpBody::size_hint).unwrap_or_default()
    }
}
