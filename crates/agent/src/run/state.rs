//! A run on paper: versioned JSON that a later process, or a later version, can take up.

use std::{collections::HashSet, sync::Arc};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Interruption, Run, approvals::Decision, approvals::Reach};
use crate::{AgentError, Item, Result, environment::KnownSecrets, secrets};

/// The version this library writes. It reads every older one.
const VERSION: u64 = 1;

/// The longest saved run that is read.
const MAX_BYTES: usize = 256 << 20;

/// A run that can be saved, decided about and gone on with. What the caller gave along, keys and headers are not in it. It
/// is the whole conversation otherwise, and as confidential as that.
///
/// The secrets of the run's environment are saved as references: where their values stand in the run in one of the forms that
/// are known (as they are, JSON- or URL-escaped, in base64), the saved form has a name. When it is taken up, the values come
/// from the environment it is run in then; without them it is refused ([`AgentError::SecretNotGiven`]). That is a net
/// against accidents, not a wall: a value in another form, or of fewer than 8 bytes, is saved as it is.
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
struct Written<'a> {
    sandbar_run: u64,
    #[serde(flatten)]
    run: &'a Run,
}

#[derive(Deserialize)]
struct Version {
    sandbar_run: Option<u64>,
}

impl RunState {
    /// As JSON.
    ///
    /// # Errors
    /// Only if there is no memory for it.
    pub fn to_json(&self) -> Result<String> {
        serde_json::to_string(&Written { sandbar_run: VERSION, run: &self.0 })
            .map_err(|error| AgentError::State(error.to_string()))
    }

    /// From JSON.
    ///
    /// # Errors
    /// When it is not a saved run, is damaged, or was written by a newer version. Nothing of the text is repeated.
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
            // What we say ourselves about a run names nothing of it.
            let ours = FAULTS.iter().find(|fault| error.to_string().starts_with(**fault));
            ours.map_or_else(|| damaged(&error), |fault| AgentError::State(format!("it is damaged: {fault}")))
        })?;
        Ok(Self(run))
    }

    /// The run itself.
    #[must_use]
    pub fn run(&self) -> &Run {
        &self.0
    }

    /// The calls that wait for a person.
    #[must_use]
    pub fn interruptions(&self) -> Vec<Interruption> {
        self.0.interruptions()
    }

    /// Agrees to one call.
    ///
    /// # Errors
    /// When no such call waits.
    pub fn approve(&mut self, call: &Interruption) -> Result<()> {
        self.0.decide(call, Decision::Approved, Reach::ThisCall)
    }

    /// Agrees to this call and every later one of the same tool in the same run.
    ///
    /// # Errors
    /// When no such call waits.
    pub fn approve_always(&mut self, call: &Interruption) -> Result<()> {
        self.0.decide(call, Decision::Approved, Reach::EveryCall)
    }

    /// Refuses one call. The model is told so, in the usual words.
    ///
    /// # Errors
    /// When no such call waits.
    pub fn reject(&mut self, call: &Interruption) -> Result<()> {
        self.0.decide(call, Decision::Rejected(None), Reach::ThisCall)
    }

    /// Refuses one call, and says why.
    ///
    /// # Errors
    /// When no such call waits.
    pub fn reject_with(&mut self, call: &Interruption, message: impl Into<String>) -> Result<()> {
        self.0.decide(call, Decision::Rejected(Some(message.into())), Reach::ThisCall)
    }

    /// Refuses this call and every later one of the same tool in the same run.
    ///
    /// # Errors
    /// When no such call waits.
    pub fn reject_always(&mut self, call: &Interruption, message: Option<String>) -> Result<()> {
        self.0.decide(call, Decision::Rejected(message), Reach::EveryCall)
    }

    /// Says something more before the run goes on.
    ///
    /// # Errors
    /// When the run is over or in the middle of a turn.
    pub fn add_input(&mut self, items: impl IntoIterator<Item = Item>) -> Result<()> {
        if !self.0.takes_input() {
            return Err(AgentError::Misuse(
                "input can be added only between turns: this run is over, or waits for calls of the last reply"
                    .to_owned(),
            ));
        }
        self.0.add_input(items);
        Ok(())
    }

    /// Allows more turns.
    pub fn set_max_turns(&mut self, most: Option<u32>) {
        let budget = self.0.budget().clone();
        self.0.limits(most, budget);
    }

    /// Gives it another budget. What it has spent so far still counts.
    pub fn set_budget(&mut self, budget: super::Budget) {
        self.0.set_budget(budget);
    }
}

/// Says where, and never what: a saved run holds conversations.
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
        // Nested runs have sealed themselves; those that were loaded and not taken up yet still are.
        if let Some(seal) = secrets::seal(secrets, &mut value) {
            value["sealed"] = serde_json::to_value(seal)?;
        }
        Ok(value)
    }

    /// Takes the secrets of the environment, for what is saved from now on, and their values in the place of references.
    ///
    /// # Errors
    /// `secret_not_given` when the run refers to a secret that is not among them; it stays as it was then.
    pub(crate) fn know(&mut self, secrets: Option<Arc<dyn KnownSecrets>>) -> Result<()> {
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

    /// Whether all that refers to something else in the run finds it there.
    pub(super) fn whole(&self) -> Result<(), &'static str> {
        let items = self.items.len();
        let mut end = 0;
        for reply in &self.replies {
            if reply.from < end || reply.to < reply.from || reply.to > items {
                return Err(FAULTS[0]);
            }
            end = reply.to;
        }
        if !self.rewritten_within(items) {
            return Err(FAULTS[1]);
        }
        let mut ids = HashSet::new();
        for call in self.calls() {
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
        serde_json::to_value(Written { sandbar_run: VERSION, run: &state.0 }).unwrap_or_default()
    }
}
