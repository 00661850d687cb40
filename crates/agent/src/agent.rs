//! An agent: its instructions, model, tools, handoffs and settings.

mod choices;
mod nested;
pub(crate) mod output;
mod roster;

use std::{fmt, sync::Arc};

use futures::future::FutureExt as _;

pub(crate) use self::{choices::InstructionsContext, nested::NestedEnvironment, roster::Roster};
pub use self::{
    choices::{Instructions, ModelChoice, PromptSource, ToolResult, ToolUse},
    nested::{AgentTool, NestedEvent},
};
use crate::{
    App, BoxError, Handoff, Hooks, Model, ModelSettings, OutputType, Prompt, Tool,
    guardrail::{InputGuardrail, OutputGuardrail, Timing},
};

/// An agent. Cheap to clone. No run changes it, and one value can be used in many runs at once.
///
/// ```
/// use sandbar_agent::{Agent, ModelSettings};
///
/// let billing = Agent::new("billing").instructions("You answer questions about invoices.");
/// let triage = Agent::new("triage")
///     .model("gpt-5.5")
///     .instructions("Find out what the person wants, then hand over.")
///     .handoff(billing);
/// assert_eq!(triage.name(), "triage");
/// ```
#[derive(Clone)]
pub struct Agent(Arc<Parts>);

#[derive(Clone)]
pub(crate) struct Parts {
    pub(crate) name: String,
    pub(crate) handoff_description: Option<String>,
    pub(crate) instructions: Instructions,
    pub(crate) prompt: PromptSource,
    pub(crate) tools: Vec<Arc<dyn Tool>>,
    pub(crate) handoffs: Vec<Handoff>,
    pub(crate) model: ModelChoice,
    pub(crate) settings: Option<ModelSettings>,
    pub(crate) input_guardrails: Vec<(Timing, InputGuardrail)>,
    pub(crate) output_guardrails: Vec<OutputGuardrail>,
    pub(crate) output: OutputType,
    pub(crate) hooks: Option<Arc<dyn Hooks>>,
    pub(crate) tool_use: ToolUse,
    pub(crate) keeps_tool_choice: bool,
    pub(crate) needs: App,
}

impl Agent {
    /// An agent that answers in plain text and has no tools.
    pub fn new(name: impl Into<String>) -> Self {
        Self(Arc::new(Parts {
            name: name.into(),
            handoff_description: None,
            instructions: Instructions::None,
            prompt: PromptSource::None,
            tools: Vec::new(),
            handoffs: Vec::new(),
            model: ModelChoice::Usual,
            settings: None,
            input_guardrails: Vec::new(),
            output_guardrails: Vec::new(),
            output: OutputType::default(),
            hooks: None,
            tool_use: ToolUse::RunAgain,
            keeps_tool_choice: false,
            needs: App::default(),
        }))
    }

    fn with(mut self, change: impl FnOnce(&mut Parts)) -> Self {
        change(Arc::make_mut(&mut self.0));
        self
    }

    pub(crate) fn parts(&self) -> &Parts {
        &self.0
    }

    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Name of the agent.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Type of the final output.
    #[must_use]
    pub fn output_type(&self) -> &OutputType {
        &self.0.output
    }

    /// Tools of the agent.
    #[must_use]
    pub fn tools(&self) -> &[Arc<dyn Tool>] {
        &self.0.tools
    }

    /// The same agent under another name.
    #[must_use]
    pub fn renamed(self, name: impl Into<String>) -> Self {
        self.with(|parts| parts.name = name.into())
    }

    /// Sets the instructions.
    #[must_use]
    pub fn instructions(self, text: impl Into<String>) -> Self {
        self.with(|parts| parts.instructions = Instructions::Text(text.into()))
    }

    /// Sets a function that makes the instructions for each turn.
    #[must_use]
    pub fn instructions_from<F, Fut>(self, make: F) -> Self
    where
        F: Fn(App, Agent) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<String, BoxError>> + Send + 'static,
    {
        let make = Arc::new(move |InstructionsContext { app, agent }| make(app, agent).boxed());
        self.with(|parts| parts.instructions = Instructions::Made(make))
    }

    /// Sets a prompt that is stored on the model's server.
    #[must_use]
    pub fn prompt(self, prompt: Prompt) -> Self {
        self.with(|parts| parts.prompt = PromptSource::Given(prompt))
    }

    /// Sets a function that chooses the stored prompt for each turn.
    #[must_use]
    pub fn prompt_from<F, Fut>(self, make: F) -> Self
    where
        F: Fn(App, Agent) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Prompt, BoxError>> + Send + 'static,
    {
        let make = Arc::new(move |InstructionsContext { app, agent }| make(app, agent).boxed());
        self.with(|parts| parts.prompt = PromptSource::Made(make))
    }

