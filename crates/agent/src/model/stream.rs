//! The driver of an answer: bytes to events to what they mean, asking again only while nothing was shown.

use std::collections::VecDeque;

use futures::{StreamExt, stream};

use super::{
    http::{Answer, Exchange},
    sse::{SseDecoder, SseEvent},
};
use crate::{ModelError, ModelEvent, ModelStream};

/// What the events of one answer mean, in one dialect.
pub(super) trait Reading: Send + 'static {
    /// Takes one event and says what it means. After a [`ModelEvent::Done`] nothing more is read.
    fn take(&mut self, event: SseEvent<'_>, said: &mut VecDeque<ModelEvent>) -> Result<(), ModelError>;

    /// The answer ends here, by itself or because the connection failed. Whether it was whole.
    fn end(&mut self, said: &mut VecDeque<ModelEvent>) -> Result<Whole, ModelError>;
}

/// Whether an answer that ended had said all it had to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whole {
    Yes,
    No,
}

/// Asks, and gives what is answered as a stream. `fresh` makes a reading for each attempt.
pub(super) async fn ask<R: Reading>(
    mut exchange: Exchange,
    fresh: impl Fn() -> R + Send + 'static,
) -> Result<ModelStream, ModelError> {
    let answer = exchange.open().await?;
    let driver = Driver {
        exchange,
        reading: fresh(),
        fresh,
        answer,
        decoder: SseDecoder::new(),
        said: VecDeque::new(),
        failure: None,
        shown: false,
        over: false,
    };
    let events = stream::unfold(Box::new(driver), |mut driver| async move {
        let event = driver.next().await?;
        Some((event, driver))
    });
    Ok(events.boxed())
}

struct Driver<R, F> {
    exchange: Exchange,
    fresh: F,
    reading: R,
    answer: Answer,
    decoder: SseDecoder,
    /// What was understood and not yet given out.
    said: VecDeque<ModelEvent>,
    /// What happened after that.
    failure: Option<ModelError>,
    /// Whether part of the answer was given out.
    shown: bool,
    over: bool,
}

impl<R: Reading, F: Fn() -> R> Driver<R, F> {
    async fn next(&mut self) -> Option<Result<ModelEvent, ModelError>> {
        loop {
            if self.over {
                return None;
            }
            if let Some(event) = self.said.pop_front() {
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

    /// Understands one more event, or reads more bytes.
    async fn step(&mut self) -> Result<(), ModelError> {
        if let Some(event) = self.decoder.next_event()? {
            return self.reading.take(event, &mut self.said);
        }
        match self.exchange.more(&mut self.answer).await {
            Ok(Some(bytes)) => {
                self.decoder.push(&bytes);
                Ok(())
            }
            Ok(None) => {
                // Some servers do not close their last event. One that is cut cannot be understood, which is no news.
                let last = self.decoder.finish().ok().flatten();
                let taken = last.map_or(Ok(()), |event| self.reading.take(event, &mut self.said));
                if let Err(error) = taken
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
        if self.said.iter().any(is_done) || self.reading.end(&mut self.said)? == Whole::Yes {
            return Ok(());
        }
        Err(error)
    }

    /// Asks again if nothing was shown yet and the transport's rule allows it.
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
        self.reading = (self.fresh)();
        self.decoder = SseDecoder::new();
        Ok(())
    }
}
