//! One request to a model's server: sent, and sent again as the transport's rule says, until there is an event stream.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use sandbar_http::{
    Client, HttpError, Patience, Phase, Redaction, Request, Response, Timeouts,
    header::{ACCEPT, CONTENT_TYPE, HeaderName, HeaderValue},
    origin,
};

use super::{
    endpoint::{Address, Endpoint},
    retry::Tries,
};
use crate::{ModelError, ModelRequest, ModelSettings};

const USUAL_TIMEOUT: Duration = Duration::from_mins(10);

/// A request, and what was tried so far to have it answered.
pub(super) struct Exchange {
    client: Client,
    address: Address,
    body: Bytes,
    redaction: Redaction,
    patience: Arc<dyn Patience>,
    timeouts: Timeouts,
    retries: Retries,
    stateful: bool,
    tries: Tries,
}

/// Whether the transport may ask again by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Retries {
    Usual,
    Never,
}

impl Retries {
    /// The run's own attempts replace the transport's where both would multiply, or where asking twice is risky.
    fn of(request: &ModelRequest) -> Self {
        let policy = request.settings.retry.as_ref();
        let refused = policy.is_some_and(|policy| policy.max_retries == 0);
        if request.attempt > 0 || refused || (policy.is_some() && request.is_stateful()) {
            Self::Never
        } else {
            Self::Usual
        }
    }
}

/// An answer that has begun.
pub(super) struct Answer {
    response: Response,
    pub(super) request_id: Option<String>,
}

impl Exchange {
    pub(super) fn new(
        endpoint: &Endpoint,
        path: &str,
        request: &ModelRequest,
        body: Vec<u8>,
    ) -> Result<Self, ModelError> {
        let mut address = endpoint.resolve(path)?;
        let settings = &request.settings;
        address.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        address.headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        add_extras(&mut address, settings)?;
        let limit = settings.timeout.unwrap_or(USUAL_TIMEOUT);
        let mut exchange = Self {
            client: endpoint.client().clone(),
            address,
            body: body.into(),
            redaction: Redaction::default(),
            patience: Arc::clone(endpoint.waits()),
            timeouts: Timeouts { head: limit, idle: endpoint.idle(), total: Some(limit) },
            retries: Retries::of(request),
            stateful: request.is_stateful(),
            tries: Tries::default(),
        };
        exchange.redaction = exchange.request().redaction();
        Ok(exchange)
    }

    /// What one attempt sends.
    fn request(&self) -> Request {
        let Address { url, headers, secrets } = &self.address;
        let request = Request::post(url).headers(headers).body(self.body.clone()).timeouts(self.timeouts);
        // Attempts are counted here: whether another one makes sense depends on what the model's server says.
        let request = request.retries(sandbar_http::Retries::none());
        secrets.iter().fold(request, |request, secret| request.secret(secret))
    }

    /// How many requests failed.
    pub(super) fn failed(&self) -> u64 {
        self.tries.failed().into()
    }

    /// Sends it until an answer begins, or nothing speaks for another attempt.
    pub(super) async fn open(&mut self) -> Result<Answer, ModelError> {
        loop {
            match self.attempt().await {
                Ok(answer) => return Ok(answer),
                Err(error) => self.wait_after(error).await?,
            }
        }
    }

    /// After an answer was cut before it said anything: waits for another attempt, or gives the error back.
    pub(super) async fn reopen(&mut self, error: ModelError) -> Result<Answer, ModelError> {
        // The server had taken the request; if it keeps the conversation, the request may be part of it by now.
        if self.stateful {
            return Err(error);
        }
        self.wait_after(error).await?;
        self.open().await
    }

    async fn wait_after(&mut self, error: ModelError) -> Result<(), ModelError> {
        let wait = match self.retries {
            Retries::Usual => self.tries.again(&error, self.patience.chance()),
            Retries::Never => None,
        };
        let Some(wait) = wait else { return Err(error) };
        tracing::debug!(%error, wait_ms = wait.as_millis(), "the model's server is asked again");
        self.patience.wait(wait).await;
        Ok(())
    }

    async fn attempt(&self) -> Result<Answer, ModelError> {
        let response = self.client.send(self.request()).await.map_err(model_error)?;
        let request_id = header(&response, "x-request-id");
        if response.status().is_success() && speaks_events(&response) {
            return Ok(Answer { response, request_id });
        }
        Err(self.complaint(response, request_id).await)
    }

