//! Models behind the Responses API: one request, one event stream, items as the server writes them.

mod body;
mod input;
mod reading;

use std::fmt;

use async_trait::async_trait;

pub(super) use self::reading::cut_short;
use self::{body::Body, reading::Events};
use super::{
    endpoint::{ApiKey, Endpoint},
    http::Exchange,
    stream,
};
use crate::{Model, ModelError, ModelRequest, ModelStream};

/// A model that speaks the Responses API, at OpenAI or anywhere else.
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
    endpoint: Endpoint,
    choice: Choice,
}

/// Who chose the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice {
    /// Somebody named it.
    Explicit,
    /// Nobody did, so a prompt that names one wins.
    Usual,
}

impl Responses {
    /// This model at OpenAI.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), endpoint: Endpoint::openai(), choice: Choice::Explicit }
    }

    /// This model where the environment says: `OPENAI_API_KEY`, `OPENAI_BASE_URL`, `OPENAI_ORG_ID`, `OPENAI_PROJECT_ID`;
    /// through proxies as [`Endpoint::from_env`] says.
    pub fn from_env(name: impl Into<String>) -> Self {
        Self::new(name).at(Endpoint::from_env())
    }

    /// The same model on another server.
    #[must_use]
    pub fn at(mut self, endpoint: Endpoint) -> Self {
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

    /// Sets the organization that pays.
    #[must_use]
    pub fn organization(mut self, organization: impl Into<String>) -> Self {
        self.endpoint = self.endpoint.organization(organization);
        self
    }

    /// Sets the project that pays.
    #[must_use]
    pub fn project(mut self, project: impl Into<String>) -> Self {
        self.endpoint = self.endpoint.project(project);
        self
    }

    /// The same model, but as one that nobody chose.
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
