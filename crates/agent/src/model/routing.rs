//! Finds models by name: the prefix before the first slash selects the server, the rest is the model's name there.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::Arc,
};

use parking_lot::Mutex;

use super::{chat::Chat, endpoint::ModelEndpoint, responses::Responses};
use crate::{Model, ModelError, ModelSource};

/// Default model.
const USUAL_MODEL: &str = "gpt-5.6-luna";
const OPENAI: &str = "openai";
const OLLAMA: &str = "http://localhost:11434/v1";
/// The most models in the cache, which bounds its memory.
const MAX_CACHED: usize = 256;

/// Finds models by name: `gpt-5.5` and `openai/gpt-5.5` at OpenAI, `ollama/qwen3` on this host's Ollama, and any prefix that
/// is registered.
///
/// ```
/// use sandbar_agent::{ModelEndpoint, Model, ModelSource, Models};
///
/// let models = Models::new()
///     .openai(ModelEndpoint::openai().api_key("sk-123"))
///     .chat("gpu", ModelEndpoint::new("http://gpu.example:8000/v1"));
/// assert_eq!(models.model(Some("gpt-5.5"))?.name(), "gpt-5.5");
/// assert_eq!(models.model(Some("gpu/meta/llama-4"))?.name(), "meta/llama-4");
///
/// let error = models.model(Some("moon/rover")).unwrap_err().to_string();
/// assert!(error.contains("gpu/") && error.contains("ollama/"), "{error}");
/// # Ok::<(), sandbar_agent::ModelError>(())
/// ```
pub struct Models {
    openai: ModelEndpoint,
    usual: String,
    named: HashMap<String, Arc<dyn Model>>,
    routes: BTreeMap<String, Route>,
    cache: Mutex<HashMap<String, Arc<dyn Model>>>,
}

/// Target of a prefix.
enum Route {
    Chat(ModelEndpoint),
    Source(Arc<dyn ModelSource>),
}

impl Default for Models {
    fn default() -> Self {
        Self::new()
    }
}

impl Models {
    /// OpenAI (which needs a key) and this host's Ollama.
    #[must_use]
    pub fn new() -> Self {
        Self {
            openai: ModelEndpoint::openai(),
            usual: USUAL_MODEL.to_owned(),
            named: HashMap::new(),
            routes: BTreeMap::from([("ollama".to_owned(), Route::Chat(ModelEndpoint::new(OLLAMA)))]),
            cache: Mutex::default(),
        }
    }

    /// Reads the server from the variables of [`ModelEndpoint::from_env`] and the default model from `OPENAI_DEFAULT_MODEL`.
    #[must_use]
    pub fn from_env() -> Self {
        Self::from_names(&|name| std::env::var(name).ok())
    }

    fn from_names(value: &dyn Fn(&str) -> Option<String>) -> Self {
        let models = Self::new().openai(ModelEndpoint::from_names(value));
        match value("OPENAI_DEFAULT_MODEL").map(|name| name.trim().to_lowercase()).filter(|name| !name.is_empty()) {
            Some(usual) => models.usual(usual),
            None => models,
        }
    }

    /// Sets the server for OpenAI's models.
    #[must_use]
    pub fn openai(mut self, endpoint: ModelEndpoint) -> Self {
        self.openai = endpoint;
        self
    }

    /// Sets the default model.
    #[must_use]
    pub fn usual(mut self, name: impl Into<String>) -> Self {
        self.usual = name.into();
        self
    }

    /// Registers a model under a name, which takes precedence over all prefixes.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>, model: impl Model + 'static) -> Self {
        self.named.insert(name.into(), Arc::new(model));
        self
    }

    /// Sends names that begin with `prefix/` to a Chat Completions server. The prefix `openai` also replaces the server for
    /// names without a prefix.
    #[must_use]
    pub fn chat(mut self, prefix: impl Into<String>, endpoint: ModelEndpoint) -> Self {
        self.routes.insert(prefix.into(), Route::Chat(endpoint));
        self
    }

    /// Sends names that begin with `prefix/` to another source, without the prefix.
    #[must_use]
    pub fn source(mut self, prefix: impl Into<String>, source: impl ModelSource + 'static) -> Self {
        self.routes.insert(prefix.into(), Route::Source(Arc::new(source)));
        self
    }

    fn find(&self, name: &str) -> Result<Arc<dyn Model>, ModelError> {
        let (prefix, rest) = name.split_once('/').unwrap_or((OPENAI, name));
        match self.routes.get(prefix) {
            Some(Route::Source(source)) => source.model(Some(rest)),
            Some(Route::Chat(endpoint)) => {
                endpoint.check()?;
                Ok(Arc::new(Chat::new(rest, endpoint.clone())))
            }
            None if prefix == OPENAI => {
                self.openai.check()?;
                Ok(Arc::new(Responses::new(rest).at(self.openai.clone())))
            }
            None => Err(ModelError::Unusable(format!(
                "unknown model prefix {prefix:?}; known are openai/, {}",
                self.routes.keys().map(|known| format!("{known}/")).collect::<Vec<_>>().join(", ")
            ))),
        }
    }
}

