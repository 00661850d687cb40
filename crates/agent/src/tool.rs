//! The interface to tools: the specification that the model sees, the call, and the rules.

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

/// A tool that an agent can call. The model reads the error of a failed call, unless the [rules](ToolRules) say that a
/// failure ends the run.
///
/// Most tools are created by `#[tool]` on an async function, or by [`FunctionTool`](crate::FunctionTool); both implement
/// this trait.
#[async_trait]
pub trait Tool: Send + Sync {
    /// Specification of the tool for the model. Called once per turn; the result must not change within a run.
    fn spec(&self) -> ToolSpec;

    /// Rules of the tool: approval, timeout, guardrails.
    fn rules(&self) -> &ToolRules {
        ToolRules::usual()
    }

    /// Calls the tool. `arguments` is the text of the model: for a function, the valid text of a JSON object; for a freeform
    /// tool, any text.
    async fn call(&self, call: &ToolContext, arguments: &str) -> Result<ToolOutput, BoxError>;

    /// Fault of the schema of the tool, if it has one. A run does not start with such a tool.
    fn fault(&self) -> Option<String> {
        None
    }

    /// The agent behind the tool, if there is one. The call is then a nested run, and `call` is not used.
    fn as_agent(&self) -> Option<&AgentTool> {
        None
    }
}

/// Context of a call: its ids, and the [`App`] value of the run's caller. Cheap to clone.
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
    /// A context outside of a run, for tests of tools.
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

    /// Name of the tool.
    #[must_use]
    pub fn tool(&self) -> &str {
        &self.facts.tool
    }

    /// Id of the call.
    #[must_use]
    pub fn call_id(&self) -> &str {
        &self.facts.call_id
    }

    /// Arguments as the model wrote them.
    #[must_use]
    pub fn arguments(&self) -> &str {
        &self.facts.arguments
    }

    /// Name of the calling agent.
    #[must_use]
    pub fn agent(&self) -> &str {
        &self.facts.agent
    }

    /// Id of the run.
    #[must_use]
    pub fn run(&self) -> &str {
        &self.facts.run
    }

    /// Emits a progress text as an event of the run. The model does not read it. Values of the environment's secrets are
    /// hidden, also if a value is split between two texts: a possible beginning of a value is held back, at most until the
    /// call ends.
    pub async fn tell(&self, text: impl Into<String>) {
        if self.is_heard() {
            self.tell_hidden(secrets::pass(&self.hiding, Some(text.into()))).await;
        }
    }

    /// Emits the text that was held back.
    pub(crate) async fn tell_rest(&self) {
        if self.is_heard() {
            self.tell_hidden(secrets::pass(&self.hiding, None)).await;
        }
    }

    async fn tell_hidden(&self, text: Option<String>) {
        if let Some(text) = text {
            self.events.emit(RunEvent::Progress { call_id: self.call_id().to_owned(), text }).await;
        }
    }

    /// Whether the events of the run are read.
    #[must_use]
    pub fn is_heard(&self) -> bool {
        !matches!(self.events, Events::None)
    }

    /// The [`App`] value of the run's caller, if it is a `T`.
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

/// A value of the caller of a run, for tools, hooks and instructions. It is never sent to the model and never saved.
#[derive(Clone, Default)]
pub struct App(Option<Arc<dyn Any + Send + Sync>>);

impl App {
    /// Wraps a value.
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
