//! Models behind the Chat Completions API, which most servers of open models offer. Events have the Responses format.

mod body;
mod calls;
mod chunks;
mod messages;
mod parts;

use std::{collections::HashSet, fmt, sync::Arc};

use async_trait::async_trait;

use self::chunks::Chunks;
use super::{endpoint::ModelEndpoint, http::Exchange, stream};
use crate::{Model, ModelError, ModelRequest, ModelStream, ToolKind, Wire};

/// A model behind the Chat Completions API: Ollama, llama.cpp, vLLM and many more.
///
/// The stream has the format of the Responses API. Features that only that API has (prompts and conversations stored on the
/// server, hosted tools) are refused by name; settings that only that API has are left out.
///
/// ```
/// use sandbar_agent::{Chat, ModelEndpoint, Model};
///
/// let model = Chat::new("qwen3:8b", ModelEndpoint::new("http://localhost:11434/v1"));
/// assert_eq!(model.name(), "qwen3:8b");
/// ```
#[derive(Clone)]
pub struct Chat {
    name: String,
    endpoint: ModelEndpoint,
}

impl Chat {
    /// This model on this server.
    pub fn new(name: impl Into<String>, endpoint: ModelEndpoint) -> Self {
        Self { name: name.into(), endpoint }
    }
}

#[async_trait]
impl Model for Chat {
    fn wire(&self) -> Wire {
        Wire::Chat
    }

    fn name(&self) -> &str {
        &self.name
    }

    async fn stream(&self, request: ModelRequest) -> Result<ModelStream, ModelError> {
        let body = body::write(&self.name, &request)?;
        let exchange = Exchange::new(&self.endpoint, "chat/completions", &request, body)?;
        let facts = Arc::new(RequestFacts::of(&request));
        drop(request);
        stream::ask(exchange, move || Chunks::new(Arc::clone(&facts))).await
    }
}

impl fmt::Debug for Chat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chat").field("name", &self.name).field("endpoint", &self.endpoint).finish()
    }
}

/// Facts about the request that the parser needs.
#[derive(Debug, Default)]
struct RequestFacts {
    /// Names of freeform tools, which are sent as functions.
    custom: HashSet<String>,
    /// Ids of calls in the transcript. Some servers restart their ids in every reply.
    calls: HashSet<String>,
}

impl RequestFacts {
    fn of(request: &ModelRequest) -> Self {
        let custom = request.tools.iter().filter(|tool| matches!(tool.kind, ToolKind::Custom { .. }));
        let calls = request.input.iter().filter(|item| item.is_call());
        Self {
            custom: custom.map(|tool| tool.name.clone()).collect(),
            calls: calls.filter_map(|item| item.call_id().map(str::to_owned)).collect(),
        }
    }
}

fn unsupported(what: &str) -> ModelError {
    ModelError::Unusable(format!("{what} cannot be used with a Chat Completions server, only with a Responses server"))
}
