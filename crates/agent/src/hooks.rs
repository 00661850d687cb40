//! Being told what happens in a run, at the moments where something can still be done about it.

use async_trait::async_trait;
use serde_json::Value;

use crate::{App, BoxError, Item, ModelReply, ToolContext, ToolOutput, Usage};

/// Where a run stands when a hook is called.
#[derive(Clone, Debug)]
pub struct HookContext {
    /// The agent at work.
    pub agent: String,
    /// What the caller of the run gave along.
    pub app: App,
    /// How many turns were finished.
    pub turn: u32,
    /// What the run has used so far, in sums.
    pub usage: Usage,
}

/// What a hook returns; an error ends the run.
pub type Told = Result<(), BoxError>;

/// Somebody who is told what happens. The same trait serves for a whole run and for one agent; those of the run and those
/// of the agent are called at the same time. All methods do nothing unless written.
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

    /// Before the model is asked; once, also if it must be asked again.
    async fn on_llm_start(&self, at: &HookContext, instructions: Option<&str>, input: &[Item]) -> Told {
        Ok(())
    }

    /// When the model has answered, before any tool is called.
    async fn on_llm_end(&self, at: &HookContext, reply: &ModelReply) -> Told {
        Ok(())
    }

    /// Before a tool is called. Not for calls that were refused, wait for a person, or are made by the model's server.
    async fn on_tool_start(&self, at: &HookContext, call: &ToolContext) -> Told {
        Ok(())
    }

    /// When a tool has answered.
    async fn on_tool_end(&self, at: &HookContext, call: &ToolContext, output: &ToolOutput) -> Told {
        Ok(())
    }

    /// When the conversation is handed over. Of the two agents' hooks, those of the one that hands over are called.
    async fn on_handoff(&self, at: &HookContext, from: &str, to: &str) -> Told {
        Ok(())
    }
}