impl ModelSource for Models {
    fn model(&self, name: Option<&str>) -> Result<Arc<dyn Model>, ModelError> {
        let wanted = name.unwrap_or(&self.usual);
        if let Some(model) = self.named.get(wanted) {
            return Ok(Arc::clone(model));
        }
        // The default model yields to the model that a stored prompt names.
        let openai = wanted.strip_prefix("openai/").unwrap_or(wanted);
        if name.is_none() && !openai.contains('/') && !self.routes.contains_key(OPENAI) {
            self.openai.check()?;
            return Ok(Arc::new(Responses::new(openai).at(self.openai.clone()).unchosen()));
        }
        let mut cache = self.cache.lock();
        if let Some(model) = cache.get(wanted) {
            return Ok(Arc::clone(model));
        }
        let model = self.find(wanted)?;
        if cache.len() < MAX_CACHED {
            cache.insert(wanted.to_owned(), Arc::clone(&model));
        }
        Ok(model)
    }
}

impl fmt::Debug for Models {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Models")
            .field("openai", &self.openai)
            .field("usual", &self.usual)
            .field("named", &self.named.keys().collect::<Vec<_>>())
            .field("routes", &self.routes.keys().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn models() -> Models {
        Models::new().openai(ModelEndpoint::openai().api_key("sk-1"))
    }

    fn shown(models: &Models, name: Option<&str>) -> String {
        match models.model(name) {
            Ok(model) => format!("{model:?}"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn a_name_says_where_and_which() {
        let models = models()
            .chat("gpu", ModelEndpoint::new("http://gpu:1/v1"))
            .source("deep", self::models())
            .named("gpu/pinned", Responses::new("pinned").base_url("http://own/v1"));
        for (name, expected) in [
            (None, "Responses { name: \"gpt-5.6-luna\", endpoint: ModelEndpoint { address: \"https://api.openai.com\""),
            (Some("gpt-5.5"), "Responses { name: \"gpt-5.5\""),
            (Some("openai/gpt-5.5"), "Responses { name: \"gpt-5.5\""),
            (
                Some("ollama/hf.co/org/m"),
                "Chat { name: \"hf.co/org/m\", endpoint: ModelEndpoint { address: \"http://localhost:11434\"",
            ),
            (Some("gpu/m"), "Chat { name: \"m\", endpoint: ModelEndpoint { address: \"http://gpu:1\""),
            (Some("gpu/pinned"), "Responses { name: \"pinned\", endpoint: ModelEndpoint { address: \"http://own\""),
            (Some("deep/ollama/m"), "Chat { name: \"m\""),
            (Some("moon/m"), "unknown model prefix \"moon\"; known are openai/, deep/, gpu/, ollama/"),
        ] {
            let found = shown(&models, name);
            assert!(found.starts_with(expected), "{name:?}: {found}");
        }
    }

    #[test]
    fn what_is_registered_wins_over_what_is_built_in() {
        let models = models().chat("openai", ModelEndpoint::new("http://local/v1"));
        for name in [None, Some("openai/m"), Some("m")] {
            assert!(shown(&models, name).starts_with("Chat"), "{name:?}");
        }
    }

    #[test]
    fn without_a_key_the_error_says_what_to_set() {
        let models = Models::from_names(&|_| None);
        for name in [None, Some("gpt-5.5")] {
            let error = shown(&models, name);
            assert!(error.contains("OPENAI_API_KEY") && error.contains("OPENAI_BASE_URL"), "{error}");
        }
        assert!(shown(&models, Some("ollama/m")).starts_with("Chat"));
    }

    #[test]
    fn the_environment_names_the_usual_model_and_a_local_server() {
        let models = Models::from_names(&|name| match name {
            "OPENAI_DEFAULT_MODEL" => Some("GPT-5.5".to_owned()),
            "OPENAI_BASE_URL" => Some("http://localhost:8000/v1".to_owned()),
            _ => None,
        });
        let found = shown(&models, None);
        assert!(found.contains("gpt-5.5") && found.contains("http://localhost:8000"), "{found}");
    }
}
