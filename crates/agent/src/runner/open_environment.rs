//! The environment session of a run, from its opening until it is left.

use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::Value;

use crate::{
    Agent, AgentError, BoxError, Kit, Result, RunConfig, RunEnvironment,
    environment::{Ending, Entering, EnvironmentSession},
    run::Run,
};

/// The future of [`EnvironmentSession::leave`].
type LeaveFuture = BoxFuture<'static, Result<Option<Value>, BoxError>>;

/// The environment session of a run; empty until an agent enters it, and after it was left.
#[derive(Default)]
pub(super) struct OpenEnvironment {
    session: Option<Box<dyn EnvironmentSession>>,
    /// The running `leave`. The mutex only makes the driver `Sync`: concurrent calls share it.
    leaving: Mutex<Option<LeaveFuture>>,
}

impl OpenEnvironment {
    /// What the environment adds to an agent; an empty kit without an environment.
    pub(super) async fn enter(&mut self, config: &RunConfig, run: &Run, key: &str, agent: &Agent) -> Result<Kit> {
        let Some(environment) = &config.environment else {
            if agent.parts().needs.is_some() {
                let name = agent.name();
                let why = format!(
                    "the agent {name:?} needs an environment to work in, and the run has none; give the run one, for \
                     example with `.sandbox(…)`"
                );
                return Err(AgentError::Misuse(why));
            }
            return Ok(Kit::default());
        };
        // Before the environment is opened: an agent without a usable model needs no machine.
        let model = config.choose(&agent.parts().model)?;
        let session = match &mut self.session {
            Some(session) => session,
            none => {
                let opened = environment.open(run.id(), run.environment.clone()).await;
                none.insert(opened.map_err(AgentError::Environment)?)
            }
        };
        session.enter(Entering { key, agent, model: &model }).await.map_err(AgentError::Environment)
    }

    /// The environment of nested runs that share this session, if the session can be shared.
    pub(super) fn share(&self) -> Option<std::sync::Arc<dyn RunEnvironment>> {
        self.session.as_ref()?.share()
    }

    /// Leaves the session, or completes a `leave` that was interrupted. Returns what the environment saves; `None` if it
    /// is not open.
    pub(super) async fn leave(&mut self, ending: Ending) -> Option<Result<Option<Value>, BoxError>> {
        // Stored while it runs: if this future is dropped, a later call completes it.
        let leaving = self.leaving.get_mut();
        if leaving.is_none() {
            *leaving = Some(self.session.take()?.leave(ending));
        }
        let outcome = leaving.as_mut()?.await;
        *leaving = None;
        Some(outcome)
    }
}
