//! One request to a model's server: sent, and sent again as the transport's rule says, until there is an event stream.

mod coding;
mod failure;

use std::{
    collections::BTreeMap,
    sync::{Arc, LazyLock},
    time::Duration,
};

use bytes::Bytes;
use reqwest::{
    Client, Response, Version,
    header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, HeaderName, HeaderValue},
    redirect::Policy,
};
use rustls::{ClientConfig, RootCertStore, crypto::ring};
use rustls_platform_verifier::BuilderVerifierExt;
use tokio::time::Instant;

pub(super) use self::failure::error_parts;
use self::{
    coding::{ACCEPTED, Body},
    failure::Redaction,
};
use super::{
    endpoint::{Address, Endpoint, origin},
    patience::Patience,
    retry::Tries,
};
use crate::{ModelError, ModelRequest, ModelSettings};

const CONNECT: Duration = Duration::from_secs(5);
const USUAL_TIMEOUT: Duration = Duration::from_mins(10);
/// No clock can add up everything that a duration can say.
const LONGEST: Duration = Duration::from_hours(24);
/// How long the end of an answer may lag behind its last event.
const LINGER: Duration = Duration::from_millis(20);
/// How much is read of what a server says about an error.
const LONGEST_COMPLAINT: usize = 64 << 10;

/// Reading the certificates takes milliseconds, so it is done once.
static TRUSTING_THIS_HOST: LazyLock<Result<ClientConfig, String>> = LazyLock::new(|| {
    let mut config = tls()?.with_platform_verifier().map_err(|error| error.to_string())?.with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
});

/// With an explicit provider of cryptography: a process-wide one may be missing, and asking for it then would panic.
fn tls() -> Result<rustls::ConfigBuilder<ClientConfig, rustls::WantsVerifier>, String> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    builder.with_safe_default_protocol_versions().map_err(|error| error.to_string())
}

/// A client that takes nothing from the environment, and never carries a key to where a server points.
pub(super) fn client(scheme: &str) -> Result<Client, String> {
    let tls = if scheme == "https" {
        TRUSTING_THIS_HOST.clone()?
    } else {
        tls()?.with_root_certificates(RootCertStore::empty()).with_no_client_auth()
    };
    Client::builder()
        .tls_backend_preconfigured(tls)
        .no_proxy()
        .redirect(Policy::none())
        .referer(false)
        .connect_timeout(CONNECT)
        .user_agent(concat!("sandbar/", env!("CARGO_PKG_VERSION")))
        .build()
        .map_err(|error| error.without_url().to_string())
}

