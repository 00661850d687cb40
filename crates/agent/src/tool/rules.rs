//! The rules a tool is called by: who must agree, when it is there at all, how long it may take, who checks it.

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

/// The rules a tool is called by.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ToolRules {
    /// Whether a person must agree first.
    pub approval: Approval,
    /// Whether it is offered at all.
    pub enabled: Enabled,
    /// How long a call may take; for ever if nobody says.
    pub timeout: Option<Duration>,
    /// What a call that took too long becomes.
    pub on_timeout: OnTimeout,
    /// What a failure becomes.
    pub on_failure: OnFailure,
    /// Who looks at the arguments first.
    pub input_guardrails: Vec<ToolInputGuardrail>,
    /// Who looks at the answer before the model does.
    pub output_guardrails: Vec<ToolOutputGuardrail>,
}

impl ToolRules {
    /// The rules of a tool that says nothing about them.
    #[must_use]
    pub fn usual() -> &'static Self {
        static USUAL: std::sync::LazyLock<ToolRules> = std::sync::LazyLock::new(ToolRules::default);
        &USUAL
    }
}

type Asked<T> = Arc<dyn Fn(T) -> BoxFuture<'static, bool> + Send + Sync>;
type Worded<E> = Arc<dyn Fn(&ToolContext, E) -> String + Send + Sync>;

/// Whether a person must agree to a call first.
#[derive(Clone, Default)]
pub enum Approval {
    /// No.
    #[default]
    Never,
    /// To each one.
    Always,
    /// To those this function says yes to. Arguments that are no JSON object need approval without being asked about.
    When(Asked<(ToolContext, Value)>),
}

impl Approval {
    /// Decided per call, by its context and its arguments.
    pub fn when<F, Fut>(ask: F) -> Self
    where
        F: Fn(ToolContext, Value) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = bool> + Send + 'static,
    {
        Self::When(Arc::new(move |(call, arguments)| ask(call, arguments).boxed()))
    }
}

/// Whether a tool is offered.
#[derive(Clone, Default)]
pub enum Enabled {
    /// Yes.
    #[default]
    Always,
    /// No.
    Never,
    /// When this function says so; it is asked once per turn with what the caller gave along and the agent's name.
    When(Asked<(App, String)>),
}

impl Enabled {
    /// Decided per turn, by what the caller of the run gave along and the name of the agent.
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

/// What a failed call becomes.
#[derive(Clone, Default)]
pub enum OnFailure {
    /// A text the model can act on.
    #[default]
    Tell,
    /// The end of the run.
    Raise,
    /// The text this function makes of it.
    Say(Worded<BoxError>),
}

/// What a call that took too long becomes.
#[derive(Clone, Default)]
pub enum OnTimeout {
    /// A text the model can act on.
    #[default]
    Tell,
    /// The end of the run.
    Raise,
    /// The text this function makes of it.
    Say(Worded<Duration>),
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

/// A tool with rules of its own.
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

/// Rules, laid on any tool: `search.needs_approval().timeout(Duration::from_secs(5))`.
pub trait ToolExt: Tool + Sized {
    /// The tool, with its rules changed.
    fn ruled(self, change: impl FnOnce(&mut ToolRules)) -> Ruled<Self> {
        let mut rules = self.rules().clone();
        change(&mut rules);
        Ruled { tool: self, rules }
    }

    /// A person must agree to each call.
    fn needs_approval(self) -> Ruled<Self> {
        self.ruled(|rules| rules.approval = Approval::Always)
    }

    /// Who must agree, by any rule.
    fn approval(self, approval: Approval) -> Ruled<Self> {
        self.ruled(|rules| rules.approval = approval)
    }

    /// Whether it is offered.
    fn enabled(self, enabled: Enabled) -> Ruled<Self> {
        self.ruled(|rules| rules.enabled = enabled)
    }

    /// How long a call may take.
    fn timeout(self, limit: Duration) -> Ruled<Self> {
        self.ruled(|rules| rules.timeout = Some(limit))
    }

    /// What a call that took too long becomes.
    fn on_timeout(self, what: OnTimeout) -> Ruled<Self> {
        self.ruled(|rules| rules.on_timeout = what)
    }

    /// What a failure becomes.
    fn on_failure(self, what: OnFailure) -> Ruled<Self> {
        self.ruled(|rules| rules.on_failure = what)
    }

    /// Somebody looks at the arguments first.
    fn input_guardrail(self, guardrail: ToolInputGuardrail) -> Ruled<Self> {
        self.ruled(|rules| rules.input_guardrails.push(guardrail))
    }

    /// Somebody looks at the answer before the model does.
    fn output_guardrail(self, guardrail: ToolOutputGuardrail) -> Ruled<Self> {
        self.ruled(|rules| rules.output_guardrails.push(guardrail))
    }
}

impl<T: Tool> ToolExt for T {}
