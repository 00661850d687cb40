//! The seam to the place where an agent works. The harness knows that there may be one, and nothing else about it.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use futures::future::BoxFuture;
use serde_json::Value;

pub use crate::secrets::{HidingStream, KnownSecrets};
use crate::{Agent, BoxError, Item, Items, Model, ModelSettings, Tool, Usage};

/// Where agents work. One value serves many runs; each run has a [`Stay`] of its own.
#[async_trait]
pub trait Environment: Send + Sync + fmt::Debug {
    /// A run begins, or is taken up again with what was saved when it was left.
    async fn open(&self, run: &str, saved: Option<Value>) -> Result<Box<dyn Stay>, BoxError>;

    /// The secrets that are given to whatever runs here. Their values are hidden in what the tools of a run answer.
    fn secrets(&self) -> Option<Arc<dyn KnownSecrets>> {
        None
    }
}

/// One run's time in an environment. It is left when the run ends or is cancelled; one that is merely dropped belonged to a
/// run that nobody waits for any more, and has to clean up after itself.
#[async_trait]
pub trait Stay: Send + Sync {
    /// An agent begins to work: what is lent to it.
    async fn enter(&mut self, entering: Entering<'_>) -> Result<Kit, BoxError>;

    /// The place itself, for an agent that is used as a tool and shall work where its caller does.
    fn share(&self) -> Option<Arc<dyn Environment>> {
        None
    }

    /// The run leaves: what must be saved to come back.
    async fn leave(self: Box<Self>, ending: Ending) -> Result<Option<Value>, BoxError>;
}

/// An agent that begins to work.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Entering<'a> {
    /// The agent's name in this run; no other agent of it has the same, and it has the same when the run is taken up again.
    pub key: &'a str,
    /// The agent.
    pub agent: &'a Agent,
    /// The model that will think for it.
    pub model: &'a Arc<dyn Model>,
}

/// How a run leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It is finished.
    Finished,
    /// It may come back: it waits for a person, was cancelled, paused or has spent its budget.
    Paused,
    /// It failed; it may still be taken up again.
    Failed,
}

/// Makes the whole instructions of the agent's own, anew for each turn.
pub type Compose = Arc<dyn Fn(Option<String>) -> BoxFuture<'static, Result<String, BoxError>> + Send + Sync>;

/// What an environment lends an agent.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct Kit {
    /// Makes the whole instructions of the agent's own.
    pub instructions: Option<Compose>,
    /// More tools.
    pub tools: Vec<Arc<dyn Tool>>,
    /// Laid over the agent's settings.
    pub settings: ModelSettings,
    /// Look at the conversation before each question, one after the other.
    pub lenses: Vec<Arc<dyn Lens>>,
}

impl fmt::Debug for Kit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tools: Vec<String> = self.tools.iter().map(|tool| tool.spec().name).collect();
        f.debug_struct("Kit").field("tools", &tools).finish_non_exhaustive()
    }
}

/// Looks at the conversation right before the model is asked, and may show it something else.
#[async_trait]
pub trait Lens: Send + Sync {
    /// What the model shall see.
    async fn look(&self, question: &Question) -> Result<Look, BoxError>;
}

/// What a model is about to be asked.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Question {
    /// What the agent is told to be.
    pub instructions: Option<String>,
    /// The conversation as it would be sent.
    pub items: Items,
    /// Who is asked.
    pub model: Arc<dyn Model>,
    /// The input tokens of the question before, if there was one in this run: at least as many will be sent again.
    pub last_input_tokens: Option<u64>,
}

/// What a model gets to see.
#[derive(Clone, Debug)]
pub enum Look {
    /// The conversation as it is.
    Unchanged,
    /// This, in this one question.
    Once(Vec<Item>),
    /// This in place of everything so far, from now on; the run's own record stays whole. Making it may have cost something,
    /// which counts as the run's.
    FromNowOn(Vec<Item>, Usage),
}
