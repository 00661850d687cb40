//! Calls the hooks of a run and of its agents.

use serde_json::Value;

use super::driver::Driver;
use crate::{AgentError, HookContext, Hooks, Item, ModelReply, Result, ToolContext, ToolOutput, Usage, hooks::Told};

/// Point in a run at which hooks are called.
#[derive(Clone, Copy)]
pub(super) enum Moment<'a> {
    AgentStart,
    AgentEnd(&'a Value),
    LlmStart(Option<&'a str>, &'a [Item]),
    LlmEnd(&'a ModelReply),
    ToolStart(&'a ToolContext),
    ToolEnd(&'a ToolContext, &'a ToolOutput),
    Handoff { from: &'a str, to: &'a str },
}

impl Moment<'_> {
    fn hook(self) -> &'static str {
        match self {
            Self::AgentStart => "on_agent_start",
            Self::AgentEnd(_) => "on_agent_end",
            Self::LlmStart(..) => "on_llm_start",
            Self::LlmEnd(_) => "on_llm_end",
            Self::ToolStart(_) => "on_tool_start",
            Self::ToolEnd(..) => "on_tool_end",
            Self::Handoff { .. } => "on_handoff",
        }
    }

    async fn tell(self, hooks: Option<&dyn Hooks>, at: &HookContext) -> Told {
        let Some(hooks) = hooks else { return Ok(()) };
        match self {
            Self::AgentStart => hooks.on_agent_start(at).await,
            Self::AgentEnd(output) => hooks.on_agent_end(at, output).await,
            Self::LlmStart(instructions, input) => hooks.on_llm_start(at, instructions, input).await,
            Self::LlmEnd(reply) => hooks.on_llm_end(at, reply).await,
            Self::ToolStart(call) => hooks.on_tool_start(at, call).await,
            Self::ToolEnd(call, output) => hooks.on_tool_end(at, call, output).await,
            Self::Handoff { from, to } => hooks.on_handoff(at, from, to).await,
        }
    }
}

impl Driver {
    /// Calls the hooks of the run and of the current agent concurrently.
    pub(super) async fn call_hooks(&self, moment: Moment<'_>) -> Result<()> {
        self.call_hooks_of(self.run.agent(), moment).await
    }

    /// Calls the hooks of the run and of the agent with this key concurrently.
    pub(super) async fn call_hooks_of(&self, key: &str, moment: Moment<'_>) -> Result<()> {
        let of_agent = self.roster.agent(key)?.parts().hooks.as_deref();
        let of_run = self.hooks.as_deref();
        if of_run.is_none() && of_agent.is_none() {
            return Ok(());
        }
        let at = HookContext {
            agent: key.to_owned(),
            app: self.app.clone(),
            turn: self.run.turn(),
            usage: Usage { entries: Vec::new(), ..self.run.usage().clone() },
        };
        let both = futures::future::try_join(moment.tell(of_run, &at), moment.tell(of_agent, &at)).await;
        both.map(drop).map_err(|source| AgentError::Callback { what: format!("hook {}", moment.hook()), source })
    }
}
