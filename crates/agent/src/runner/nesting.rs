//! An agent used as a tool: a run inside a call, with its own approvals and the outer run's budget.

use std::sync::Arc;

use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;

use super::{
    calling::{BadArguments, Invoked, Made},
    driver::{Cancel, Driver},
    keeping::{self, Left},
    telling::Events,
};
use crate::{
    BoxError, RunConfig, Stop, ToolOutput,
    agent::{AgentTool, NestedEvent, Place, Roster},
    run::{PendingCall, Run},
};

/// How deep runs may be nested: each level needs its share of the stack.
const MAX_DEPTH: usize = 5;

impl Driver {
    pub(super) async fn run_nested(&self, tool: &AgentTool, made: &Made<'_>) -> Result<Invoked, BoxError> {
        let Made { call, place, scope, .. } = made;
        if self.depth >= MAX_DEPTH {
            return Err(format!("agents cannot be used as tools of each other more than {MAX_DEPTH} deep").into());
        }
        let roster = Roster::of(&tool.agent);
        let config = self.nested_config(tool)?;
        let mut run = match &call.nested {
            Some(run) => (**run).clone(),
            None => {
                let input = tool.input(parsed(&call.arguments())?)?;
                let mut run = Run::new(nested_id(self.run.id(), &call.call_id), roster.root(), input);
                run.limits(tool.turns(), config.budget.clone());
                run
            }
        };
        // What is left of the outer budget, on top of what it has spent itself; its own holds as well.
        let rest = self
            .run
            .budget()
            .rest(&self.used_by_now(), self.run.elapsed().saturating_add(self.step_time()))
            .beyond(&run);
        let own = tool.config.as_ref().map(|config| config.budget.clone()).unwrap_or_default();
        run.set_budget(rest.and(&own));
        let before = run.usage().clone();
        let driver = Driver::new(roster, config, run).with(
            self.app.clone(),
            tool.hooks.clone(),
            nested_events(tool, call),
            watch::channel(Cancel::No).1,
        );
        let slot = self.slot_for(*place, &call.call_id);
        let driver = driver.within(scope.clone(), self);
        let outcome = Box::pin(driver.drive(Some(Arc::clone(&slot)))).await;
        let after = match &outcome {
            Ok(result) => result.usage(),
            Err(error) => error.run().usage(),
        };
        self.has_used(*place, after.since(&before));
        // Until its answer is taken it must not be forgotten: what it did would be done again.
        let ended = match &outcome {
            Ok(result) => result.to_state().0,
            Err(error) => error.run().clone(),
        };
        keeping::put(&slot, Left::ended(ended));
        let result = outcome.map_err(|error| BoxError::from(error.into_error()))?;
        match result.stop() {
            Stop::Finished => Ok(Invoked::Output(tool.answer(result).await?)),
            Stop::Interrupted => Ok(Invoked::Held(Box::new(result.into_run()))),
            Stop::Budget(_) | Stop::MaxTurns(_) | Stop::Cancelled | Stop::Paused => {
                let words = result.last_words();
                Ok(Invoked::Output(ToolOutput::Text(format!("The budget is spent. What there is so far: {words}"))))
            }
        }
    }
}

impl Driver {
    /// How a nested run is made, and where it works.
    fn nested_config(&self, tool: &AgentTool) -> Result<RunConfig, BoxError> {
        let mut config = tool.config.clone().unwrap_or_else(|| self.config.clone());
        match &tool.place {
            Place::Configured => {}
            Place::Given(environment) => config.environment = Some(Arc::clone(environment)),
            Place::Shared => {
                let shared = self.stay.as_ref().and_then(|stay| stay.share());
                let none = || format!("the agent {:?} works nowhere that could be shared", self.run.agent());
                config.environment = Some(shared.ok_or_else(none)?);
            }
        }
        Ok(config)
    }
}

fn nested_events(tool: &AgentTool, call: &PendingCall) -> Events {
    let Some(tell) = tool.on_event.clone() else { return Events::None };
    let (agent, call_id) = (tool.agent.name().to_owned(), call.call_id.clone());
    Events::Call(Arc::new(move |event| tell(NestedEvent { agent: agent.clone(), call_id: call_id.clone(), event })))
}

/// A name for the nested run: the model chose the call's id, so that is not in it as it is.
fn nested_id(outer: &str, call_id: &str) -> String {
    let digest = Sha256::digest(call_id);
    let short: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    format!("{outer}.{short}")
}

fn parsed(arguments: &str) -> Result<Value, BadArguments> {
    let arguments = if arguments.trim().is_empty() { "{}" } else { arguments };
    serde_json::from_str(arguments).map_err(|error| BadArguments(error.to_string()))
}
