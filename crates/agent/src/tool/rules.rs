//! Rules of a tool: approval, availability, timeout, failures and guardrails.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use futures::future::{BoxFuture, FutureExt as _};
use serde_json::Value;

use super::{App, Tool, ToolContext, ToolOutput, ToolSpec};
use crate::{
    BoxError,
    agent::AgentTool,
    guardrail::{ToolInputGuardrail, ToolOutputGuardrail},
};

/// Rules of a tool.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ToolRules {
    /// Which calls need the approval of a person.
    pub approval: Approval,
    /// Whether the tool is offered to the model.
    pub enabled: Enabled,
    /// Timeout of a call; `None` is no timeout.
    pub timeout: Option<Duration>,
    /// What happens after a timeout.
    pub on_timeout: OnTimeout,
    /// What happens after a failure.
    pub on_failure: OnFailure,
    /// Guardrails that check the arguments before the call.
    pub input_guardrails: Vec<ToolInputGuardrail>,
    /// Guardrails that check the output before the model reads it.
    pub output_guardrails: Vec<ToolOutputGuardrail>,
}

impl ToolRules {
    /// Rules of a tool that sets none.
    #[must_use]
    pub fn usual() -> &'static Self {
        static USUAL: std::sync::LazyLock<ToolRules> = std::sync::LazyLock::new(ToolRules::default);
        &USUAL
    }
}

type AsyncPredicate<T> = Arc<dyn Fn(T) -> BoxFuture<'static, bool> + Send + Sync>;
type TextFunction<E> = Arc<dyn Fn(&ToolContext, E) -> String + Send + Sync>;

/// Which calls of a tool need the approval of a person.
#[derive(Clone, Default)]
pub enum Approval {
    /// No call needs approval.
    #[default]
    Never,
    /// Every call needs approval.
    Always,
    /// A call needs approval if this function returns `true`, or if its arguments cannot be parsed.
    When(AsyncPredicate<(ToolContext, Value)>),
}

impl Approval {
    /// A function decides for each call, by its context and arguments.
    pub fn when<F, Fut>(ask: F) -> Self
    where
        F: Fn(ToolContext, Value) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = bool> + Send + 'static,
    {
        Self::When(Arc::new(move |(call, arguments)| ask(call, arguments).boxed()))
    }
}

/// Whether a tool or a handoff is offered to the model.
#[derive(Clone, Default)]
pub enum Enabled {
    /// Yes.
    #[default]
    Always,
    /// No.
    Never,
    /// The tool is offered if this function returns `true`. It is called once per turn with the [`App`] value and the name
    /// of the agent.
    When(AsyncPredicate<(App, String)>),
}

impl Enabled {
    /// A function decides for each turn, by the [`App`] value and the name of the agent.
    pub fn when<F, Fut>(ask: F) -> Self
    where
        F: Fn(App, String) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = bool> + Send + 'static,
    {
        Self::When(Arc::new(move |(app, agent)| ask(app, agent).boxed()))
    }

    pub(crate) async fn holds(&self, app: &App, agent: &str) -> bool {
        match self {
            Self::Always => true,
            Self::Never => false,
            Self::When(ask) => ask((app.clone(), agent.to_owned())).await,
        }
    }
}

/// What happens after a call failed.
#[derive(Clone, Default)]
pub enum OnFailure {
    /// The model reads an error text.
    #[default]
    Tell,
    /// The run fails.
    Raise,
    /// The model reads the text that this function returns.
    Say(TextFunction<BoxError>),
}

/// What happens after a call exceeded its timeout.
#[derive(Clone, Default)]
pub enum OnTimeout {
    /// The model reads an error text.
    #[default]
    Tell,
    /// The run fails.
    Raise,
    /// The model reads the text that this function returns.
    Say(TextFunction<Duration>),
}

macro_rules! named {
    ($type:ident: $($plain:ident)* | $($other:ident)*) => {
        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $(Self::$plain => stringify!($plain),)*
                    $(Self::$other(_) => stringify!($other),)*
                })
            }
        }
    };
}

named!(Approval: Never Always | When);
named!(Enabled: Always Never | When);
named!(OnFailure: Tell Raise | Say);
named!(OnTimeout: Tell Raise | Say);

/// A tool with other rules.
#[derive(Clone)]
pub struct Ruled<T> {
    tool: T,
    rules: ToolRules,
}

#[async_trait]
impl<T: Tool> Tool for Ruled<T> {
    fn spec(&self) -> ToolSpec {
        self.tool.spec()
    }

    fn rules(&self) -> &ToolRules {
        &self.rules
    }

    async fn call(&self, call: &ToolContext, arguments: &str) -> Result<ToolOutput, BoxError> {
        self.tool.call(call, arguments).await
    }

    fn fault(&self) -> Option<String> {
        self.tool.fault()
    }

    fn as_agent(&self) -> Option<&AgentTool> {
        self.tool.as_agent()
    }
}

#[async_trait]
impl<T: Tool + ?Sized> Tool for Arc<T> {
    fn spec(&self) -> ToolSpec {
        (**self).spec()
    }

    fn rules(&self) -> &ToolRules {
        (**self).rules()
    }

    async fn call(&self, call: &ToolContext, arguments: &str) -> Result<ToolOutput, BoxError> {
        (**self).call(call, arguments).await
    }

    fn fault(&self) -> Option<String> {
        (**self).fault()
    }

    fn as_agent(&self) -> Option<&AgentTool> {
        (**self).as_agent()
    }
}

/// Changes the rules of any tool: `search.needs_approval().timeout(Duration::from_secs(5))`.
pub trait ToolExt: Tool + Sized {
    /// Changes the rules of the tool.
    fn ruled(self, change: impl FnOnce(&mut ToolRules)) -> Ruled<Self> {
        let mut rules = self.rules().clone();
        change(&mut rules);
        Ruled { tool: self, rules }
    }

    /// Requires approval of every call.
    fn needs_approval(self) -> Ruled<Self> {
        self.ruled(|rules| rules.approval = Approval::Always)
    }

    /// Sets which calls need approval.
    fn approval(self, approval: Approval) -> Ruled<Self> {
        self.ruled(|rules| rules.approval = approval)
    }

    /// Sets whether the tool is offered.
    fn enabled(self, enabled: Enabled) -> Ruled<Self> {
        self.ruled(|rules| rules.enabled = enabled)
    }

    /// Sets the timeout of a call.
    fn timeout(self, limit: Duration) -> Ruled<Self> {
        self.ruled(|rules| rules.timeout = Some(limit))
    }

    /// Sets what happens after a timeout.
    fn on_timeout(self, what: OnTimeout) -> Ruled<Self> {
        self.ruled(|rules| rules.on_timeout = what)
    }

    /// Sets what happens after a failure.
    fn on_failure(self, what: OnFailure) -> Ruled<Self> {
        self.ruled(|rules| rules.on_failure = what)
    }

    /// Adds a guardrail that checks the arguments before the call.
    fn input_guardrail(self, guardrail: ToolInputGuardrail) -> Ruled<Self> {
        self.ruled(|rules| rules.input_guardrails.push(guardrail))
    }

    /// Adds a guardrail that checks the output before the model reads it.
    fn output_guardrail(self, guardrail: ToolOutputGuardrail) -> Ruled<Self> {
        self.ruled(|rules| rules.output_guardrails.push(guardrail))
    }
}

impl<T: Tool> ToolExt for T {}
