//! Parts of an agent that can be given in several ways: instructions, prompt, model, and what follows a tool call.

use std::{fmt, sync::Arc};

use futures::future::{BoxFuture, FutureExt as _};
use serde_json::Value;

use crate::{Agent, AgentError, App, BoxError, Model, Prompt, Result, ToolOutput};

/// Arguments of functions that make instructions or prompts.
#[derive(Clone, Debug)]
pub struct InstructionsContext {
    /// The caller's [`App`] value.
    pub app: App,
    /// The agent.
    pub agent: Agent,
}

type Maker<T> = Arc<dyn Fn(InstructionsContext) -> BoxFuture<'static, Result<T, BoxError>> + Send + Sync>;

/// Instructions of an agent.
#[derive(Clone, Default)]
pub enum Instructions {
    /// No instructions.
    #[default]
    None,
    /// Fixed text.
    Text(String),
    /// Made by a function for each turn.
    Made(Maker<String>),
}

impl Instructions {
    pub(crate) async fn resolve(&self, app: &App, agent: &Agent) -> Result<Option<String>> {
        match self {
            Self::None => Ok(None),
            Self::Text(text) => Ok(Some(text.clone())),
            Self::Made(make) => make(InstructionsContext { app: app.clone(), agent: agent.clone() })
                .await
                .map(Some)
                .map_err(|source| AgentError::Callback { what: format!("instructions of {}", agent.name()), source }),
        }
    }
}

/// Prompt that is stored on the model's server.
#[derive(Clone, Default)]
pub enum PromptSource {
    /// No prompt.
    #[default]
    None,
    /// Fixed prompt.
    Given(Prompt),
    /// Chosen by a function for each turn.
    Made(Maker<Prompt>),
}

impl PromptSource {
    pub(crate) async fn resolve(&self, app: &App, agent: &Agent) -> Result<Option<Prompt>> {
        match self {
            Self::None => Ok(None),
            Self::Given(prompt) => Ok(Some(prompt.clone())),
            Self::Made(make) => make(InstructionsContext { app: app.clone(), agent: agent.clone() })
                .await
                .map(Some)
                .map_err(|source| AgentError::Callback { what: format!("prompt of {}", agent.name()), source }),
        }
    }
}

/// Model of an agent.
#[derive(Clone, Debug, Default)]
pub enum ModelChoice {
    /// The default model.
    #[default]
    Usual,
    /// The model of this name.
    Named(String),
    /// This model.
    Given(Arc<dyn Model>),
}

/// Output of a function tool, for the function that decides whether it ends the run.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolResult {
    /// Name of the tool.
    pub tool: String,
    /// Id of the call.
    pub call_id: String,
    /// Output of the tool.
    pub output: ToolOutput,
}

type Decide = Arc<dyn Fn(App, Vec<ToolResult>) -> BoxFuture<'static, Result<Option<Value>, BoxError>> + Send + Sync>;

/// What happens after tools were used.
#[derive(Clone, Default)]
pub enum ToolUse {
    /// The model is asked again.
    #[default]
    RunAgain,
    /// The first tool output is the final output.
    StopOnFirst,
    /// The first output of one of these tools is the final output; otherwise the model is asked again.
    StopAt(Vec<String>),
    /// A function decides: `Some` is the final output.
    Decide(Decide),
}

impl ToolUse {
    /// A function decides: `Some` is the final output, `None` asks the model again.
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
