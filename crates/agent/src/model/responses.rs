//! Models behind the Responses API.

mod body;
mod events;
mod input;

use std::fmt;

use async_trait::async_trait;

pub(super) use self::events::cut_short;
use self::{body::Body, events::Events};
use super::{
    endpoint::{ApiKey, ModelEndpoint},
    http::Exchange,
    stream,
};
use crate::{Model, ModelError, ModelRequest, ModelStream};

/// A model behind the Responses API, at OpenAI or on another server.
///
/// ```
/// use sandbar_agent::{Model, Responses};
///
/// let model = Responses::new("gpt-5.5").base_url("http://localhost:8000/v1").api_key("sk-123");
/// assert_eq!(model.name(), "gpt-5.5");
/// assert!(!format!("{model:?}").contains("sk-123"));
/// ```
#[derive(Clone)]
pub struct Responses {
    name: String,
    endpoint: ModelEndpoint,
    choice: Choice,
}

/// How the model was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice {
    /// By name.
    Explicit,
    /// By default, so the model that a stored prompt names takes precedence.
    Usual,
}

impl Responses {
    /// This model at OpenAI.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), endpoint: ModelEndpoint::openai(), choice: Choice::Explicit }
    }

    /// This model, with the server from `OPENAI_API_KEY`, `OPENAI_BASE_URL`, `OPENAI_ORG_ID`, `OPENAI_PROJECT_ID` and
    /// proxies as in [`ModelEndpoint::from_env`].
    pub fn from_env(name: impl Into<String>) -> Self {
        Self::new(name).at(ModelEndpoint::from_env())
    }

    /// Sets the server.
    #[must_use]
    pub fn at(mut self, endpoint: ModelEndpoint) -> Self {
        self.endpoint = endpoint;
        self
    }

    /// Sets the server's address.
    #[must_use]
    pub fn base_url(mut self, base_url: impl Into<String>) -> Self {
        self.endpoint = self.endpoint.base_url(base_url);
        self
    }

    /// Sets the key.
    #[must_use]
    pub fn api_key(mut self, key: impl Into<ApiKey>) -> Self {
        self.endpoint = self.endpoint.api_key(key);
        self
    }

    /// Sets the organization that is billed.
    #[must_use]
    pub fn organization(mut self, organization: impl Into<String>) -> Self {
        self.endpoint = self.endpoint.organization(organization);
        self
    }

    /// Sets the project that is billed.
    #[must_use]
    pub fn project(mut self, project: impl Into<String>) -> Self {
        self.endpoint = self.endpoint.project(project);
        self
    }

    /// Marks the model as chosen by default.
    pub(super) fn unchosen(mut self) -> Self {
        self.choice = Choice::Usual;
        self
    }
}

#[async_trait]
impl Model for Responses {
    fn name(&self) -> &str {
        &self.name
    }

    async fn stream(&self, request: ModelRequest) -> Result<ModelStream, ModelError> {
        let body = Body::new(&self.name, self.choice, &request)?.write()?;
        let exchange = Exchange::new(&self.endpoint, "responses", &request, body)?;
        drop(request);
        stream::ask(exchange, Events::default).await
    }
}

impl fmt::Debug for Responses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Responses").field("name", &self.name).field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}
