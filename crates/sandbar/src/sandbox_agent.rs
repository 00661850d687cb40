//! An agent that works on a machine: an [`Agent`], and what a fresh workspace for it looks like.

use std::{fmt, sync::Arc};

use sandbar_agent::{
    Agent, App, BoxError, Handoff, Hooks, ModelSettings, OutputType, Prompt, Tool,
    agent::{AgentTool, ModelChoice, ToolUse},
    guardrail::{InputGuardrail, OutputGuardrail},
};
use sandbar_sandbox::Manifest;

use crate::{Capabilities, prompt::Base};

/// An agent that works on a machine. What it works in is declared by its [`Manifest`], what it can do there by its
/// [`Capabilities`]; where it works is said per run, with [`sandbox`](crate::SandboxRun::sandbox). Everything an [`Agent`]
/// has it has too, and it can stand wherever an agent can: in handoffs, as a tool, in many runs at once.
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

/// What a sandbox has to know of an agent.
#[derive(Clone, Default)]
pub(crate) struct Needs {
    pub(crate) manifest: Option<Manifest>,
    pub(crate) base: Base,
    pub(crate) capabilities: Capabilities,
    pub(crate) run_as: Option<String>,
}

impl SandboxAgent {
    /// An agent with the usual capabilities and an empty workspace.
    pub fn new(name: impl Into<String>) -> Self {
        Self::from(Agent::new(name))
    }

    fn needing(self, change: impl FnOnce(&mut Needs)) -> Self {
        let mut needs = self.needs().clone();
        change(&mut needs);
        Self(self.0.needing(App::new(needs)))
    }

    fn needs(&self) -> &Needs {
        // Made in `from`, and nothing here takes it away again.
        static NOTHING: std::sync::LazyLock<Needs> = std::sync::LazyLock::new(Needs::default);
        self.0.needs().unwrap_or(&NOTHING)
    }

    /// How a fresh workspace begins, unless the run says otherwise.
    #[must_use]
    pub fn manifest(self, manifest: Manifest) -> Self {
        self.needing(|needs| needs.manifest = Some(manifest))
    }

    /// What it can do there, in place of the usual three: [`Filesystem`](crate::Filesystem), [`Shell`](crate::Shell) and
    /// [`Compaction`](crate::Compaction).
    #[must_use]
    pub fn capabilities(self, capabilities: impl Into<Capabilities>) -> Self {
        let capabilities = capabilities.into();
        self.needing(|needs| needs.capabilities = capabilities)
    }

    /// One capability more.
    #[must_use]
    pub fn capability(self, capability: impl crate::Capability + 'static) -> Self {
        self.needing(|needs| needs.capabilities = std::mem::take(&mut needs.capabilities).with(capability))
    }

    /// What it is told before its own instructions, in place of the usual rules for working in a workspace.
    #[must_use]
    pub fn base_instructions(self, text: impl Into<String>) -> Self {
        self.needing(|needs| needs.base = Base::Text(text.into()))
    }

    /// The same, made from the workspace's manifest.
    #[must_use]
    pub fn base_instructions_from(self, make: impl Fn(&Manifest) -> String + Send + Sync + 'static) -> Self {
        self.needing(|needs| needs.base = Base::Made(Arc::new(make)))
    }

    /// Whose identity it acts under on the machine.
    #[must_use]
    pub fn run_as(self, user: impl Into<String>) -> Self {
        self.needing(|needs| needs.run_as = Some(user.into()))
    }

    /// The agent, for whoever takes any agent.
    #[must_use]
    pub fn agent(&self) -> &Agent {
        &self.0
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// This agent as a tool of another. It has a sandbox of its own in the outer run's configuration, unless it gets
    /// [another](crate::SandboxRun::sandbox) or [shares](AgentTool::share_place) its caller's.
    pub fn as_tool(&self, name: impl Into<String>, description: impl Into<String>) -> AgentTool {
        self.0.as_tool(name, description)
    }

    /// What it is told to be, made anew for each turn.
    #[must_use]
    pub fn instructions_from<F, Fut>(self, make: F) -> Self
    where
        F: Fn(App, Agent) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<String, BoxError>> + Send + 'static,
    {
        Self(self.0.instructions_from(make))
    }

    /// A prompt that the model's server keeps, chosen anew for each turn.
    #[must_use]
    pub fn prompt_from<F, Fut>(self, make: F) -> Self
    where
        F: Fn(App, Agent) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Prompt, BoxError>> + Send + 'static,
    {
        Self(self.0.prompt_from(make))
    }

    /// The shape of its final output: any type with a schema.
    #[must_use]
    pub fn output<T: schemars::JsonSchema + serde::de::DeserializeOwned + 'static>(self) -> Self {
        Self(self.0.output::<T>())
    }
}

/// What every agent has.
macro_rules! as_any_agent {
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

as_any_agent! {
    /// The same agent under another name.
    renamed(name: impl Into<String>);
    /// What it is told to be.
    instructions(text: impl Into<String>);
    /// A prompt that the model's server keeps.
    prompt(prompt: Prompt);
    /// Something it may use besides its capabilities.
    tool(tool: impl Tool + 'static);
    /// More it may use.
    with_tools(tools: impl IntoIterator<Item = Arc<dyn Tool>>);
    /// Another agent it may hand the conversation to.
    handoff(to: impl Into<Handoff>);
    /// What it is good for, for agents that may hand over to it.
    handoff_description(text: impl Into<String>);
    /// The model that thinks for it: a name, or a model itself.
    model(model: impl Into<ModelChoice>);
    /// How its model is asked.
    settings(settings: ModelSettings);
    /// The shape of its final output, made by hand.
    output_as(output: OutputType);
    /// Looks at what a run starts with, while the model is already asked.
    input_guardrail(guardrail: InputGuardrail);
    /// Looks at what a run starts with, before anything else happens.
    blocking_guardrail(guardrail: InputGuardrail);
    /// Looks at what a run ends with.
    output_guardrail(guardrail: OutputGuardrail);
    /// Told what happens to this agent.
    hooks(hooks: impl Hooks + 'static);
    /// What happens after tools were used.
    tool_use(behavior: ToolUse);
    /// Keeps `tool_choice` also after a tool was used.
    keep_tool_choice();
}

/// Any agent becomes one that works on a machine.
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
