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

/// The same body, cut by a reset of the connection after so many bytes.
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

/// The same body, so many bytes at a time.
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

/// A request's body; the bytes that are read are recorded in the log.
#[derive(Debug)]
pub(crate) struct RequestBody {
    pub(crate) body: Incoming,
    pub(crate) recorder: Recorder,
}

impl HttpBody for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.body).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(bytes) = frame.data_ref()
        {
            this.recorder.add(bytes);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