/// A request, and what was tried so far to have it answered.
pub(super) struct Exchange {
    client: Client,
    address: Address,
    body: Bytes,
    redaction: Redaction,
    patience: Arc<dyn Patience>,
    limit: Duration,
    idle: Duration,
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
    body: Body,
    deadline: Instant,
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
        let mut secrets = std::mem::take(&mut address.secrets);
        let settings = &request.settings;
        secrets.extend(settings.extra_headers.values().chain(settings.extra_query.values()).cloned());
        address.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        address.headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        address.headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(ACCEPTED));
        add_extras(&mut address, settings)?;
        Ok(Self {
            client: endpoint.client()?,
            address,
            body: body.into(),
            redaction: Redaction::new(secrets),
            patience: Arc::clone(endpoint.waits()),
            limit: settings.timeout.unwrap_or(USUAL_TIMEOUT).min(LONGEST),
            idle: endpoint.idle().min(LONGEST),
            retries: Retries::of(request),
            stateful: request.is_stateful(),
            tries: Tries::default(),
        })
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
        let deadline = Instant::now() + self.limit;
        let request = self.client.post(self.address.url.clone()).headers(self.address.headers.clone());
        let sent = tokio::time::timeout_at(deadline, request.body(self.body.clone()).send()).await;
        let response = match sent {
            Err(_late) => return Err(ModelError::Timeout(self.limit)),
            Ok(sent) => sent.map_err(|error| self.lost(error))?,
        };
        let request_id = header(&response, "x-request-id");
        if response.status().is_success() && speaks_events(&response) {
            let body = Body::new(response.headers()).map_err(|error| self.cleaned(error))?;
            return Ok(Answer { response, body, deadline, request_id });
        }
        Err(self.complaint(response, deadline, request_id).await)
    }

    /// The next bytes of an answer, decompressed; `None` at its end.
    pub(super) async fn more(&self, answer: &mut Answer) -> Result<Option<Bytes>, ModelError> {
        loop {
            if let Some(plain) = answer.body.next()? {
                return Ok(Some(plain));
            }
            let Some(piece) = self.receive(answer).await? else { return Ok(None) };
            answer.body.push(piece);
        }
    }

    /// The next bytes of an answer as they come.
    async fn receive(&self, answer: &mut Answer) -> Result<Option<Bytes>, ModelError> {
        let idle = Instant::now() + self.idle;
        let (until, limit) = if answer.deadline < idle { (answer.deadline, self.limit) } else { (idle, self.idle) };
        match tokio::time::timeout_at(until, answer.response.chunk()).await {
            Err(_late) => Err(ModelError::Timeout(limit)),
            Ok(chunk) => chunk.map_err(|error| self.lost(error)),
        }
    }

    /// Waits for the little that may follow an answer, so that the connection can carry the next request.
    pub(super) async fn leave(&self, answer: &mut Answer) {
        if answer.response.version() >= Version::HTTP_2 {
            return;
        }
        let until = Instant::now() + LINGER;
        while let Ok(Ok(Some(_trailing))) = tokio::time::timeout_at(until, answer.response.chunk()).await {}
    }

    /// The connection is gone, or never was.
    fn lost(&self, error: reqwest::Error) -> ModelError {
        let error = error.without_url();
        let mut reason = error.to_string();
        let mut cause = std::error::Error::source(&error);
        while let Some(deeper) = cause {
            reason = format!("{reason}: {deeper}");
            cause = deeper.source();
        }
        self.broken(&reason)
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
    async fn complaint(&self, mut response: Response, deadline: Instant, request_id: Option<String>) -> ModelError {
        let until = deadline.min(Instant::now() + CONNECT * 2);
        let told = match Body::new(response.headers()) {
            Ok(body) => failure::Complaint::read(&explanation(&mut response, body, until).await),
            Err(ModelError::Malformed(reason)) => failure::Complaint::read(reason.as_bytes()),
            Err(error) => return error,
        };
        let code = told.code.map(|code| self.redaction.clean(&code));
        let message = self.redaction.clean(&told.message);
        if response.status().is_success() {
            let kind = header(&response, "content-type").unwrap_or_default();
            return if told.is_error {
                ModelError::Failed { code, message }
            } else {
                let kind = self.redaction.clean(&kind);
                ModelError::Malformed(format!("expected an event stream, got {kind}; is the server's address right?"))
            };
        }
        ModelError::Status {
            status: response.status().as_u16(),
            code,
            message,
            request_id,
            retry_after: failure::retry_after(response.headers(), jiff::Timestamp::now()),
            should_retry: failure::should_retry(response.headers()),
        }
    }
}

/// What a server says about an error, or the beginning of it: half of an explanation is better than none.
async fn explanation(response: &mut Response, mut body: Body, until: Instant) -> Vec<u8> {
    let mut plain = Vec::new();
    while plain.len() < LONGEST_COMPLAINT {
        match body.next() {
            Ok(Some(more)) => {
                plain.extend_from_slice(&more[..more.len().min(LONGEST_COMPLAINT - plain.len())]);
                continue;
            }
            Ok(None) => {}
            Err(_damaged) => break,
        }
        match tokio::time::timeout_at(until, response.chunk()).await {
            Ok(Ok(Some(more))) => body.push(more),
            Ok(Ok(None) | Err(_)) | Err(_) => break,
        }
    }
    plain
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
    let extra: &BTreeMap<String, String> = &settings.extra_query;
    if !extra.is_empty() {
        address.url.query_pairs_mut().extend_pairs(extra);
    }
    Ok(())
}

fn header(response: &Response, name: &str) -> Option<String> {
    let value = response.headers().get(name)?.to_str().ok()?;
    Some(value.chars().take(200).collect())
}

/// A server may leave out what it sends, but must not say that it is something else.
fn speaks_events(response: &Response) -> bool {
    header(response, "content-type").is_none_or(|kind| kind.trim_start().starts_with("text/event-stream"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Retry;

    #[test]
    fn no_process_wide_provider_is_needed() {
        for scheme in ["http", "https"] {
            client(scheme).expect("a client");
        }
        assert!(rustls::crypto::CryptoProvider::get_default().is_none());
    }

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
