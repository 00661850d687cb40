//! The seam to the place where an agent works. The harness knows that there may be one, and nothing else about it.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use serde_json::Value;

use crate::{Agent, BoxError, ModelSettings, Tool};

/// Where agents work. One value serves many runs; each run has a [`Stay`] of its own.
#[async_trait]
pub trait Environment: Send + Sync + fmt::Debug {
    /// A run begins, or is taken up again with what was saved when it was left.
    async fn open(&self, run: &str, saved: Option<Value>) -> Result<Box<dyn Stay>, BoxError>;
}

/// One run's time in an environment. It is left when the run ends or is cancelled; one that is merely dropped belonged to a
/// run that nobody waits for any more, and has to clean up after itself.
#[async_trait]
pub trait Stay: Send + Sync {
    /// An agent begins to work: what is lent to it.
    async fn enter(&mut self, agent: &Agent) -> Result<Kit, BoxError>;

    /// The run leaves: what must be saved to come back.
    async fn leave(self: Box<Self>, ending: Ending) -> Result<Option<Value>, BoxError>;
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

/// What an environment lends an agent.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct Kit {
    /// Makes the whole instructions of the agent's own.
    pub instructions: Option<Arc<dyn Fn(Option<String>) -> String + Send + Sync>>,
    /// More tools.
    pub tools: Vec<Arc<dyn Tool>>,
    /// Laid over the agent's settings.
    pub settings: ModelSettings,
}

impl fmt::Debug for Kit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tools: Vec<String> = self.tools.iter().map(|tool| tool.spec().name).collect();
        f.debug_struct("Kit").field("tools", &tools).finish_non_exhaustive()
    }
}
