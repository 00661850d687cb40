//! The delivery of an answer, with its fault.

use std::{
    collections::VecDeque,
    future::Future as _,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use serde_json::Value;
use tokio::time::Sleep;

use crate::{Fault, Malformed, refusal::Refusal, render::Rendered};

/// An answer and the way in which it is sent.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) before: Before,
    pub(crate) body: Playback,
}

/// Action before the first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Before {
    Nothing,
    Wait(Duration),
    Forever,
}

/// Action of a body.
#[derive(Debug)]
enum Piece {
    Send(Bytes),
    /// Flushes the bytes so far.
    Flush,
    Wait(Duration),
    Slow {
        bytes: Bytes,
        at_once: usize,
        every: Duration,
    },
    /// The connection is reset.
    Reset,
}

/// Wait before a reset, which would discard bytes that the client has not received yet.
const BEFORE_RESET: Duration = Duration::from_millis(20);
/// Number of pieces of a split stream that are separated by a pause; later pieces are only separate writes.
const PAUSED_PIECES: usize = 50;

const JSON: &str = "application/json";

impl Reply {
    pub(crate) fn json(status: u16, value: &Value) -> Self {
        Self::plain(status, JSON, Rendered::json(value).bytes)
    }

    pub(crate) fn refusal(refusal: &Refusal) -> Self {
        Self::json(refusal.status, &refusal.body())
    }

    fn plain(status: u16, kind: &str, bytes: Bytes) -> Self {
        let length = Some(bytes.len() as u64);
        let body = Playback { pieces: VecDeque::from([Piece::Send(bytes)]), length, timer: None };
        Self { status, headers: vec![("content-type".to_owned(), kind.to_owned())], before: Before::Nothing, body }
    }

    /// An answer after the effect of a fault.
    pub(crate) fn faulty(answer: Rendered, fault: &Fault) -> Self {
        match fault {
            Fault::Status { status, headers, body } => {
                let mut reply = match body {
                    Some(Value::String(text)) => Self::plain(*status, "text/plain", Bytes::from(text.clone())),
                    Some(value) => Self::json(*status, value),
                    None => Self::json(*status, &usual_error(*status)),
                };
                reply.headers.extend(headers.iter().cloned());
                reply
            }
            Fault::Delay(pause) => Self { before: Before::Wait(*pause), ..Self::whole(answer) },
            Fault::Hang => Self { before: Before::Forever, ..Self::whole(answer) },
            Fault::Slow { bytes, every } => {
                let pieces = [Piece::Slow { bytes: answer.bytes.clone(), at_once: (*bytes).max(1), every: *every }];
                Self::whole(answer).with_pieces(pieces)
            }
            Fault::CutAfterEvents(events) => {
                let most = answer.ends.len().saturating_sub(1);
                let end = (*events).min(most).checked_sub(1).and_then(|at| answer.ends.get(at)).copied().unwrap_or(0);
                Self::cut(answer, end)
            }
            Fault::CutAfterBytes(bytes) => {
                let end = (*bytes).min(answer.bytes.len().saturating_sub(1));
                Self::cut(answer, end)
            }
            Fault::Malformed(how) => Self::malformed(answer, *how),
            Fault::Empty => {
                let kind = if answer.is_stream() { EVENTS } else { JSON };
                Self::plain(200, kind, Bytes::new())
            }
            Fault::ContentType(kind) => {
                Self { headers: vec![("content-type".to_owned(), kind.clone())], ..Self::whole(answer) }
            }
            Fault::None | Fault::Failed { .. } | Fault::Incomplete { .. } | Fault::ErrorEvent { .. } => {
                Self::whole(answer)
            }
        }
    }

    /// An answer without a fault.
    pub(crate) fn whole(answer: Rendered) -> Self {
        let is_stream = answer.is_stream();
        let mut reply = Self::plain(200, if is_stream { EVENTS } else { JSON }, answer.bytes);
        if is_stream {
            // A real server does not know the length of a stream in advance.
            reply.body.length = None;
            reply.headers.push(("cache-control".to_owned(), "no-cache".to_owned()));
        }
        reply
    }

    fn with_pieces(mut self, pieces: impl IntoIterator<Item = Piece>) -> Self {
        self.body.pieces = pieces.into_iter().collect();
        self
    }

    fn cut(answer: Rendered, end: usize) -> Self {
        let sent = answer.bytes.slice(..end);
        Self::whole(answer).with_pieces([Piece::Send(sent), Piece::Wait(BEFORE_RESET), Piece::Reset])
    }

    fn malformed(answer: Rendered, how: Malformed) -> Self {
        if how == Malformed::Split {
            let pieces = split(&answer);
            return Self::whole(answer).with_pieces(pieces);
        }
        let bytes = Bytes::from(deform(&answer, how));
        let length = answer.ends.is_empty().then_some(bytes.len() as u64);
        let mut reply = Self::whole(answer).with_pieces([Piece::Send(bytes)]);
        reply.body.length = length;
        reply
    }
}

