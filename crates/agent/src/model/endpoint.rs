//! A server of models: its address, its key and its proxies.

use std::{fmt, sync::Arc, time::Duration};

use sandbar_http::{
    Client, Credentials, Patience, Proxies, ProxyError, RealTime, Url,
    header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue},
    is_loopback, origin,
};

use crate::ModelError;

const OPENAI: &str = "https://api.openai.com/v1";
const USUAL_IDLE: Duration = Duration::from_mins(5);

/// API key, which is never printed and never saved.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey(Arc<str>);

impl ApiKey {
    /// The key itself, for the code that sends it.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

impl<T: Into<String>> From<T> for ApiKey {
    fn from(key: T) -> Self {
        Self(key.into().trim().into())
    }
}

/// A server of models: its address, key and headers. Clones share their connections.
///
/// ```
/// use sandbar_agent::ModelEndpoint;
///
/// let endpoint = ModelEndpoint::new("http://me:hunter2@gpu.example:8000/v1").api_key("sk-123");
/// let printed = format!("{endpoint:?}");
/// assert!(printed.contains("gpu.example") && !printed.contains("hunter2") && !printed.contains("sk-123"));
/// ```
#[derive(Clone)]
pub struct ModelEndpoint {
    address: String,
    key: Option<ApiKey>,
    organization: Option<String>,
    project: Option<String>,
    idle: Duration,
    patience: Arc<dyn Patience>,
    client: Client,
    /// Reason why the proxies of the environment cannot be used.
    proxy_error: Option<ProxyError>,
}

/// A parsed address. A user name and a password in the address were moved to a header.
#[derive(Clone)]
pub(crate) struct Address {
    pub(crate) url: Url,
    pub(crate) headers: HeaderMap,
    /// Texts that error messages must not contain.
    pub(crate) secrets: Vec<String>,
}

impl Default for ModelEndpoint {
    fn default() -> Self {
        Self::openai()
    }
}

impl ModelEndpoint {
    /// A server at this address, such as `http://localhost:8000/v1`. It is used without a key unless one is set, and reached
    /// without a proxy unless [`proxies`](Self::proxies) sets one.
    pub fn new(base_url: impl Into<String>) -> Self {
        Self {
            address: base_url.into(),
            key: None,
            organization: None,
            project: None,
            idle: USUAL_IDLE,
            patience: Arc::new(RealTime),
            client: Client::new(Proxies::none()),
            proxy_error: None,
        }
    }

    /// The server of OpenAI. It needs a key.
    #[must_use]
    pub fn openai() -> Self {
        Self::new(OPENAI)
    }

    /// A server from environment variables: `OPENAI_API_KEY`, `OPENAI_BASE_URL`, `OPENAI_ORG_ID` and `OPENAI_PROJECT_ID`,
    /// with the proxies that `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY` name. A server on this host, and one
    /// that gets a key over plain http, is reached directly.
    #[must_use]
    pub fn from_env() -> Self {
        Self::from_names(&|name| std::env::var(name).ok())
    }

    pub(crate) fn from_names(value: &dyn Fn(&str) -> Option<String>) -> Self {
        let value = |name: &str| value(name).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
        let mut endpoint = value("OPENAI_BASE_URL").map_or_else(Self::openai, Self::new);
        endpoint.key = value("OPENAI_API_KEY").map(ApiKey::from);
        endpoint.organization = value("OPENAI_ORG_ID");
        endpoint.project = value("OPENAI_PROJECT_ID");
        match Proxies::from_variables(&|name| value(name).map(Into::into)) {
            Ok(proxies) => endpoint.proxies(proxies),
            Err(error) => Self { proxy_error: Some(error), ..endpoint },
        }
    }

    /// Sets the address.
    #[must_use]
    pub fn base_url(mut self, base_url: impl Into<String>) -> Self {
        self.address = base_url.into();
        self
    }

