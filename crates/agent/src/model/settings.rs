//! Settings of a model: sampling, tools, reasoning, retries. Every setting is optional; settings can override other
//! settings.

mod private;

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use self::private::Private;

/// Whether and which tool the model must call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolChoice {
    /// The model decides.
    Auto,
    /// The model must call a tool.
    Required,
    /// The model must not call a tool.
    None,
    /// The model must call this tool: a function, a custom tool or a kind of hosted tool.
    Named(String),
    /// The model must call this tool of a hosted MCP server.
    Mcp {
        /// Label of the server.
        server_label: String,
        /// Name of the tool.
        name: String,
    },
}

/// Effort and summary of the reasoning of a model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Reasoning {
    /// Effort: `none`, `minimal`, `low`, `medium`, `high`, `xhigh` or `max`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effort: Option<String>,
    /// Summary: `auto`, `concise` or `detailed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
}

/// Retry policy of a run for failed model calls, in addition to the retries of the transport.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Retry {
    /// Maximum number of retries.
    pub max_retries: u32,
    /// Delay before the first retry.
    pub initial: Duration,
    /// Maximum delay before a retry.
    pub max: Duration,
    /// Factor by which the delay grows with each retry.
    pub multiplier: f64,
    /// Failures that are retried.
    pub on: Vec<RetryOn>,
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            max_retries: 0,
            initial: Duration::from_millis(250),
            max: Duration::from_secs(2),
            multiplier: 2.0,
            on: vec![RetryOn::Suggested, RetryOn::Network],
        }
    }
}

/// A kind of failure that is retried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RetryOn {
    /// The server allows a retry.
    Suggested,
    /// The connection failed, or the timeout passed.
    Network,
    /// The server named a time for the retry.
    RetryAfter,
    /// The response has one of these HTTP statuses.
    Status(Vec<u16>),
}

/// Settings of a model. The server, or settings of lower precedence, decide a setting that is `None`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ModelSettings {
    /// Sampling temperature.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// Probability mass of nucleus sampling.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f64>,
    /// Chat Completions only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frequency_penalty: Option<f64>,
    /// Chat Completions only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub presence_penalty: Option<f64>,
    /// Whether and which tool must be called.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_choice: Option<ToolChoice>,
    /// Whether several tools may be called in one turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallel_tool_calls: Option<bool>,
    /// Truncation of a conversation that is too long: `auto` or `disabled`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub truncation: Option<String>,
    /// Maximum length of a reply, in tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// Effort and summary of the reasoning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<Reasoning>,
    /// Verbosity: `low`, `medium` or `high`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verbosity: Option<String>,
    /// Labels that the server stores with the response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<BTreeMap<String, String>>,
    /// Whether the server stores the response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store: Option<bool>,
    /// Additional data that the response contains.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub include: Vec<String>,
    /// Number of most likely tokens to return for each position.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_logprobs: Option<u32>,
    /// Rules for the compaction of the conversation on the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_management: Option<Value>,
    /// How long the server caches prompts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_cache_retention: Option<String>,
    /// Retry policy for failed model calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
    /// Timeout of one attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Duration>,
    /// Additional fields of the request body; they override all others.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub extra_body: Map<String, Value>,
    /// Additional headers. They are never saved, because they may contain secrets.
    #[serde(skip)]
    pub extra_headers: Private,
    /// Additional query parameters. They are never saved, because they may contain secrets.
    #[serde(skip)]
    pub extra_query: Private,
}

impl ModelSettings {
    /// Settings in which every field is unset.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Merges two sets of settings: settings of `over` take precedence, maps are merged.
    #[must_use]
    pub fn overlaid(&self, over: &Self) -> Self {
        macro_rules! later {
            ($($field:ident),*) => { Self {
                $($field: over.$field.clone().or_else(|| self.$field.clone()),)*
                include: merged(&self.include, &over.include),
                extra_body: merged_fields(&self.extra_body, &over.extra_body),
                extra_headers: self.extra_headers.overlaid(&over.extra_headers),
                extra_query: self.extra_query.overlaid(&over.extra_query),
            } };
        }
        later!(
            temperature,
            top_p,
            frequency_penalty,
            presence_penalty,
            tool_choice,
            parallel_tool_calls,
            truncation,
            max_tokens,
            reasoning,
            verbosity,
            metadata,
            store,
            top_logprobs,
            context_management,
            prompt_cache_retention,
            retry,
            timeout
        )
    }

