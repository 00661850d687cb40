//! Saved form of a run: versioned JSON that a later process or a later version can resume.

use std::{collections::HashSet, sync::Arc};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Interruption, Run, approvals::Decision, approvals::DecisionScope};
use crate::{AgentError, Item, Result, environment::KnownSecrets, secrets};

/// Format version that this library writes. It reads all older ones.
const VERSION: u64 = 1;

/// Largest saved run that is read, in bytes.
const MAX_BYTES: usize = 256 << 20;

/// A run that can be saved, decided about and resumed. It contains the whole conversation and is as confidential as that. It
/// does not contain the caller's [`App`](crate::App) value, API keys or headers.
///
/// Secrets of the run's environment are saved as references: each value that appears in a known form (plain, JSON- or
/// URL-escaped, base64) is replaced by its name. A resumed run gets the values from its environment; without them it is
/// refused ([`AgentError::SecretNotGiven`]). This protects against accidents only: a value in another form, or of fewer than
/// 8 bytes, is saved in clear.
///
/// ```
/// # use sandbar_agent::{Agent, FunctionTool, Item, RunState, ScriptedModel, ToolContext, ToolExt, run};
/// # #[derive(serde::Deserialize, schemars::JsonSchema)] struct Nothing {}
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let model = ScriptedModel::new([vec![Item::function_call("c1", "deploy", "{}")], vec![Item::assistant("Done.")]]);
/// # let deploy = FunctionTool::new("deploy", "Deploys.", |_: ToolContext, _: Nothing| async { "ok" });
/// let agent = Agent::new("ops").model(model).tool(deploy.needs_approval());
/// let paused = run(&agent, "Deploy it.").await?;
///
/// let saved = paused.to_state().to_json()?;
/// let mut state = RunState::from_json(&saved)?;
/// for call in state.interruptions() {
///     state.approve(&call)?;
/// }
/// assert_eq!(run(&agent, state).await?.final_output(), "Done.");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct RunState(pub(crate) Run);

#[derive(Serialize)]
struct SavedRun<'a> {
    sandbar_run: u64,
    #[serde(flatten)]
    run: &'a Run,
}

#[derive(Deserialize)]
struct Version {
    sandbar_run: Option<u64>,
}

impl RunState {
    /// Writes the run as JSON.
    ///
    /// # Errors
    /// When a part of the run cannot be serialised.
    pub fn to_json(&self) -> Result<String> {
        serde_json::to_string(&SavedRun { sandbar_run: VERSION, run: &self.0 })
            .map_err(|error| AgentError::State(error.to_string()))
    }

    /// Reads a run from JSON.
    ///
    /// # Errors
    /// When the text is not a saved run, is damaged, or was written by a newer version. The message quotes nothing of the
    /// text.
    pub fn from_json(text: &str) -> Result<Self> {
        if text.len() > MAX_BYTES {
            return Err(AgentError::State(format!("it is larger than {} MiB", MAX_BYTES >> 20)));
        }
        let version: Version = serde_json::from_str(text).map_err(|error| damaged(&error))?;
        match version.sandbar_run {
            None => return Err(AgentError::State("it is not a saved run (there is no sandbar_run in it)".to_owned())),
            Some(version) if version > VERSION => {
                return Err(AgentError::State(format!(
                    "it was written by a newer version of sandbar (format {version}; this one reads up to {VERSION})"
                )));
            }
            Some(_) => {}
        }
        let run: Run = serde_json::from_str(text).map_err(|error| {
            // Our own messages contain nothing of the text; those of serde may.
            let ours = FAULTS.iter().find(|fault| error.to_string().starts_with(**fault));
            ours.map_or_else(|| damaged(&error), |fault| AgentError::State(format!("it is damaged: {fault}")))
        })?;
        Ok(Self(run))
    }

    /// The run.
    #[must_use]
    pub fn run(&self) -> &Run {
        &self.0
    }

    /// Calls that wait for a person.
    #[must_use]
    pub fn interruptions(&self) -> Vec<Interruption> {
        self.0.interruptions()
    }

    /// Approves one call.
    ///
    /// # Errors
    /// When no such call waits.
    pub fn approve(&mut self, call: &Interruption) -> Result<()> {
        self.0.decide(call, Decision::Approved, DecisionScope::ThisCall)
    }

    /// Approves this call and all later calls of the same tool in the same run.
    ///
    /// # Errors
    /// When no such call waits.
    pub fn approve_always(&mut self, call: &Interruption) -> Result<()> {
        self.0.decide(call, Decision::Approved, DecisionScope::EveryCall)
    }