    /// Sets the proxies for connections to the server, for instance [`Proxies::none`] or [`Proxies::from_env`].
    #[must_use]
    pub fn proxies(mut self, proxies: Proxies) -> Self {
        self.client = Client::new(proxies);
        self.proxy_error = None;
        self
    }

    /// Sets the key. A user name and a password in the address take precedence.
    #[must_use]
    pub fn api_key(mut self, key: impl Into<ApiKey>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Sets the organization that is billed.
    #[must_use]
    pub fn organization(mut self, organization: impl Into<String>) -> Self {
        self.organization = Some(organization.into());
        self
    }

    /// Sets the project that is billed.
    #[must_use]
    pub fn project(mut self, project: impl Into<String>) -> Self {
        self.project = Some(project.into());
        self
    }

    /// Sets how long a server may send nothing in the middle of a reply. The default is five minutes.
    #[must_use]
    pub fn idle_timeout(mut self, limit: Duration) -> Self {
        self.idle = limit;
        self
    }

    /// Sets the clock that measures the time between attempts.
    #[must_use]
    pub fn patience(mut self, patience: impl Patience + 'static) -> Self {
        self.patience = Arc::new(patience);
        self
    }

    pub(crate) fn idle(&self) -> Duration {
        self.idle
    }

    pub(crate) fn waits(&self) -> &Arc<dyn Patience> {
        &self.patience
    }

    /// Checks that requests are possible: the address is valid, and the server of OpenAI has a key.
    ///
    /// # Errors
    /// [`ModelError::Unusable`] names the setting that is missing.
    pub fn check(&self) -> Result<(), ModelError> {
        self.resolve("").map(drop)
    }

    /// URL of a request for `path`, and the headers of every request.
    pub(crate) fn resolve(&self, path: &str) -> Result<Address, ModelError> {
        let unusable = |reason: &str| Err(ModelError::Unusable(reason.to_owned()));
        let Ok(mut url) = Url::parse(self.address.trim()) else {
            return unusable("the address of the model's server is not a URL like https://host/v1");
        };
        if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none_or(str::is_empty) {
            return unusable("the address of the model's server must begin with http:// or https://");
        }
        if let Some(error) = self.proxy_error.as_ref().filter(|_| !is_loopback(&url)) {
            return Err(ModelError::Unusable(error.to_string()));
        }
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path.split('/'));
        }
        let mut secrets: Vec<String> = self.key.iter().map(|key| key.reveal().to_owned()).collect();
        let authorization = match Credentials::take(&mut url) {
            Some(credentials) => {
                secrets.extend(credentials.secrets());
                Some(credentials.basic())
            }
            None => self.key.as_ref().map(|key| format!("Bearer {}", key.reveal())),
        };
        if authorization.is_none() && url.host_str() == Some("api.openai.com") {
            return unusable(
                "there is no API key: set OPENAI_API_KEY, or name a local OpenAI-compatible server by OPENAI_BASE_URL",
            );
        }
        let mut headers = HeaderMap::new();
        let wanted = [
            (AUTHORIZATION, authorization),
            (HeaderName::from_static("openai-organization"), self.organization.clone()),
            (HeaderName::from_static("openai-project"), self.project.clone()),
        ];
        for (name, value) in wanted {
            let Some(value) = value else { continue };
            let Ok(mut value) = HeaderValue::from_str(&value) else {
                return unusable("the API key, organization or project has characters that no header can carry");
            };
            value.set_sensitive(name == AUTHORIZATION);
            headers.insert(name, value);
        }
        Ok(Address { url, headers, secrets })
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }
}