const EVENTS: &str = "text/event-stream; charset=utf-8";

fn usual_error(status: u16) -> Value {
    let (kind, message) = match status {
        401 => ("invalid_request_error", "Incorrect API key provided."),
        429 => ("rate_limit_exceeded", "Rate limit reached."),
        500.. => ("server_error", "The server had an error while processing your request."),
        _ => ("invalid_request_error", "The request was turned down."),
    };
    crate::refusal::envelope(message, kind, None, None)
}

/// Splits every event into two halves.
fn split(answer: &Rendered) -> Vec<Piece> {
    let ends = if answer.ends.is_empty() { &[answer.bytes.len()][..] } else { &answer.ends };
    let mut pieces = Vec::with_capacity(ends.len() * 4);
    let mut from = 0;
    for end in ends {
        let event = answer.bytes.slice(from..*end);
        // Inside a multi-byte character if there is one.
        let middle = event.iter().position(|byte| byte & 0xC0 == 0x80).unwrap_or(event.len() / 2);
        for half in [event.slice(..middle), event.slice(middle..)] {
            pieces.push(Piece::Send(half));
            pieces.push(if pieces.len() < 2 * PAUSED_PIECES {
                Piece::Wait(Duration::from_millis(1))
            } else {
                Piece::Flush
            });
        }
        from = *end;
    }
    pieces
}

/// The bytes of a stream with a defect. A JSON document counts as one event.
fn deform(answer: &Rendered, how: Malformed) -> Vec<u8> {
    let bytes = &answer.bytes[..];
    let first = answer.ends.first().copied().unwrap_or(0);
    let insert = |extra: &[u8]| [&bytes[..first], extra, &bytes[first..]].concat();
    match how {
        Malformed::GarbageLine => insert(b"?! this is not an event !?\n"),
        Malformed::InvalidJson => insert(b"event: response.output_text.delta\ndata: {\"type\": \"response.outp\n\n"),
        Malformed::InvalidUtf8 => insert(
            b"event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"delta\":\"\xff\xfe\"}\n\n",
        ),
        Malformed::OversizedLine(size) => {
            let mut line = b"event: response.padding\ndata: {\"type\":\"response.padding\",\"padding\":\"".to_vec();
            line.resize(line.len() + size, b'x');
            line.extend_from_slice(b"\"}\n\n");
            insert(&line)
        }
        Malformed::Crlf => {
            let mut out = Vec::with_capacity(bytes.len() + bytes.len() / 8);
            for byte in bytes {
                if *byte == b'\n' {
                    out.push(b'\r');
                }
                out.push(*byte);
            }
            out
        }
        Malformed::Comments => {
            let mut out = b": hello\n\n".to_vec();
            let mut from = 0;
            for end in &answer.ends {
                out.extend_from_slice(b":\n");
                out.extend_from_slice(&bytes[from..*end - 1]);
                out.extend_from_slice(b": keep-alive\n\n");
                from = *end;
            }
            out.extend_from_slice(&bytes[from..]);
            out
        }
        Malformed::NoFinalBlank => bytes.trim_ascii_end().to_vec(),
        Malformed::Split => bytes.to_vec(),
    }
}

/// A body that executes a list of actions.
#[derive(Debug)]
pub(crate) struct Playback {
    pieces: VecDeque<Piece>,
    length: Option<u64>,
    timer: Option<Pin<Box<Sleep>>>,
}

/// Ends the body and the connection.
#[derive(Debug, thiserror::Error)]
#[error("the script cuts the connection here")]
pub(crate) struct Cut;

impl Playback {
    /// Waits once; the first call starts the timer.
    fn wait(&mut self, pause: Duration, cx: &mut Context<'_>) -> Poll<()> {
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(pause)));
        let ready = timer.as_mut().poll(cx);
        if ready.is_ready() {
            self.timer = None;
        }
        ready
    }
}

impl Body for Playback {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        let this = self.get_mut();
        loop {
            match this.pieces.pop_front() {
                None => return Poll::Ready(None),
                Some(Piece::Send(bytes)) if bytes.is_empty() => {}
                Some(Piece::Send(bytes)) => return Poll::Ready(Some(Ok(Frame::data(bytes)))),
                Some(Piece::Reset) => return Poll::Ready(Some(Err(Cut))),
                Some(Piece::Flush) => {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Some(Piece::Wait(pause)) => {
                    if this.wait(pause, cx).is_pending() {
                        this.pieces.push_front(Piece::Wait(pause));
                        return Poll::Pending;
                    }
                }
                Some(Piece::Slow { mut bytes, at_once, every }) => {
                    if this.wait(every, cx).is_pending() {
                        this.pieces.push_front(Piece::Slow { bytes, at_once, every });
                        return Poll::Pending;
                    }
                    let now = bytes.split_to(at_once.min(bytes.len()));
                    if !bytes.is_empty() {
                        this.pieces.push_front(Piece::Slow { bytes, at_once, every });
                    }
                    return Poll::Ready(Some(Ok(Frame::data(now))));
                }
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        self.length.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
