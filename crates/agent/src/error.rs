//! Why a run cannot go on. What a tool gets wrong is an output that the model reads, and not in here.

use std::{error::Error, time::Duration};

use serde_json::Value;

use crate::ModelError;

/// Any error of user code.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// The result of whatever belongs to a run.
pub type Result<T, E = AgentError> = std::result::Result<T, E>;

/// Why a run cannot go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AgentError {
    /// It took more turns than it was given.
    #[error("Max turns ({0}) exceeded")]
    MaxTurns(u32),
    /// The model could not be asked, or did not answer.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The model did something that no run can make sense of.
    #[error("{0}")]
    ModelBehavior(String),
    /// The model refused.
    #[error("the model refused: {0}")]
    Refusal(String),
    /// Something is put together wrongly: an agent, a tool, a setting.
    #[error("{0}")]
    Misuse(String),
    /// A tool failed, and its failures end the run.
    #[error("tool {tool} failed")]
    Tool {
        /// Which tool.
        tool: String,
        /// Why.
        #[source]
        source: BoxError,
    },
    /// A tool took too long, and that ends the run.
    #[error("tool {tool} took longer than {} s", .limit.as_secs_f64())]
    ToolTimeout {
        /// Which tool.
        tool: String,
        /// What it was given.
        limit: Duration,
    },
    /// A guardrail stopped the run.
    #[error("{place} guardrail {guardrail} stopped the run")]
    Tripwire {
        /// What it guards.
        place: Guarded,
        /// Which guardrail.
        guardrail: String,
        /// What it has to say.
        info: Value,
    },
    /// Code of the user's failed where the run cannot go on without it.
    #[error("{what} failed")]
    Callback {
        /// What it was for: a hook, instructions, a guardrail.
        what: String,
        /// Why.
        #[source]
        source: BoxError,
    },
    /// A saved run refers to secrets that were not given when it was taken up.
    #[error(
        "this saved run refers to secrets that it was not given again: {}; give them by these names to the environment it \
         is run in",
        .0.join(", ")
    )]
    SecretNotGiven(Vec<String>),
    /// A saved run cannot be taken up.
    #[error("this saved run cannot be taken up: {0}")]
    State(String),
    /// The place where the agent works could not be entered or left.
    #[error(transparent)]
    Environment(BoxError),
}

/// What a guardrail guards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guarded {
    /// What the run starts with.
    Input,
    /// What it ends with.
    Output,
    /// What a tool is called with.
    ToolInput,
    /// What a tool answers.
    ToolOutput,
}

impl std::fmt::Display for Guarded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Input => "input",
            Self::Output => "output",
            Self::ToolInput => "tool input",
            Self::ToolOutput => "tool output",
        })
    }
}

impl AgentError {
    /// A stable name for programs and logs.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::MaxTurns(_) => "max_turns",
            Self::Model(_) => "model",
            Self::ModelBehavior(_) => "model_behavior",
            Self::Refusal(_) => "model_refusal",
            Self::Misuse(_) => "misuse",
            Self::Tool { .. } => "tool",
            Self::ToolTimeout { .. } => "tool_timeout",
            Self::Tripwire { .. } => "tripwire",
            Self::Callback { .. } => "callback",
            Self::SecretNotGiven(_) => "secret_not_given",
            Self::State(_) => "state",
            Self::Environment(_) => "environment",
        }
    }
}
