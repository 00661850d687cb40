//! Handoffs: the tool with which a model hands the conversation over, and the filter of the history that the next agent
//! sees.

use std::{fmt, sync::Arc};

use futures::future::{BoxFuture, FutureExt as _};
use serde_json::{Value, json};

use crate::{Agent, App, BoxError, Enabled, Item, Result, RunItem, ToolKind, ToolSpec};

/// A handoff to another agent.
#[derive(Clone)]
pub struct Handoff {
    pub(crate) target: Target,
    pub(crate) tool_name: Option<String>,
    pub(crate) description: Option<String>,
    pub(crate) parameters: Option<ToolKind>,
    pub(crate) on_handoff: Option<OnHandoff>,
    pub(crate) filter: Option<InputFilter>,
    pub(crate) enabled: Enabled,
}

/// Target of a handoff.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    Agent(Agent),
    Named(String),
}

type OnHandoff = Arc<dyn Fn(App, Value) -> BoxFuture<'static, Result<(), BoxError>> + Send + Sync>;

/// Changes the history that the next agent sees.
#[derive(Clone)]
pub struct InputFilter(Arc<dyn Fn(HandoffInput) -> HandoffInput + Send + Sync>);

impl InputFilter {
    /// A filter that calls a function.
    pub fn new(filter: impl Fn(HandoffInput) -> HandoffInput + Send + Sync + 'static) -> Self {
        Self(Arc::new(filter))
    }

    /// Removes all calls and their outputs.
    #[must_use]
    pub fn without_tools() -> Self {
        fn talk(item: &Item) -> bool {
            !item.is_call() && !item.is_answer() && item.kind() != "reasoning"
        }
        Self::new(|mut seen| {
            seen.history.retain(talk);
            seen.before.retain(|item| talk(&item.raw));
            seen.new.retain(|item| talk(&item.raw));
            seen
        })
    }

    pub(crate) fn apply(&self, input: HandoffInput) -> HandoffInput {
        (self.0)(input)
    }
}

impl fmt::Debug for InputFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("InputFilter(..)")
    }
}

/// History that the next agent sees, in three parts. A filter does not change the items of the run itself.
#[derive(Clone, Debug)]
pub struct HandoffInput {
    /// Input of the run.
    pub history: Vec<Item>,
    /// Items before the turn of the handoff.
    pub before: Vec<RunItem>,
    /// Items of the turn of the handoff, including the handoff and its output.
    pub new: Vec<RunItem>,
}

impl Handoff {
    /// A handoff to this agent.
    #[must_use]
    pub fn to(agent: Agent) -> Self {
        Self::of(Target::Agent(agent))
    }

    /// A handoff to the agent with this key, which another handoff of the same run must contain. This allows cycles of
    /// handoffs.
    pub fn to_named(name: impl Into<String>) -> Self {
        Self::of(Target::Named(name.into()))
    }

    fn of(target: Target) -> Self {
        Self {
            target,
            tool_name: None,
            description: None,
            parameters: None,
            on_handoff: None,
            filter: None,
            enabled: Enabled::Always,
        }
    }

    /// Sets the name of the tool that the model calls.
    #[must_use]
    pub fn tool_name(mut self, name: impl Into<String>) -> Self {
        self.tool_name = Some(name.into());
        self
    }

    /// Sets the description of the tool.
    #[must_use]
    pub fn description(mut self, text: impl Into<String>) -> Self {
        self.description = Some(text.into());
        self
    }

    /// Sets a function that is called when the handoff takes place.
    #[must_use]
    pub fn on_handoff<F, Fut>(mut self, tell: F) -> Self
    where
        F: Fn(App) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), BoxError>> + Send + 'static,
    {
        self.on_handoff = Some(Arc::new(move |app, _| tell(app).boxed()));
        self
    }

    /// Sets the type of the arguments that the model passes, and a function that is called with them when the handoff takes
    /// place.
    #[must_use]
    pub fn with_input<T, F, Fut>(mut self, tell: F) -> Self
    where
        T: schemars::JsonSchema + serde::de::DeserializeOwned,
        F: Fn(App, T) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), BoxError>> + Send + 'static,
    {
        self.parameters = Some(ToolSpec::parameters_of::<T>());
        self.on_handoff = Some(Arc::new(move |app, value| match serde_json::from_value(value) {
            Ok(input) => tell(app, input).boxed(),
            Err(error) => futures::future::ready(Err(error.into())).boxed(),
        }));
        self
    }

    /// Sets a filter of the history that the next agent sees.
    #[must_use]
    pub fn filter(mut self, filter: InputFilter) -> Self {
        self.filter = Some(filter);
        self
    }

    /// Sets whether the handoff is offered.
    #[must_use]
    pub fn enabled(mut self, enabled: Enabled) -> Self {
        self.enabled = enabled;
        self
    }

    /// Specification of the tool for the model.
    pub(crate) fn spec(&self, target: &Agent) -> ToolSpec {
        let name = self.tool_name.clone().unwrap_or_else(|| tool_name_for(target.name()));
        let description = self.description.clone().unwrap_or_else(|| {
            let about = target.parts().handoff_description.as_deref().unwrap_or_default();
            format!("Handoff to the {} agent to handle the request. {about}", target.name())
        });
        let nothing = || json!({ "type": "object", "properties": {}, "required": [], "additionalProperties": false });
        let usual = || ToolKind::Function { parameters: nothing(), strict: true };
        ToolSpec { name, description, kind: self.parameters.clone().unwrap_or_else(usual) }
    }
}

/// Name `transfer_to_…`, with characters that every server accepts.
fn tool_name_for(agent: &str) -> String {
    let name: String =
        agent.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' }).collect();
    format!("transfer_to_{name}")
}

impl From<Agent> for Handoff {
    fn from(agent: Agent) -> Self {
        Self::to(agent)
    }
}

impl From<&Agent> for Handoff {
    fn from(agent: &Agent) -> Self {
        Self::to(agent.clone())
    }
}

impl fmt::Debug for Handoff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.target {
            Target::Agent(agent) => write!(f, "Handoff({})", agent.name()),
            Target::Named(name) => write!(f, "Handoff({name})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_sees_a_function_named_after_the_agent() {
        let agent = Agent::new("Émile's Refunds 2").handoff_description("Knows refunds.");
        let spec = Handoff::to(agent.clone()).spec(&agent);
        assert_eq!(spec.name, "transfer_to__mile_s_refunds_2");
        assert_eq!(spec.description, "Handoff to the Émile's Refunds 2 agent to handle the request. Knows refunds.");
    }
}
