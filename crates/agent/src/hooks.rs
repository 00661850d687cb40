//! Hooks: methods that are called at defined points of a run.

use async_trait::async_trait;
use serde_json::Value;

use crate::{App, BoxError, Item, ModelReply, ToolContext, ToolOutput, Usage};

/// State of the run when a hook is called.
#[derive(Clone, Debug)]
pub struct HookContext {
    /// Key of the current agent.
    pub agent: String,
    /// The caller's [`App`] value.
    pub app: App,
    /// Number of finished turns.
    pub turn: u32,
    /// Usage of the run so far, as totals without the single requests.
    pub usage: Usage,
}

/// Result of a hook; an error ends the run.
pub type Told = Result<(), BoxError>;

/// Hooks of a whole run or of one agent; both are called concurrently. The default of each method does nothing.
#[async_trait]
#[expect(unused_variables, reason = "the names are the documentation of what a hook gets")]
pub trait Hooks: Send + Sync {
    /// Before the first model call of an agent, and after each handoff to it.
    async fn on_agent_start(&self, at: &HookContext) -> Told {
        Ok(())
    }

    /// When the final output is known, before output guardrails see it.
    async fn on_agent_end(&self, at: &HookContext, output: &Value) -> Told {
        Ok(())
    }

    /// Before the model is called. Retries do not call it again.
    async fn on_llm_start(&self, at: &HookContext, instructions: Option<&str>, input: &[Item]) -> Told {
        Ok(())
    }

    /// After the model has replied, before any tool is called.
    async fn on_llm_end(&self, at: &HookContext, reply: &ModelReply) -> Told {
        Ok(())
    }

    /// Before a tool is called. Not for calls that were rejected, wait for a person, or are made by the model's server.
    async fn on_tool_start(&self, at: &HookContext, call: &ToolContext) -> Told {
        Ok(())
    }

    /// After a tool has answered.
    async fn on_tool_end(&self, at: &HookContext, call: &ToolContext, output: &ToolOutput) -> Told {
        Ok(())
    }

    /// After a handoff. The hooks of the agent that hands over are called, not those of the next agent.
    async fn on_handoff(&self, at: &HookContext, from: &str, to: &str) -> Told {
        Ok(())
    }
}
