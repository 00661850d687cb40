//! Errors that end a run. A failure of a tool is normally not one: the model reads it as the tool's output.

use std::{error::Error, time::Duration};

use serde_json::Value;

use crate::ModelError;

/// Error of user code.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// Result with [`AgentError`].
pub type Result<T, E = AgentError> = std::result::Result<T, E>;

/// Why a run failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AgentError {
    /// The limit of turns was reached.
    #[error("Max turns ({0}) exceeded")]
    MaxTurns(u32),
    /// A request to the model failed.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The model's reply is invalid.
    #[error("{0}")]
    ModelBehavior(String),
    /// The model refused.
    #[error("the model refused: {0}")]
    Refusal(String),
    /// An agent, a tool or a setting is used incorrectly.
    #[error("{0}")]
    Misuse(String),
    /// A tool failed, and its rules say that this ends the run.
    #[error("tool {tool} failed")]
    Tool {
        /// Name of the tool.
        tool: String,
        /// Cause.
        #[source]
        source: BoxError,
    },
    /// A tool exceeded its timeout, and its rules say that this ends the run.
    #[error("tool {tool} took longer than {} s", .limit.as_secs_f64())]
    ToolTimeout {
        /// Name of the tool.
        tool: String,
        /// Timeout of the tool.
        limit: Duration,
    },
    /// A guardrail stopped the run.
    #[error("{place} guardrail {guardrail} stopped the run")]
    Tripwire {
        /// What was checked.
        place: Guarded,
        /// Name of the guardrail.
        guardrail: String,
        /// Details from the guardrail.
        info: Value,
    },
    /// A function of the user failed: a hook, instructions, a guardrail.
    #[error("{what} failed")]
    Callback {
        /// Which function.
        what: String,
        /// Cause.
        #[source]
        source: BoxError,
    },
    /// A saved run refers to secrets that its new environment does not have.
    #[error(
        "this saved run refers to secrets that it was not given again: {}; give them by these names to the environment it \
         is run in",
        .0.join(", ")
    )]
    SecretNotGiven(Vec<String>),
    /// A saved run cannot be resumed.
    #[error("this saved run cannot be resumed: {0}")]
    State(String),
    /// The environment could not be opened, entered or left.
    #[error(transparent)]
    Environment(BoxError),
}

/// What a guardrail checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guarded {
    /// Input of the run.
    Input,
    /// Final output of the run.
    Output,
    /// Arguments of a tool call.
    ToolInput,
    /// Output of a tool.
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
    /// Stable code for programs and logs.
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
