//! The interface to the environment that agents work in, such as machines. This crate has no implementation of it.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use futures::future::BoxFuture;
use serde_json::Value;

pub use crate::secrets::{HidingStream, KnownSecrets};
use crate::{Agent, BoxError, Item, Items, Model, ModelSettings, Tool, Usage};

/// Environment that agents work in. One value serves many runs; each run opens its own [`EnvironmentSession`].
#[async_trait]
pub trait RunEnvironment: Send + Sync + fmt::Debug {
    /// Opens the session of a run. `saved` is what [`EnvironmentSession::leave`] returned, if the run is resumed.
    async fn open(&self, run: &str, saved: Option<Value>) -> Result<Box<dyn EnvironmentSession>, BoxError>;

    /// Secrets that programs in this environment can read. Their values are hidden in the outputs of tools.
    fn secrets(&self) -> Option<Arc<dyn KnownSecrets>> {
        None
    }
}

/// Session of one run in an environment. [`leave`](Self::leave) is called when the run ends or is cancelled. If the future
/// of the run is dropped, the session is dropped without `leave` and must clean up by itself.
#[async_trait]
pub trait EnvironmentSession: Send + Sync {
    /// An agent begins to work. Returns what the environment adds to it.
    async fn enter(&mut self, entering: Entering<'_>) -> Result<Kit, BoxError>;

    /// An environment that leads to this same session, for an agent used as a tool that shares the session of its caller.
    fn share(&self) -> Option<Arc<dyn RunEnvironment>> {
        None
    }

    /// The run leaves. Returns what has to be saved so that the run can be resumed.
    async fn leave(self: Box<Self>, ending: Ending) -> Result<Option<Value>, BoxError>;
}

/// An agent that begins to work.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Entering<'a> {
    /// Unique name of the agent in this run; the same when the run is resumed.
    pub key: &'a str,
    /// The agent.
    pub agent: &'a Agent,
    /// Model of the agent.
    pub model: &'a Arc<dyn Model>,
}

/// How a run leaves an environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The run is finished.
    Finished,
    /// The run may be resumed: it waits for a person, was cancelled, paused or has spent its budget.
    Paused,
    /// The run failed; it may still be resumed.
    Failed,
}

/// Makes the complete instructions from the agent's own; called for each turn.
pub type Compose = Arc<dyn Fn(Option<String>) -> BoxFuture<'static, Result<String, BoxError>> + Send + Sync>;

/// What an environment adds to an agent: instructions, tools and settings.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct Kit {
    /// Makes the complete instructions from the agent's own.
    pub instructions: Option<Compose>,
    /// Additional tools.
    pub tools: Vec<Arc<dyn Tool>>,
    /// Settings that override the agent's.
    pub settings: ModelSettings,
    /// Transforms of the conversation, applied in order before each model request.
    pub input_transforms: Vec<Arc<dyn InputTransform>>,
}

impl fmt::Debug for Kit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tools: Vec<String> = self.tools.iter().map(|tool| tool.spec().name).collect();
        f.debug_struct("Kit").field("tools", &tools).finish_non_exhaustive()
    }
}

/// Sees the conversation right before it is sent to the model, and may send something else instead.
#[async_trait]
pub trait InputTransform: Send + Sync {
    /// Decides what is sent to the model.
    async fn transform(&self, question: &Question) -> Result<FilteredInput, BoxError>;
}

/// Request that is about to be sent to a model.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Question {
    /// Instructions of the agent.
    pub instructions: Option<String>,
    /// The conversation as it would be sent.
    pub items: Items,
    /// Model that the request goes to.
    pub model: Arc<dyn Model>,
    /// Input tokens of the previous request of this run, if any. This request has at least as many.
    pub last_input_tokens: Option<u64>,
}

/// Result of an [`InputTransform`].
#[derive(Clone, Debug)]
pub enum FilteredInput {
    /// The conversation is sent unchanged.
    Unchanged,
    /// These items are sent in this one request.
    ReplaceOnce(Vec<Item>),
    /// These items replace the conversation so far in this and all later requests; the items of the run itself are kept. The
    /// usage is what making them cost; it is added to the usage of the run.
    ReplaceHistory(Vec<Item>, Usage),
}