    /// Default settings of a model: low verbosity and the recommended reasoning effort for the GPT-5 family. Other models
    /// use the defaults of their server.
    #[must_use]
    pub fn defaults_for(model: &str) -> Self {
        let name = model.rsplit('/').next().unwrap_or(model);
        if !name.starts_with("gpt-5") || name.contains("chat-latest") {
            return Self::default();
        }
        let effort = if name.contains("pro") {
            Some("medium")
        } else if name == "gpt-5" || name.starts_with("gpt-5-") || name.starts_with("gpt-5.2-codex") {
            Some("low")
        } else if ["5.1", "5.2", "5.3-codex", "5.4", "5.5", "5.6"].iter().any(|known| name[4..].starts_with(known)) {
            Some("none")
        } else {
            None
        };
        let reasoning = effort.map(|effort| Reasoning { effort: Some(effort.to_owned()), summary: None });
        Self { reasoning, verbosity: Some("low".to_owned()), ..Self::default() }
    }
}

fn merged(below: &[String], over: &[String]) -> Vec<String> {
    let mut all = below.to_vec();
    all.extend(over.iter().filter(|name| !below.contains(name)).cloned());
    all
}

/// Merges objects field by field; replaces all other values.
fn merged_fields(below: &Map<String, Value>, over: &Map<String, Value>) -> Map<String, Value> {
    let mut all = below.clone();
    for (name, value) in over {
        let value = match (all.get(name), value) {
            (Some(Value::Object(below)), Value::Object(over)) => Value::Object(merged_fields(below, over)),
            _ => value.clone(),
        };
        all.insert(name.clone(), value);
    }
    all
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fields(value: Value) -> Map<String, Value> {
        serde_json::from_value(value).expect("an object")
    }

    #[test]
    fn what_is_said_later_wins_and_maps_are_merged() {
        let below = ModelSettings {
            temperature: Some(0.1),
            top_p: Some(0.2),
            include: vec!["a".to_owned()],
            extra_body: fields(json!({ "x": { "a": 1, "b": 1 }, "y": 1 })),
            ..ModelSettings::default()
        };
        let over = ModelSettings {
            temperature: Some(0.9),
            include: vec!["a".to_owned(), "b".to_owned()],
            extra_body: fields(json!({ "x": { "b": 2 } })),
            ..ModelSettings::default()
        };
        let both = below.overlaid(&over);
        assert_eq!((both.temperature, both.top_p), (Some(0.9), Some(0.2)));
        assert_eq!(both.include, ["a", "b"]);
        assert_eq!(Value::Object(both.extra_body), json!({ "x": { "a": 1, "b": 2 }, "y": 1 }));
    }

    #[test]
    fn each_family_of_models_has_its_defaults() {
        let effort = |model| {
            let settings = ModelSettings::defaults_for(model);
            (settings.reasoning.and_then(|reasoning| reasoning.effort), settings.verbosity)
        };
        let low = Some("low".to_owned());
        for (model, expected) in [
            ("gpt-5", Some("low")),
            ("openai/gpt-5.5", Some("none")),
            ("gpt-5.2-codex", Some("low")),
            ("gpt-5.4-pro", Some("medium")),
            ("gpt-5.9", None),
        ] {
            assert_eq!(effort(model), (expected.map(str::to_owned), low.clone()), "{model}");
        }
        for model in ["gpt-4.1", "gpt-5-chat-latest", "llama3"] {
            assert_eq!(effort(model), (None, None), "{model}");
        }
    }

    #[test]
    fn headers_and_queries_are_never_saved_or_printed() {
        let settings =
            ModelSettings { extra_headers: [("x-key".to_owned(), "hunter2".to_owned())].into(), ..Default::default() };
        assert_eq!(serde_json::to_string(&settings).expect("json"), "{}");
        let shown = format!("{settings:?}");
        assert!(shown.contains("x-key") && !shown.contains("hunter2"), "{shown}");
    }
}
