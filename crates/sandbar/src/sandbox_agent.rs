//! An agent that works on a machine: an [`Agent`], its manifest and its capabilities.

use std::{fmt, sync::Arc};

use sandbar_agent::{
    Agent, App, BoxError, Handoff, Hooks, ModelSettings, OutputType, Prompt, Tool,
    agent::{AgentTool, ModelChoice, ToolUse},
    guardrail::{InputGuardrail, OutputGuardrail},
};
use sandbar_sandbox::Manifest;

use crate::{Capabilities, prompt::Base};

/// An agent that works on a machine. Its [`Manifest`] declares its workspace, its [`Capabilities`] decide what it can do
/// there, and each run decides where its machine is ([`sandbox`](crate::SandboxRun::sandbox)). It has all settings of an
/// [`Agent`] and can be used like an agent: in handoffs, as a tool, in many runs at the same time.
///
/// ```
/// use sandbar::{client::UnixLocal, prelude::*};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), BoxError> {
/// # let model = ScriptedModel::new([
/// #     vec![Item::function_call("call_1", "exec_command", r#"{"cmd":"cat brief.md"}"#)],
/// #     vec![Item::assistant("The renewal is due in April (brief.md).")],
/// # ]);
/// let analyst = SandboxAgent::new("analyst")
///     .instructions("Read the workspace, answer in one sentence, name your source.")
///     .manifest(Manifest::new().file("brief.md", "Renewal date: 2026-04-15.\n"))
///     .model(model);
/// let result = run(&analyst, "When is the renewal?").sandbox(UnixLocal::new()).await?;
/// assert_eq!(result.final_output(), "The renewal is due in April (brief.md).");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct SandboxAgent(Agent);

/// Settings of an agent that its sandbox reads.
#[derive(Clone, Default)]
pub(crate) struct Needs {
    pub(crate) manifest: Option<Manifest>,
    pub(crate) base: Base,
    pub(crate) capabilities: Capabilities,
    pub(crate) run_as: Option<String>,
}

impl SandboxAgent {
    /// An agent with the default capabilities and an empty workspace.
    pub fn new(name: impl Into<String>) -> Self {
        Self::from(Agent::new(name))
    }

    fn needing(self, change: impl FnOnce(&mut Needs)) -> Self {
        let mut needs = self.needs().clone();
        change(&mut needs);
        Self(self.0.needing(App::new(needs)))
    }

    fn needs(&self) -> &Needs {
        // `From<Agent>` always sets the needs; the default is never used.
        static DEFAULT: std::sync::LazyLock<Needs> = std::sync::LazyLock::new(Needs::default);
        self.0.needs().unwrap_or(&DEFAULT)
    }

    /// Sets the manifest of a fresh workspace; a manifest of the run takes precedence.
    #[must_use]
    pub fn manifest(self, manifest: Manifest) -> Self {
        self.needing(|needs| needs.manifest = Some(manifest))
    }

    /// Sets the capabilities, instead of the three default ones: [`Filesystem`](crate::Filesystem), [`Shell`](crate::Shell)
    /// and [`Compaction`](crate::Compaction).
    #[must_use]
    pub fn capabilities(self, capabilities: impl Into<Capabilities>) -> Self {
        let capabilities = capabilities.into();
        self.needing(|needs| needs.capabilities = capabilities)
    }

    /// Adds a capability.
    #[must_use]
    pub fn capability(self, capability: impl crate::Capability + 'static) -> Self {
        self.needing(|needs| needs.capabilities = std::mem::take(&mut needs.capabilities).with(capability))
    }

    /// Sets the base instructions, which precede the agent's own, instead of the default rules for work in a workspace.
    #[must_use]
    pub fn base_instructions(self, text: impl Into<String>) -> Self {
        self.needing(|needs| needs.base = Base::Text(text.into()))
    }

    /// Sets a function that writes the base instructions from the manifest of the workspace.
    #[must_use]
    pub fn base_instructions_from(self, make: impl Fn(&Manifest) -> String + Send + Sync + 'static) -> Self {
        self.needing(|needs| needs.base = Base::FromManifest(Arc::new(make)))
    }

    /// Sets the user of the machine that the agent acts as.
    #[must_use]
    pub fn run_as(self, user: impl Into<String>) -> Self {
        self.needing(|needs| needs.run_as = Some(user.into()))
    }

