//! The seam to whoever thinks: one request in, a stream of events out, the last of which is the whole reply.

mod chat;
mod endpoint;
mod http;
mod responses;
pub(crate) mod retry;
mod routing;
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
    endpoint::{ApiKey, Endpoint},
    responses::Responses,
    routing::Models,
    sse::{SseDecoder, SseEvent},
};
use crate::{Item, Items, ModelSettings, ToolSpec, Usage};

/// Somebody who can be asked. One method: whoever wants only the reply drains the stream.
#[async_trait]
pub trait Model: Send + Sync + fmt::Debug {
    /// What it is called, in usage and traces.
    fn name(&self) -> &str;

    /// What its server can do.
    fn wire(&self) -> Wire {
        Wire::Responses
    }

    /// Asks. An error here means that nothing was seen of an answer.
    async fn stream(&self, request: ModelRequest) -> Result<ModelStream, ModelError>;
}

/// Which interface a model's server has, for whoever offers tools or wants the server to do more than answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    /// Responses: freeform tools with grammars, pictures in answers to calls, compaction by the server.
    Responses,
    /// Chat Completions: functions and text.
    Chat,
}

/// What a model says while it answers. Ends with [`ModelEvent::Done`] or an error, and never without either.
pub type ModelStream = BoxStream<'static, Result<ModelEvent, ModelError>>;

/// Where models come from: a name in, a model out.
pub trait ModelSource: Send + Sync + fmt::Debug {
    /// The model of this name; the usual one if there is no name.
    ///
    /// # Errors
    /// When nobody here knows the name, or what is needed to reach it (a key, say) is missing.
    fn model(&self, name: Option<&str>) -> Result<Arc<dyn Model>, ModelError>;
}

/// One question to a model.
#[derive(Clone, Debug, Default)]
pub struct ModelRequest {
    /// What the agent is told to be.
    pub instructions: Option<String>,
    /// The conversation so far, or what is new of it when the server keeps the rest.
    pub input: Items,
    /// How to ask.
    pub settings: ModelSettings,
    /// What the model may call, handoffs included.
    pub tools: Arc<[ToolSpec]>,
    /// The shape of the final answer, when it is not plain text.
    pub output: Option<Arc<OutputFormat>>,
    /// A prompt the server keeps, used in place of instructions.
    pub prompt: Option<Prompt>,
    /// Go on after this response.
    pub previous_response_id: Option<String>,
    /// Go on in this conversation of the server's.
    pub conversation_id: Option<String>,
    /// How often the run has asked this before. From the second time on, the transport asks only once.
    pub attempt: u32,
}

impl ModelRequest {
    /// Whether the server keeps the conversation.
    #[must_use]
    pub fn is_stateful(&self) -> bool {
        self.previous_response_id.is_some() || self.conversation_id.is_some()
    }
}

/// The shape of a final answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OutputFormat {
    /// What the format is called.
    pub name: String,
    /// A JSON schema.
    pub schema: Value,
    /// Whether the server must hold the model to it.
    pub strict: bool,
}

/// A prompt that is kept on the server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Prompt {
    /// Which one.
    pub id: String,
    /// Which version of it; the current one if none is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// What to fill in.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub variables: Map<String, Value>,
}

/// One thing a model says while it answers.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ModelEvent {
    /// An event of the Responses stream, as it came.
    Raw(RawEvent),
    /// The whole reply: always the last event.
    Done(ModelReply),
}

/// An event of a Responses stream: its type, and all its fields.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RawEvent(pub Map<String, Value>);

impl RawEvent {
    /// Its type, such as `response.output_text.delta`.
    #[must_use]
    pub fn kind(&self) -> &str {
        self.0.get("type").and_then(Value::as_str).unwrap_or_default()
    }

    /// The text that is new, if it is a piece of the answer's text.
    #[must_use]
    pub fn text_delta(&self) -> Option<&str> {
        if self.kind() != "response.output_text.delta" {
            return None;
        }
        self.0.get("delta")?.as_str()
    }

    /// Whether it shows nothing of an answer: after such events alone a request may be made again. A failure shows nothing
    /// either.
    #[must_use]
    pub fn is_preamble(&self) -> bool {
        matches!(
            self.kind(),
            "response.created" | "response.queued" | "response.in_progress" | "response.failed" | "error"
        )
    }
}

/// What a model answered.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ModelReply {
    /// What it said and wants done.
    pub output: Vec<Item>,
    /// What it cost.
    #[serde(default)]
    pub usage: Usage,
    /// The server's name for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_id: Option<String>,
    /// The server's name for the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
}

/// Why a model did not answer.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// The server refused.
    #[error("the model's server answered {status}: {message}{}", advice(*status))]
    Status {
        /// The HTTP status.
        status: u16,
        /// The server's code for it.
        code: Option<String>,
        /// What it says.
        message: String,
        /// The server's name for the request.
        request_id: Option<String>,
        /// When to come back.
        retry_after: Option<Duration>,
        /// What the server says about trying again, if anything.
        should_retry: Option<bool>,
    },
    /// Nobody could be reached, or the connection broke.
    #[error("lost contact with the model's server at {host}: {reason}")]
    Network {
        /// Where it should be.
        host: String,
        /// What happened.
        reason: String,
    },
    /// The answer was too long in coming.
    #[error("the model did not answer within {} s; raise the timeout in its settings", .0.as_secs_f64())]
    Timeout(Duration),
    /// The model failed while it answered.
    #[error("the model failed: {message}")]
    Failed {
        /// The server's code for it.
        code: Option<String>,
        /// What it says.
        message: String,
    },
    /// The answer breaks the rules of its own format.
    #[error("the model's server sent something that cannot be understood: {0}")]
    Malformed(String),
    /// The request cannot be made at all.
    #[error("{0}")]
    Unusable(String),
    /// A failure after part of the answer was seen: asking again could show it twice.
    #[error("{cause}; part of the answer had been shown, so it was not asked again")]
    AfterOutput {
        /// What happened.
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
    /// Whether the same request may succeed if it is simply made again.
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

    /// When the server wants to be asked again.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Status { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}
