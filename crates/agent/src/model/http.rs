//! One request to a model's server, with the transport's retries, until an event stream begins.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use sandbar_http::{
    Client, HttpError, Patience, Phase, Redaction, Request, Response, Timeouts,
    header::{ACCEPT, CONTENT_TYPE, HeaderName, HeaderValue},
    origin,
};

use super::{
    endpoint::{Address, ModelEndpoint},
    retry::Attempts,
};
use crate::{ModelError, ModelRequest, ModelSettings};

const USUAL_TIMEOUT: Duration = Duration::from_mins(10);

/// A request and its attempts.
pub(super) struct Exchange {
    client: Client,
    address: Address,
    body: Bytes,
    redaction: Redaction,
    patience: Arc<dyn Patience>,
    timeouts: Timeouts,
    retries: Retries,
    stateful: bool,
    attempts: Attempts,
}

/// Whether the transport may retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Retries {
    Usual,
    Never,
}

impl Retries {
    /// The transport does not retry where its retries would multiply with the run's, or where a retry is risky.
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

/// A response with an event stream.
pub(super) struct Answer {
    response: Response,
    pub(super) request_id: Option<String>,
}

impl Exchange {
    pub(super) fn new(
        endpoint: &ModelEndpoint,
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
            attempts: Attempts::default(),
        };
        exchange.redaction = exchange.request().redaction();
        Ok(exchange)
    }

    /// The request of one attempt.
    fn request(&self) -> Request {
        let Address { url, headers, secrets } = &self.address;
        let request = Request::post(url).headers(headers).body(self.body.clone()).timeouts(self.timeouts);
        // The HTTP client must not retry: that decision depends on the model server's error codes.
        let request = request.retries(sandbar_http::Retries::none());
        secrets.iter().fold(request, |request, secret| request.secret(secret))
    }

    /// Number of failed requests.
    pub(super) fn failed(&self) -> u64 {
        self.attempts.failed().into()
    }

    /// Sends the request, with retries, until an event stream begins.
    pub(super) async fn open(&mut self) -> Result<Answer, ModelError> {
        loop {
            match self.attempt().await {
                Ok(answer) => return Ok(answer),
                Err(error) => self.wait_after(error).await?,
            }
        }
    }

    /// Retries after a response that was cut before it showed anything, or returns the error.
    pub(super) async fn reopen(&mut self, error: ModelError) -> Result<Answer, ModelError> {
        // The server accepted the request; if it keeps the conversation, it may have recorded the request.
        if self.stateful {
            return Err(error);
        }
        self.wait_after(error).await?;
        self.open().await
    }

    async fn wait_after(&mut self, error: ModelError) -> Result<(), ModelError> {
        let wait = match self.retries {
            Retries::Usual => self.attempts.again(&error, self.patience.chance()),
            Retries::Never => None,
        };
        let Some(wait) = wait else { return Err(error) };
        tracing::debug!(%error, wait_ms = wait.as_millis(), "retrying the request to the model's server");
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

    /// The next decompressed bytes of a response; `None` at its end.
    pub(super) async fn more(&self, answer: &mut Answer) -> Result<Option<Bytes>, ModelError> {
        answer.response.chunk().await.map_err(model_error)
    }

    /// Reads the rest of a response, so that the connection can be reused.
    pub(super) async fn leave(&self, answer: &mut Answer) {
        answer.response.finish().await;
    }

    pub(super) fn broken(&self, reason: &str) -> ModelError {
        ModelError::Network { host: origin(&self.address.url), reason: self.redaction.clean(reason) }
    }

    /// The error without secrets that the server may have echoed.
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

    /// The error for a response that is not an event stream.
    async fn complaint(&self, mut response: Response, request_id: Option<String>) -> ModelError {
        let complaint = response.complaint().await;
        let (code, message) = (complaint.code, complaint.message);
        if response.status().is_success() {
            let kind = self.redaction.clean(&header(&response, "content-type").unwrap_or_default());
            return if complaint.is_error {
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

/// Adds the caller's headers and query parameters; they override the default ones.
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

/// Whether the content type is an event stream or missing.
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