    /// The underlying [`Agent`], for code that takes any agent.
    #[must_use]
    pub fn agent(&self) -> &Agent {
        &self.0
    }

    /// Name of the agent.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// This agent as a tool of another agent. It has a sandbox of its own, with the configuration of the outer run, unless
    /// it has [another configuration](crate::SandboxRun::sandbox) or [shares](AgentTool::share_place) the sandbox of its
    /// caller.
    pub fn as_tool(&self, name: impl Into<String>, description: impl Into<String>) -> AgentTool {
        self.0.as_tool(name, description)
    }

    /// Sets a function that writes the instructions for each turn.
    #[must_use]
    pub fn instructions_from<F, Fut>(self, make: F) -> Self
    where
        F: Fn(App, Agent) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<String, BoxError>> + Send + 'static,
    {
        Self(self.0.instructions_from(make))
    }

    /// Sets a function that chooses, for each turn, a prompt that is stored on the model's server.
    #[must_use]
    pub fn prompt_from<F, Fut>(self, make: F) -> Self
    where
        F: Fn(App, Agent) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Prompt, BoxError>> + Send + 'static,
    {
        Self(self.0.prompt_from(make))
    }

    /// Sets the type of the final output: any type with a schema.
    #[must_use]
    pub fn output<T: schemars::JsonSchema + serde::de::DeserializeOwned + 'static>(self) -> Self {
        Self(self.0.output::<T>())
    }
}

/// Methods that pass a setting to the underlying [`Agent`].
macro_rules! delegate_to_agent {
    ($($(#[$doc:meta])* $method:ident($($argument:ident: $type:ty),*);)*) => {
        impl SandboxAgent { $(
            $(#[$doc])*
            #[must_use]
            pub fn $method(self $(, $argument: $type)*) -> Self {
                Self(self.0.$method($($argument),*))
            }
        )* }
    };
}

delegate_to_agent! {
    /// The same agent with another name.
    renamed(name: impl Into<String>);
    /// Sets the instructions.
    instructions(text: impl Into<String>);
    /// Sets a prompt that is stored on the model's server.
    prompt(prompt: Prompt);
    /// Adds a tool, besides those of the capabilities.
    tool(tool: impl Tool + 'static);
    /// Adds tools.
    with_tools(tools: impl IntoIterator<Item = Arc<dyn Tool>>);
    /// Adds an agent to which this agent may hand over the conversation.
    handoff(to: impl Into<Handoff>);
    /// Describes the purpose of this agent to agents that may hand over to it.
    handoff_description(text: impl Into<String>);
    /// Sets the model: its name, or a model itself.
    model(model: impl Into<ModelChoice>);
    /// Sets the settings of the model.
    settings(settings: ModelSettings);
    /// Sets an explicit type of the final output.
    output_as(output: OutputType);
    /// Adds a guardrail that checks the input of a run while the model already answers.
    input_guardrail(guardrail: InputGuardrail);
    /// Adds a guardrail that checks the input of a run before the model is asked.
    blocking_guardrail(guardrail: InputGuardrail);
    /// Adds a guardrail that checks the final output of a run.
    output_guardrail(guardrail: OutputGuardrail);
    /// Sets hooks, which are called for the events of this agent.
    hooks(hooks: impl Hooks + 'static);
    /// Sets what happens after a tool was called.
    tool_use(behavior: ToolUse);
    /// Keeps `tool_choice` also after a tool was called.
    keep_tool_choice();
}

/// Gives any agent a sandbox with the default capabilities.
impl From<Agent> for SandboxAgent {
    fn from(agent: Agent) -> Self {
        if agent.needs::<Needs>().is_some() { Self(agent) } else { Self(agent.needing(App::new(Needs::default()))) }
    }
}

impl From<SandboxAgent> for Agent {
    fn from(agent: SandboxAgent) -> Self {
        agent.0
    }
}

impl From<&SandboxAgent> for Agent {
    fn from(agent: &SandboxAgent) -> Self {
        agent.0.clone()
    }
}

impl From<SandboxAgent> for Handoff {
    fn from(agent: SandboxAgent) -> Self {
        Self::to(agent.0)
    }
}

impl From<&SandboxAgent> for Handoff {
    fn from(agent: &SandboxAgent) -> Self {
        Self::to(agent.0.clone())
    }
}

impl fmt::Debug for Needs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Needs").field("capabilities", &self.capabilities).finish_non_exhaustive()
    }
}
