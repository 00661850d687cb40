//! The interface to models: a request leads to a stream of events, the last of which is the complete reply.

mod chat;
mod endpoint;
mod http;
mod responses;
pub(crate) mod retry;
mod routing;
mod scripted;
mod settings;
mod sse;
mod stream;

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use futures::stream::BoxStream;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use sandbar_http::{Patience, Proxies, Proxy, ProxyError};

pub use self::{
    chat::Chat,
    endpoint::{ApiKey, ModelEndpoint},
    responses::Responses,
    routing::Models,
    scripted::{ScriptedModel, Turn},
    settings::{ModelSettings, Private, Reasoning, Retry, RetryOn, ToolChoice},
    sse::{SseDecoder, SseEvent},
};
use crate::{Item, Items, ToolSpec, Usage};

/// A model. A caller that needs only the reply reads the stream to its end.
#[async_trait]
pub trait Model: Send + Sync + fmt::Debug {
    /// Name of the model, in usage and traces.
    fn name(&self) -> &str;

    /// API of the model's server.
    fn wire(&self) -> Wire {
        Wire::Responses
    }

    /// Sends a request. An error means that no part of a reply was received.
    async fn stream(&self, request: ModelRequest) -> Result<ModelStream, ModelError>;
}

/// API of a model's server. It decides which kinds of tools and which features of the server can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    /// Responses: supports freeform tools with grammars, images in tool outputs, and compaction on the server.
    Responses,
    /// Chat Completions: supports functions and text.
    Chat,
}

/// Events of a reply. The stream always ends with [`ModelEvent::Done`] or with an error.
pub type ModelStream = BoxStream<'static, Result<ModelEvent, ModelError>>;

/// A source of models, by name.
pub trait ModelSource: Send + Sync + fmt::Debug {
    /// The model of this name; the default model if there is no name.
    ///
    /// # Errors
    /// If the name is unknown, or a setting that the model needs (such as a key) is missing.
    fn model(&self, name: Option<&str>) -> Result<Arc<dyn Model>, ModelError>;
}

/// A request to a model.
#[derive(Clone, Debug, Default)]
pub struct ModelRequest {
    /// Instructions of the agent.
    pub instructions: Option<String>,
    /// The conversation so far; only its new items if the server keeps the conversation.
    pub input: Items,
    /// Settings of the model.
    pub settings: ModelSettings,
    /// Tools that the model may call, including handoffs.
    pub tools: Arc<[ToolSpec]>,
    /// Format of the final output, unless it is plain text.
    pub output: Option<Arc<OutputFormat>>,
    /// Prompt that is stored on the server; used instead of instructions.
    pub prompt: Option<Prompt>,
    /// Id of the response that this request continues.
    pub previous_response_id: Option<String>,
    /// Id of the conversation on the server that this request continues.
    pub conversation_id: Option<String>,
    /// Number of earlier attempts of the run. If it is not zero, the transport does not retry.
    pub attempt: u32,
}

impl ModelRequest {
    /// Whether the server keeps the conversation.
    #[must_use]
    pub fn is_stateful(&self) -> bool {
        self.previous_response_id.is_some() || self.conversation_id.is_some()
    }
}

/// Format of a final output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OutputFormat {
    /// Name of the format.
    pub name: String,
    /// JSON schema of the output.
    pub schema: Value,
    /// Whether the server enforces the schema.
    pub strict: bool,
}

/// A prompt that is stored on the server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Prompt {
    /// Id of the prompt.
    pub id: String,
    /// Version of the prompt; `None` is the current version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Values of the variables of the prompt.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub variables: Map<String, Value>,
}

/// An event of a reply.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ModelEvent {
    /// An event of the Responses stream, unchanged.
    Raw(RawEvent),
    /// The complete reply; always the last event.
    Done(ModelReply),
}

/// An event of a Responses stream, with all its fields.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RawEvent(pub Map<String, Value>);

impl RawEvent {
    /// Type of the event, such as `response.output_text.delta`.
    #[must_use]
    pub fn kind(&self) -> &str {
        self.0.get("type").and_then(Value::as_str).unwrap_or_default()
    }

    /// New text, if the event is a piece of the text of the reply.
    #[must_use]
    pub fn text_delta(&self) -> Option<&str> {
        if self.kind() != "response.output_text.delta" {
            return None;
        }
        self.0.get("delta")?.as_str()
    }

    /// Whether the event contains no part of a reply. If only such events arrived, the request may be retried. A failure is
    /// such an event.
    #[must_use]
    pub fn is_preamble(&self) -> bool {
        matches!(
            self.kind(),
            "response.created" | "response.queued" | "response.in_progress" | "response.failed" | "error"
        )
    }
}

/// Reply of a model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ModelReply {
    /// Items of the reply: messages, calls and reasoning.
    pub output: Vec<Item>,
    /// Tokens that the request used.
    #[serde(default)]
    pub usage: Usage,
    /// Id of the response on the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_id: Option<String>,
    /// Id of the request on the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
}

/// Error of a model call.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// The server returned an error.
    #[error("the model's server answered {status}: {message}{}", advice(*status))]
    Status {
        /// HTTP status.
        status: u16,
        /// Error code of the server.
        code: Option<String>,
        /// Error message of the server.
        message: String,
        /// Id of the request on the server.
        request_id: Option<String>,
        /// Time after which the server accepts a retry.
        retry_after: Option<Duration>,
        /// Whether the server allows a retry, if it says so.
        should_retry: Option<bool>,
    },
    /// The server cannot be reached, or the connection broke.
    #[error("lost contact with the model's server at {host}: {reason}")]
    Network {
        /// Address of the server.
        host: String,
        /// Cause.
        reason: String,
    },
    /// The reply took longer than the timeout.
    #[error("the model did not answer within {} s; raise the timeout in its settings", .0.as_secs_f64())]
    Timeout(Duration),
    /// The model failed in the middle of a reply.
    #[error("the model failed: {message}")]
    Failed {
        /// Error code of the server.
        code: Option<String>,
        /// Error message of the server.
        message: String,
    },
    /// The reply violates the format of its API.
    #[error("the model's server sent something that cannot be understood: {0}")]
    Malformed(String),
    /// The request is impossible, for instance because a setting is missing.
    #[error("{0}")]
    Unusable(String),
    /// A failure after a part of the reply was emitted: a retry could emit that part twice.
    #[error("{cause}; part of the answer had been shown, so it was not asked again")]
    AfterOutput {
        /// Cause.
        cause: Box<ModelError>,
    },
}

fn advice(status: u16) -> &'static str {
    match status {
        401 => " (is the API key right?)",
        403 => " (does the key have access to this model?)",
        404 => " (is the model's name right, and the address of its server?)",
        429 => " (rate limit or quota; wait, or look at the account)",
        _ => "",
    }
}

impl ModelError {
    /// Whether the same request may succeed if it is retried unchanged.
    #[must_use]
    pub fn retryable(&self) -> bool {
        match self {
            Self::Status { should_retry: Some(says), .. } => *says,
            Self::Status { status, .. } => matches!(status, 408 | 409 | 429 | 500..),
            Self::Network { .. } | Self::Timeout(_) => true,
            Self::Failed { code, .. } => matches!(code.as_deref(), Some("server_error" | "rate_limit_exceeded")),
            Self::Malformed(_) | Self::Unusable(_) | Self::AfterOutput { .. } => false,
        }
    }

    /// Time after which the server accepts a retry.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Status { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}
