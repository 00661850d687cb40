//! Models behind the Chat Completions API, which most servers of open models speak, shown as if they spoke Responses.

mod body;
mod calls;
mod messages;
mod parts;
mod reading;

use std::{collections::HashSet, fmt, sync::Arc};

use async_trait::async_trait;

use self::reading::Chunks;
use super::{endpoint::Endpoint, http::Exchange, stream};
use crate::{Model, ModelError, ModelRequest, ModelStream, ToolKind, Wire};

/// A model that speaks the Chat Completions API: Ollama, llama.cpp, vLLM and many more.
///
/// The stream is that of the Responses API. What only that API can do (prompts and conversations kept on the server, tools
/// run by it) is refused by name, settings that only it knows are left out.
///
/// ```
/// use sandbar_agent::{Chat, Endpoint, Model};
///
/// let model = Chat::new("qwen3:8b", Endpoint::new("http://localhost:11434/v1"));
/// assert_eq!(model.name(), "qwen3:8b");
/// ```
#[derive(Clone)]
pub struct Chat {
    name: String,
    endpoint: Endpoint,
}

impl Chat {
    /// This model on this server.
    pub fn new(name: impl Into<String>, endpoint: Endpoint) -> Self {
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
        let known = Arc::new(Known::of(&request));
        drop(request);
        stream::ask(exchange, move || Chunks::new(Arc::clone(&known))).await
    }
}

impl fmt::Debug for Chat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chat").field("name", &self.name).field("endpoint", &self.endpoint).finish()
    }
}

/// What a reading must know of the request.
#[derive(Debug, Default)]
struct Known {
    /// Freeform tools, which the server was told are functions.
    custom: HashSet<String>,
    /// Ids of calls in the transcript. Some servers begin to count again in every answer.
    calls: HashSet<String>,
}

impl Known {
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