    /// Adds a tool.
    #[must_use]
    pub fn tool(self, tool: impl Tool + 'static) -> Self {
        self.with(|parts| parts.tools.push(Arc::new(tool)))
    }

    /// Adds tools.
    #[must_use]
    pub fn with_tools(self, tools: impl IntoIterator<Item = Arc<dyn Tool>>) -> Self {
        self.with(|parts| parts.tools.extend(tools))
    }

    /// Adds an agent that this one may hand the conversation over to: an [`Agent`], or a [`Handoff`] with options.
    #[must_use]
    pub fn handoff(self, to: impl Into<Handoff>) -> Self {
        self.with(|parts| parts.handoffs.push(to.into()))
    }

    /// Describes this agent to the agents that may hand over to it.
    #[must_use]
    pub fn handoff_description(self, text: impl Into<String>) -> Self {
        self.with(|parts| parts.handoff_description = Some(text.into()))
    }

    /// Sets the model, by name or by value.
    #[must_use]
    pub fn model(self, model: impl Into<ModelChoice>) -> Self {
        self.with(|parts| parts.model = model.into())
    }

    /// Sets the model settings, in place of the model's defaults.
    #[must_use]
    pub fn settings(self, settings: ModelSettings) -> Self {
        self.with(|parts| parts.settings = Some(settings))
    }

    /// Sets the type of the final output: any type with a JSON schema.
    #[must_use]
    pub fn output<T: schemars::JsonSchema + serde::de::DeserializeOwned + 'static>(self) -> Self {
        self.output_as(OutputType::of::<T>())
    }

    /// Sets the type of the final output by an [`OutputType`].
    #[must_use]
    pub fn output_as(self, output: OutputType) -> Self {
        self.with(|parts| parts.output = output)
    }

    /// Adds a guardrail that checks the input of the run during the first model call.
    #[must_use]
    pub fn input_guardrail(self, guardrail: InputGuardrail) -> Self {
        self.with(|parts| parts.input_guardrails.push((Timing::Parallel, guardrail)))
    }

    /// Adds a guardrail that checks the input of the run before the first model call.
    #[must_use]
    pub fn blocking_guardrail(self, guardrail: InputGuardrail) -> Self {
        self.with(|parts| parts.input_guardrails.push((Timing::Blocking, guardrail)))
    }

    /// Adds a guardrail that checks the final output of the run.
    #[must_use]
    pub fn output_guardrail(self, guardrail: OutputGuardrail) -> Self {
        self.with(|parts| parts.output_guardrails.push(guardrail))
    }

    /// Sets hooks that are called for this agent.
    #[must_use]
    pub fn hooks(self, hooks: impl Hooks + 'static) -> Self {
        self.with(|parts| parts.hooks = Some(Arc::new(hooks)))
    }

    /// Sets what happens after tools were used.
    #[must_use]
    pub fn tool_use(self, behavior: ToolUse) -> Self {
        self.with(|parts| parts.tool_use = behavior)
    }

    /// Keeps `tool_choice` after a tool was used. By default it is dropped then, so that the model can finish.
    #[must_use]
    pub fn keep_tool_choice(self) -> Self {
        self.with(|parts| parts.keeps_tool_choice = true)
    }

    /// Sets data for the environment. An agent with such data cannot run without an environment.
    #[must_use]
    pub fn needing(self, needs: App) -> Self {
        self.with(|parts| parts.needs = needs)
    }

    /// The data for the environment, if it is a `T`.
    #[must_use]
    pub fn needs<T: std::any::Any + Send + Sync>(&self) -> Option<&T> {
        self.0.needs.get()
    }

    /// This agent as a tool of another agent: each call is a run of its own and answers with the final output.
    pub fn as_tool(&self, name: impl Into<String>, description: impl Into<String>) -> AgentTool {
        AgentTool::new(self.clone(), name.into(), description.into())
    }
}

impl fmt::Debug for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tools: Vec<String> = self.0.tools.iter().map(|tool| tool.spec().name).collect();
        f.debug_struct("Agent").field("name", &self.0.name).field("tools", &tools).finish_non_exhaustive()
    }
}

impl From<&Self> for Agent {
    fn from(agent: &Self) -> Self {
        agent.clone()
    }
}

impl From<&str> for ModelChoice {
    fn from(name: &str) -> Self {
        Self::Named(name.to_owned())
    }
}

impl From<String> for ModelChoice {
    fn from(name: String) -> Self {
        Self::Named(name)
    }
}

impl From<Arc<dyn Model>> for ModelChoice {
    fn from(model: Arc<dyn Model>) -> Self {
        Self::Given(model)
    }
}

impl<M: Model + 'static> From<M> for ModelChoice {
    fn from(model: M) -> Self {
        Self::Given(Arc::new(model))
    }
}
