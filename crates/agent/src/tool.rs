//! The seam to whatever an agent can use: what the model sees of a tool, how it is called, and by which rules.

mod answer;
mod custom;
mod function;
mod hosted;
mod rules;
mod spec;

use std::{any::Any, fmt, sync::Arc};

use async_trait::async_trait;

pub(crate) use self::answer::{MAX_DEPTH, deeper_than};
pub use self::{
    answer::{IntoToolOutput, Json, ToolOutput},
    custom::CustomTool,
    function::{ArgumentsError, FunctionSchema, FunctionTool, NoArguments, decode_arguments},
    hosted::HostedTool,
    rules::{Approval, Enabled, OnFailure, OnTimeout, Ruled, ToolExt, ToolRules},
    spec::{Grammar, ToolKind, ToolSpec},
};
use crate::{
    BoxError, RunEvent,
    agent::AgentTool,
    runner::Events,
    secrets::{self, Hiding},
};

/// Something an agent can use. A failure is told to the model, unless the [rules](ToolRules) say that it ends the run.
///
/// Most tools are made by `#[tool]` on an async function, or by [`FunctionTool`](crate::FunctionTool); this is what they are
/// made of.
#[async_trait]
pub trait Tool: Send + Sync {
    /// What the model sees. Asked once per turn, and must not change within a run.
    fn spec(&self) -> ToolSpec;

    /// Approval, timeout, guardrails and the like.
    fn rules(&self) -> &ToolRules {
        ToolRules::usual()
    }

    /// Does it. `arguments` is what the model wrote: for a function a JSON object that is known to parse, for a freeform
    /// tool any text.
    async fn call(&self, call: &ToolContext, arguments: &str) -> Result<ToolOutput, BoxError>;

    /// Why it cannot be offered as it was meant, if so: a run refuses to begin with such a tool.
    fn fault(&self) -> Option<String> {
        None
    }

    /// The agent behind it, if it is one: then the run is nested and `call` is never used.
    fn as_agent(&self) -> Option<&AgentTool> {
        None
    }
}

/// Which call this is, and what the caller of the run gave along. Cheap to clone.
#[derive(Clone)]
pub struct ToolContext {
    pub(crate) facts: Arc<CallFacts>,
    pub(crate) app: App,
    pub(crate) events: Events,
    pub(crate) hiding: Hiding,
}

#[derive(Debug)]
pub(crate) struct CallFacts {
    pub(crate) tool: String,
    pub(crate) call_id: String,
    pub(crate) arguments: String,
    pub(crate) agent: String,
    pub(crate) run: String,
}

impl ToolContext {
    /// The context of a call that no run makes, for the tests of tools.
    pub fn for_test(tool: impl Into<String>, app: App) -> Self {
        let facts = CallFacts {
            tool: tool.into(),
            call_id: "call_test".to_owned(),
            arguments: String::new(),
            agent: "test".to_owned(),
            run: "run_test".to_owned(),
        };
        Self { facts: Arc::new(facts), app, events: Events::None, hiding: None }
    }

    /// The tool's name.
    #[must_use]
    pub fn tool(&self) -> &str {
        &self.facts.tool
    }

    /// Which call.
    #[must_use]
    pub fn call_id(&self) -> &str {
        &self.facts.call_id
    }

    /// What the model wrote.
    #[must_use]
    pub fn arguments(&self) -> &str {
        &self.facts.arguments
    }

    /// The agent that calls.
    #[must_use]
    pub fn agent(&self) -> &str {
        &self.facts.agent
    }

    /// The run it is in.
    #[must_use]
    pub fn run(&self) -> &str {
        &self.facts.run
    }

    /// Tells the listeners of the run how far the call is. The model does not hear it. Values of the environment's secrets
    /// are hidden, also where they are cut; an end that could become one is told later, at the latest when the call is over.
    pub async fn tell(&self, text: impl Into<String>) {
        if self.is_heard() {
            self.tell_hidden(secrets::pass(&self.hiding, Some(text.into()))).await;
        }
    }

    /// Tells what was held back.
    pub(crate) async fn tell_rest(&self) {
        if self.is_heard() {
            self.tell_hidden(secrets::pass(&self.hiding, None)).await;
        }
    }

    async fn tell_hidden(&self, text: Option<String>) {
        if let Some(text) = text {
            self.events.tell(RunEvent::Progress { call_id: self.call_id().to_owned(), text }).await;
        }
    }

    /// Whether anybody listens to the run.
    #[must_use]
    pub fn is_heard(&self) -> bool {
        !matches!(self.events, Events::None)
    }

    /// What the caller of the run gave along, if it is a `T`.
    #[must_use]
    pub fn app<T: Any + Send + Sync>(&self) -> Option<&T> {
        self.app.get()
    }
}

impl fmt::Debug for ToolContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.facts.fmt(f)
    }
}

/// What the caller of a run gives along for tools, hooks and instructions. The model never sees it, and it is never saved.
#[derive(Clone, Default)]
pub struct App(Option<Arc<dyn Any + Send + Sync>>);

impl App {
    /// A value to give along.
    pub fn new<T: Any + Send + Sync>(value: T) -> Self {
        Self(Some(Arc::new(value)))
    }

    pub(crate) fn is_some(&self) -> bool {
        self.0.is_some()
    }

    /// The value, if it is a `T`.
    #[must_use]
    pub fn get<T: Any + Send + Sync>(&self) -> Option<&T> {
        self.0.as_deref()?.downcast_ref()
    }
}

impl fmt::Debug for App {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "App(..)" } else { "App(none)" })
    }
}