impl fmt::Debug for ModelEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.resolve("").map(|address| origin(&address.url)).unwrap_or_else(|_| "[unusable]".to_owned());
        f.debug_struct("ModelEndpoint").field("address", &shown).field("key", &self.key).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn authorization(endpoint: &ModelEndpoint) -> Option<String> {
        let address = endpoint.resolve("responses").expect("usable");
        address.headers.get(AUTHORIZATION).map(|value| value.to_str().expect("text").to_owned())
    }

    #[test]
    fn the_environment_says_where_and_who() {
        let endpoint = ModelEndpoint::from_names(&|name| match name {
            "OPENAI_API_KEY" => Some(" sk-1\n".to_owned()),
            "OPENAI_ORG_ID" => Some("org".to_owned()),
            "OPENAI_PROJECT_ID" => Some(String::new()),
            _ => None,
        });
        let address = endpoint.resolve("responses").expect("usable");
        assert_eq!(address.url.as_str(), "https://api.openai.com/v1/responses");
        assert_eq!(authorization(&endpoint).as_deref(), Some("Bearer sk-1"));
        assert_eq!(address.headers.get("openai-organization").and_then(|value| value.to_str().ok()), Some("org"));
        assert!(!address.headers.contains_key("openai-project"));
    }

    #[test]
    fn proxies_come_from_the_environment_only_if_the_rest_does() {
        let endpoint = |proxy: &'static str, address: &'static str| {
            ModelEndpoint::from_names(&move |name| match name {
                "OPENAI_API_KEY" => Some("sk-1".to_owned()),
                "OPENAI_BASE_URL" => Some(address.to_owned()),
                "https_proxy" => Some(proxy.to_owned()),
                _ => None,
            })
        };
        let proxied = endpoint("http://me:hunter2@gate.example:3128", "https://models.example/v1");
        let shown = format!("{:?}", proxied.base_url("https://other.example").client());
        assert!(shown.contains("http://gate.example:3128") && !shown.contains("hunter2"), "{shown}");
        assert!(!format!("{:?}", ModelEndpoint::openai().client()).contains("gate.example"));

        let bad = endpoint("http://me:hunter2@gate.example:port", "https://models.example/v1");
        let error = bad.check().expect_err("a malformed variable").to_string();
        assert!(error.contains("https_proxy") && !error.contains("hunter2"), "{error}");
        bad.clone().proxies(Proxies::none()).check().expect("no proxy, no fault");
        bad.base_url("http://localhost:8000/v1").check().expect("this host is reached directly");
    }

    #[test]
    fn only_the_vendor_needs_a_key_and_the_error_says_what_to_set() {
        let error = ModelEndpoint::openai().check().expect_err("no key").to_string();
        assert!(error.contains("OPENAI_API_KEY") && error.contains("OPENAI_BASE_URL"), "{error}");
        ModelEndpoint::new("http://localhost:8000/v1/").check().expect("a local server");
    }

    #[test]
    fn a_password_in_the_address_becomes_a_header_and_is_never_shown() {
        let endpoint = ModelEndpoint::new("http://me:p%40ss-word@host:1/v1/").api_key("sk-secret");
        let address = endpoint.resolve("responses").expect("usable");
        assert_eq!(address.url.as_str(), "http://host:1/v1/responses");
        assert_eq!(authorization(&endpoint).as_deref(), Some("Basic bWU6cEBzcy13b3Jk"));
        let shown = format!("{endpoint:?}");
        assert!(!shown.contains("word") && !shown.contains("sk-secret") && shown.contains("http://host:1"), "{shown}");
    }

    #[test]
    fn what_is_asked_for_goes_behind_the_address_and_before_its_query() {
        for (address, expected) in [
            ("http://h", "http://h/chat/completions"),
            ("http://h/v1", "http://h/v1/chat/completions"),
            (" http://h/v1/ ", "http://h/v1/chat/completions"),
            ("https://h/openai?api-version=1", "https://h/openai/chat/completions?api-version=1"),
        ] {
            let address = ModelEndpoint::new(address).resolve("chat/completions").expect("usable");
            assert_eq!(address.url.as_str(), expected);
        }
    }

    #[test]
    fn what_is_no_address_is_said_without_repeating_it() {
        for address in ["", "user:pass@host", "ftp://user:hunter2@host", "http://", "http://h:hunter2:2/"] {
            let error = ModelEndpoint::new(address).check().expect_err(address).to_string();
            assert!(error.contains("address") && !error.contains("hunter2"), "{error}");
        }
    }
}