    /// The next bytes of an answer, decompressed; `None` at its end.
    pub(super) async fn more(&self, answer: &mut Answer) -> Result<Option<Bytes>, ModelError> {
        answer.response.chunk().await.map_err(model_error)
    }

    /// Waits for the little that may follow an answer, so that the connection can carry the next request.
    pub(super) async fn leave(&self, answer: &mut Answer) {
        answer.response.finish().await;
    }

    pub(super) fn broken(&self, reason: &str) -> ModelError {
        ModelError::Network { host: origin(&self.address.url), reason: self.redaction.clean(reason) }
    }

    /// The same error without anything secret that the server may have repeated.
    pub(super) fn cleaned(&self, error: ModelError) -> ModelError {
        match error {
            ModelError::Failed { code, message } => ModelError::Failed {
                code: code.map(|code| self.redaction.clean(&code)),
                message: self.redaction.clean(&message),
            },
            ModelError::Malformed(reason) => ModelError::Malformed(self.redaction.clean(&reason)),
            other => other,
        }
    }

    /// What an answer that is no event stream says.
    async fn complaint(&self, mut response: Response, request_id: Option<String>) -> ModelError {
        let told = response.complaint().await;
        let (code, message) = (told.code, told.message);
        if response.status().is_success() {
            let kind = self.redaction.clean(&header(&response, "content-type").unwrap_or_default());
            return if told.is_error {
                ModelError::Failed { code, message }
            } else {
                ModelError::Malformed(format!("expected an event stream, got {kind}; is the server's address right?"))
            };
        }
        ModelError::Status {
            status: response.status().as_u16(),
            code,
            message,
            request_id,
            retry_after: response.retry_after(),
            should_retry: header(&response, "x-should-retry").and_then(|says| says.parse().ok()),
        }
    }
}

fn model_error(error: HttpError) -> ModelError {
    match error {
        HttpError::Timeout { server, phase: Phase::Connect, limit } => {
            ModelError::Network { host: server, reason: format!("no connection within {} s", limit.as_secs_f64()) }
        }
        HttpError::Timeout { limit, .. } => ModelError::Timeout(limit),
        HttpError::Connect { server, reason } | HttpError::Broken { server, reason } => {
            ModelError::Network { host: server, reason }
        }
        HttpError::Malformed { reason, .. } => ModelError::Malformed(reason),
        other => ModelError::Unusable(other.to_string()),
    }
}

/// Headers and query parameters that the caller adds; they win over ours.
fn add_extras(address: &mut Address, settings: &ModelSettings) -> Result<(), ModelError> {
    for (name, value) in settings.extra_headers.iter() {
        let pair = (HeaderName::try_from(name), HeaderValue::try_from(value));
        let (Ok(name), Ok(mut value)) = pair else {
            return Err(ModelError::Unusable(format!("no request can carry the extra header {name:?}")));
        };
        value.set_sensitive(true);
        address.headers.insert(name, value);
    }
    if !settings.extra_query.is_empty() {
        address.url.query_pairs_mut().extend_pairs(settings.extra_query.iter());
        address.secrets.extend(settings.extra_query.values().cloned());
    }
    Ok(())
}

fn header(response: &Response, name: &str) -> Option<String> {
    Some(response.header(name)?.chars().take(200).collect())
}

/// A server may leave out what it sends, but must not say that it is something else.
fn speaks_events(response: &Response) -> bool {
    response.header("content-type").is_none_or(|kind| kind.trim_start().starts_with("text/event-stream"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Retry;

    #[test]
    fn the_transport_leaves_it_to_the_run_where_both_would_ask_again() {
        let policy = |max_retries| Some(Retry { max_retries, ..Retry::default() });
        for (attempt, retry, conversation, expected) in [
            (0, None, None, Retries::Usual),
            (0, policy(2), None, Retries::Usual),
            (1, policy(2), None, Retries::Never),
            (0, policy(0), None, Retries::Never),
            (0, None, Some("conv"), Retries::Usual),
            (0, policy(2), Some("conv"), Retries::Never),
        ] {
            let request = ModelRequest {
                settings: ModelSettings { retry: retry.clone(), ..ModelSettings::default() },
                conversation_id: conversation.map(str::to_owned),
                attempt,
                ..ModelRequest::default()
            };
            assert_eq!(Retries::of(&request), expected, "{attempt} {retry:?} {conversation:?}");
        }
    }
}
