//! Streams one reply: decodes bytes to events, parses them, and retries only while nothing was shown.

use std::collections::VecDeque;

use futures::{StreamExt, stream};

use super::{
    http::{Answer, Exchange},
    sse::{SseDecoder, SseEvent},
};
use crate::{ModelError, ModelEvent, ModelStream};

/// Parser of the events of one reply, in one API dialect.
pub(super) trait ReplyParser: Send + 'static {
    /// Parses one event and appends the results. Nothing more is read after a [`ModelEvent::Done`].
    fn parse(&mut self, event: SseEvent<'_>, events: &mut VecDeque<ModelEvent>) -> Result<(), ModelError>;

    /// The reply ended, regularly or because the connection failed. Returns whether it is complete.
    fn end(&mut self, events: &mut VecDeque<ModelEvent>) -> Result<Completion, ModelError>;
}

/// Whether a reply that ended is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Completion {
    Complete,
    Incomplete,
}

/// Largest reply, in bytes of the events that contain it.
const MAX_REPLY_BYTES: usize = 64 << 20;

/// Size of a reply so far, in bytes of its events.
#[derive(Default)]
pub(super) struct ReplySize(usize);

impl ReplySize {
    /// Adds an event. Fails if the reply is too large.
    pub(super) fn add(&mut self, bytes: usize) -> Result<(), ModelError> {
        self.0 = self.0.saturating_add(bytes);
        if self.0 > MAX_REPLY_BYTES {
            return Err(ModelError::Malformed(format!("its answer is larger than {MAX_REPLY_BYTES} bytes")));
        }
        Ok(())
    }
}

/// Sends the request and streams the reply. `new_parser` makes a parser for each attempt.
pub(super) async fn ask<R: ReplyParser>(
    mut exchange: Exchange,
    new_parser: impl Fn() -> R + Send + 'static,
) -> Result<ModelStream, ModelError> {
    let answer = exchange.open().await?;
    let reply = ReplyStream {
        exchange,
        parser: new_parser(),
        new_parser,
        answer,
        decoder: SseDecoder::new(),
        events: VecDeque::new(),
        failure: None,
        shown: false,
        over: false,
    };
    let events = stream::unfold(Box::new(reply), |mut reply| async move {
        let event = reply.next().await?;
        Some((event, reply))
    });
    Ok(events.boxed())
}

struct ReplyStream<R, F> {
    exchange: Exchange,
    new_parser: F,
    parser: R,
    answer: Answer,
    decoder: SseDecoder,
    /// Events that were parsed and not returned yet.
    events: VecDeque<ModelEvent>,
    /// Failure that is returned after `events`.
    failure: Option<ModelError>,
    /// Whether part of the reply was returned.
    shown: bool,
    over: bool,
}

impl<R: ReplyParser, F: Fn() -> R> ReplyStream<R, F> {
    async fn next(&mut self) -> Option<Result<ModelEvent, ModelError>> {
        loop {
            if self.over {
                return None;
            }
            if let Some(event) = self.events.pop_front() {
                return Some(Ok(self.given(event).await));
            }
            if let Some(failure) = self.failure.take() {
                if let Err(error) = self.recover(failure).await {
                    self.over = true;
                    return Some(Err(error));
                }
            } else if let Err(error) = self.step().await {
                self.failure = Some(error);
            }
        }
    }

    async fn given(&mut self, event: ModelEvent) -> ModelEvent {
        match event {
            ModelEvent::Raw(raw) => {
                self.shown |= !raw.is_preamble();
                ModelEvent::Raw(raw)
            }
            ModelEvent::Done(mut reply) => {
                self.over = true;
                self.exchange.leave(&mut self.answer).await;
                reply.request_id = self.answer.request_id.take();
                reply.usage.requests = self.exchange.failed() + 1;
                ModelEvent::Done(reply)
            }
        }
    }

    /// Parses one more event, or reads more bytes.
    async fn step(&mut self) -> Result<(), ModelError> {
        if let Some(event) = self.decoder.next_event()? {
            return self.parser.parse(event, &mut self.events);
        }
        match self.exchange.more(&mut self.answer).await {
            Ok(Some(bytes)) => {
                self.decoder.push(&bytes);
                Ok(())
            }
            Ok(None) => {
                // Some servers do not close their last event. If it is cut, it is malformed; the missing end is reported
                // below.
                let last = self.decoder.finish().ok().flatten();
                let parsed = last.map_or(Ok(()), |event| self.parser.parse(event, &mut self.events));
                if let Err(error) = parsed
                    && !matches!(error, ModelError::Malformed(_))
                {
                    return Err(error);
                }
                self.ended(self.exchange.broken("the answer ended before it was complete"))
            }
            Err(error) => self.ended(error),
        }
    }

    fn ended(&mut self, error: ModelError) -> Result<(), ModelError> {
        let is_done = |event: &ModelEvent| matches!(event, ModelEvent::Done(_));
        if self.events.iter().any(is_done) || self.parser.end(&mut self.events)? == Completion::Complete {
            return Ok(());
        }
        Err(error)
    }

    /// Retries if nothing was shown yet and the transport's rule allows it.
    async fn recover(&mut self, failure: ModelError) -> Result<(), ModelError> {
        let failure = self.exchange.cleaned(failure);
        if self.shown {
            return Err(if failure.retryable() {
                ModelError::AfterOutput { cause: Box::new(failure) }
            } else {
                failure
            });
        }
        self.answer = self.exchange.reopen(failure).await?;
        self.parser = (self.new_parser)();
        self.decoder = SseDecoder::new();
        Ok(())
    }
}
