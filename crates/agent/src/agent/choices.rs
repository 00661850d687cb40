//! The parts of an agent that can be given in several ways: instructions, prompt, model, what follows a tool.

use std::{fmt, sync::Arc};

use futures::future::{BoxFuture, FutureExt as _};
use serde_json::Value;

use crate::{Agent, AgentError, App, BoxError, Model, Prompt, Result, ToolOutput};

/// Whom instructions are made for.
#[derive(Clone, Debug)]
pub struct Asking {
    /// What the caller of the run gave along.
    pub app: App,
    /// The agent.
    pub agent: Agent,
}

type Made<T> = Arc<dyn Fn(Asking) -> BoxFuture<'static, Result<T, BoxError>> + Send + Sync>;

/// What an agent is told to be.
#[derive(Clone, Default)]
pub enum Instructions {
    /// Nothing.
    #[default]
    None,
    /// Always the same.
    Text(String),
    /// Made anew for each turn.
    Made(Made<String>),
}

impl Instructions {
    pub(crate) async fn resolve(&self, app: &App, agent: &Agent) -> Result<Option<String>> {
        match self {
            Self::None => Ok(None),
            Self::Text(text) => Ok(Some(text.clone())),
            Self::Made(make) => make(Asking { app: app.clone(), agent: agent.clone() })
                .await
                .map(Some)
                .map_err(|source| AgentError::Callback { what: format!("instructions of {}", agent.name()), source }),
        }
    }
}

/// A prompt that the model's server keeps.
#[derive(Clone, Default)]
pub enum PromptSource {
    /// None.
    #[default]
    None,
    /// Always the same.
    Given(Prompt),
    /// Chosen anew for each turn.
    Made(Made<Prompt>),
}

impl PromptSource {
    pub(crate) async fn resolve(&self, app: &App, agent: &Agent) -> Result<Option<Prompt>> {
        match self {
            Self::None => Ok(None),
            Self::Given(prompt) => Ok(Some(prompt.clone())),
            Self::Made(make) => make(Asking { app: app.clone(), agent: agent.clone() })
                .await
                .map(Some)
                .map_err(|source| AgentError::Callback { what: format!("prompt of {}", agent.name()), source }),
        }
    }
}

/// Which model thinks.
#[derive(Clone, Debug, Default)]
pub enum ModelChoice {
    /// The usual one.
    #[default]
    Usual,
    /// The one of this name.
    Named(String),
    /// This one.
    Given(Arc<dyn Model>),
}

/// What a function tool answered, for whoever decides whether that ends the run.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolResult {
    /// Which tool.
    pub tool: String,
    /// Which call.
    pub call_id: String,
    /// What it answered.
    pub output: ToolOutput,
}

type Decide = Arc<dyn Fn(App, Vec<ToolResult>) -> BoxFuture<'static, Result<Option<Value>, BoxError>> + Send + Sync>;

/// What happens after tools were used.
#[derive(Clone, Default)]
pub enum ToolUse {
    /// The model is asked again.
    #[default]
    RunAgain,
    /// The first answer is the final output.
    StopOnFirst,
    /// The first answer of one of these tools is the final output; else the model is asked again.
    StopAt(Vec<String>),
    /// This function decides: `Some` is the final output.
    Decide(Decide),
}

impl ToolUse {
    /// Decided by a function: `Some` is the final output, `None` asks the model again.
    pub fn decide<F, Fut>(decide: F) -> Self
    where
        F: Fn(App, Vec<ToolResult>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Option<Value>, BoxError>> + Send + 'static,
    {
        Self::Decide(Arc::new(move |app, results| decide(app, results).boxed()))
    }

    pub(crate) async fn verdict(&self, app: &App, results: Vec<ToolResult>) -> Result<Option<Value>> {
        if results.is_empty() {
            return Ok(None);
        }
        match self {
            Self::RunAgain => Ok(None),
            Self::StopOnFirst => Ok(results.first().map(|result| result.output.value())),
            Self::StopAt(names) => {
                Ok(results.iter().find(|result| names.contains(&result.tool)).map(|result| result.output.value()))
            }
            Self::Decide(decide) => decide(app.clone(), results)
                .await
                .map_err(|source| AgentError::Callback { what: "the decision after tool use".to_owned(), source }),
        }
    }
}

impl fmt::Debug for ToolUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RunAgain => f.write_str("RunAgain"),
            Self::StopOnFirst => f.write_str("StopOnFirst"),
            Self::StopAt(names) => f.debug_tuple("StopAt").field(names).finish(),
            Self::Decide(_) => f.write_str("Decide(..)"),
        }
    }
}
