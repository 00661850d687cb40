//! Runs an agent that is used as a tool: a nested run with its own approvals, under the outer run's budget.

use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use tokio::sync::watch;

use super::{
    checkpoint::{self, InterruptedRun},
    driver::{Cancel, Driver},
    events::Events,
    single_call::{ActiveCall, BadArguments, ToolOutcome},
};
use crate::{
    BoxError, RunConfig, Stop, ToolOutput,
    agent::{AgentTool, NestedEnvironment, NestedEvent, Roster},
    run::{PendingCall, Run},
};

/// How deep runs may be nested. Each level uses stack space.
const MAX_DEPTH: usize = 5;

impl ActiveCall<'_> {
    pub(super) async fn run_nested(&self, tool: &AgentTool) -> Result<ToolOutcome, BoxError> {
        let Self { driver: outer, call, index, .. } = *self;
        if outer.depth >= MAX_DEPTH {
            return Err(format!("agents cannot be used as tools of each other more than {MAX_DEPTH} deep").into());
        }
        let roster = Roster::of(&tool.agent);
        let config = nested_config(outer, tool)?;
        let mut run = match &call.nested {
            Some(run) => (**run).clone(),
            None => {
                let arguments = call.parsed_arguments().map_err(|error| BadArguments(error.to_string()))?;
                let input = tool.input(arguments)?;
                let mut run = Run::new(nested_id(outer.run.id(), &call.call_id), roster.root(), input);
                (run.max_turns, run.budget) = (tool.turns(), config.budget.clone());
                run
            }
        };
        // The rest of the outer budget, plus what this nested run has spent already. Its own budget applies too.
        let used = outer.progress.added_to(outer.run.usage());
        let elapsed = outer.run.elapsed().saturating_add(outer.step_time());
        let rest = outer.run.budget().rest(&used, elapsed).beyond(&run);
        let own = tool.config.as_ref().map(|config| config.budget.clone()).unwrap_or_default();
        run.budget = rest.and(&own);
        let before = run.usage().clone();
        let driver = Driver::new(roster, config, run).with(
            outer.app.clone(),
            tool.hooks.clone(),
            nested_events(tool, call),
            watch::channel(Cancel::No).1,
        );
        let slot = outer.progress.slot_for(index, &call.call_id);
        let driver = driver.within(self.scope.clone(), outer);
        let outcome = Box::pin(driver.drive(Some(Arc::clone(&slot)))).await;
        let after = match &outcome {
            Ok(result) => result.usage(),
            Err(error) => error.run().usage(),
        };
        outer.progress.record_usage(index, after.since(&before));
        // Kept until its answer is recorded; otherwise a resumed outer run would execute it again.
        let ended = match &outcome {
            Ok(result) => result.to_state().0,
            Err(error) => error.run().clone(),
        };
        checkpoint::store(&slot, InterruptedRun::ended(ended));
        let result = outcome.map_err(|error| BoxError::from(error.into_error()))?;
        match result.stop() {
            Stop::Finished => Ok(ToolOutcome::Output(tool.answer(result).await?)),
            Stop::Interrupted => Ok(ToolOutcome::Pending(Box::new(result.into_run()))),
            Stop::Budget(_) | Stop::MaxTurns(_) | Stop::Cancelled | Stop::Paused => {
                let text = result.last_text();
                Ok(ToolOutcome::Output(ToolOutput::Text(format!("The budget is spent. What there is so far: {text}"))))
            }
        }
    }
}

/// Configuration of a nested run, with its environment.
fn nested_config(outer: &Driver, tool: &AgentTool) -> Result<RunConfig, BoxError> {
    let mut config = tool.config.clone().unwrap_or_else(|| outer.config.clone());
    match &tool.environment {
        NestedEnvironment::Configured => {}
        NestedEnvironment::Given(environment) => config.environment = Some(Arc::clone(environment)),
        NestedEnvironment::Shared => {
            let none = || format!("the agent {:?} has no environment session that could be shared", outer.run.agent());
            config.environment = Some(outer.environment.share().ok_or_else(none)?);
        }
    }
    Ok(config)
}

fn nested_events(tool: &AgentTool, call: &PendingCall) -> Events {
    let Some(tell) = tool.on_event.clone() else { return Events::None };
    let (agent, call_id) = (tool.agent.name().to_owned(), call.call_id.clone());
    Events::Call(Arc::new(move |event| tell(NestedEvent { agent: agent.clone(), call_id: call_id.clone(), event })))
}

/// Id of a nested run. The call id is hashed because the model chose it.
fn nested_id(outer: &str, call_id: &str) -> String {
    let digest = Sha256::digest(call_id);
    let short: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    format!("{outer}.{short}")
}