    /// Rejects one call. The model reads the default text.
    ///
    /// # Errors
    /// When no such call waits.
    pub fn reject(&mut self, call: &Interruption) -> Result<()> {
        self.0.decide(call, Decision::Rejected(None), DecisionScope::ThisCall)
    }

    /// Rejects one call. The model reads this message.
    ///
    /// # Errors
    /// When no such call waits.
    pub fn reject_with(&mut self, call: &Interruption, message: impl Into<String>) -> Result<()> {
        self.0.decide(call, Decision::Rejected(Some(message.into())), DecisionScope::ThisCall)
    }

    /// Rejects this call and all later calls of the same tool in the same run.
    ///
    /// # Errors
    /// When no such call waits.
    pub fn reject_always(&mut self, call: &Interruption, message: Option<String>) -> Result<()> {
        self.0.decide(call, Decision::Rejected(message), DecisionScope::EveryCall)
    }

    /// Adds input before the run is resumed.
    ///
    /// # Errors
    /// When the run is over or in the middle of a turn.
    pub fn add_input(&mut self, items: impl IntoIterator<Item = Item>) -> Result<()> {
        if !self.0.phase.takes_input() {
            return Err(AgentError::Misuse(
                "input can be added only between turns: this run is over, or waits for calls of the last reply"
                    .to_owned(),
            ));
        }
        self.0.add_input(items);
        Ok(())
    }

    /// Changes the limit of turns; `None` removes it.
    pub fn set_max_turns(&mut self, most: Option<u32>) {
        self.0.max_turns = most;
    }

    /// Changes the budget. What the run has spent so far still counts.
    pub fn set_budget(&mut self, budget: super::Budget) {
        self.0.budget = budget;
    }
}

/// Gives the position but not the text: a saved run contains a conversation.
fn damaged(error: &serde_json::Error) -> AgentError {
    AgentError::State(format!("it is damaged at line {}, column {}", error.line(), error.column()))
}

const FAULTS: [&str; 4] = [
    "a reply names items that are not there",
    "what the model sees begins after the end",
    "two calls have the same id",
    "a call has no id",
];

impl Run {
    /// The run as JSON, with references in the place of secret values.
    pub(super) fn sealed_with(&self, secrets: &dyn KnownSecrets) -> serde_json::Result<Value> {
        let mut value = Self::serialize(self, serde_json::value::Serializer)?;
        // Nested runs are sealed by their own serialization; those that were loaded and not resumed are sealed still.
        if let Some(seal) = secrets::seal(secrets, &mut value) {
            value["sealed"] = serde_json::to_value(seal)?;
        }
        Ok(value)
    }

    /// Sets the secrets of the environment, and replaces references in the run by their values.
    ///
    /// # Errors
    /// `secret_not_given` when the run refers to a secret that is not among them; the run is unchanged then.
    pub(crate) fn set_secrets(&mut self, secrets: Option<Arc<dyn KnownSecrets>>) -> Result<()> {
        if let Some(seal) = self.sealed.clone() {
            let lost = |error: serde_json::Error| AgentError::State(error.to_string());
            let mut value =
                Self::serialize(&Self { sealed: None, ..self.clone() }, serde_json::value::Serializer).map_err(lost)?;
            secrets::fill(secrets.as_deref(), &seal, &mut value)?;
            *self = serde_json::from_value(value).map_err(|error| damaged(&error))?;
        }
        self.secrets = secrets.or(self.secrets.take());
        Ok(())
    }

    /// Checks that all indices and ids in the run are consistent.
    pub(super) fn check_references(&self) -> Result<(), &'static str> {
        let items = self.items.len();
        let mut end = 0;
        for reply in &self.replies {
            if reply.from < end || reply.to < reply.from || reply.to > items {
                return Err(FAULTS[0]);
            }
            end = reply.to;
        }
        if self.rewritten.as_ref().is_some_and(|rewritten| rewritten.from > items) {
            return Err(FAULTS[1]);
        }
        let mut ids = HashSet::new();
        for call in self.phase.calls() {
            if call.call_id.is_empty() {
                return Err(FAULTS[3]);
            }
            if !ids.insert(&call.call_id) {
                return Err(FAULTS[2]);
            }
        }
        Ok(())
    }
}

impl From<RunState> for Value {
    fn from(state: RunState) -> Self {
        serde_json::to_value(SavedRun { sandbar_run: VERSION, run: &state.0 }).unwrap_or_default()
    }
}
