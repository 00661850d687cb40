//! What a run gives back: its output, everything that happened, and itself, to be gone on with.

use std::fmt;

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{
    AgentError, Interruption, Item, ModelReply, Result, Run, RunItem, RunItemKind, RunState, Stop, Usage, View,
    guardrail::GuardrailResult, trace::TraceId,
};

/// What a run gives back.
#[derive(Clone, Debug)]
pub struct RunResult {
    run: Run,
    stop: Stop,
}

impl RunResult {
    pub(crate) fn new(run: Run, stop: Stop) -> Self {
        Self { run, stop }
    }

    /// Why it stopped: it is finished, waits for a person, has spent its budget, or was cancelled.
    #[must_use]
    pub fn stop(&self) -> &Stop {
        &self.stop
    }

    /// The final output, if there is one.
    #[must_use]
    pub fn output(&self) -> Option<&Value> {
        self.run.final_output()
    }

    /// The final output as text; what was said or answered by a tool last, if it has stopped before.
    #[must_use]
    pub fn final_output(&self) -> String {
        match self.output() {
            Some(Value::String(text)) => text.clone(),
            Some(value) => value.to_string(),
            None => self.last_words(),
        }
    }

    /// The final output as the type the agent was told to answer with.
    ///
    /// # Errors
    /// When there is none yet, or it is not a `T`.
    pub fn final_output_as<T: DeserializeOwned>(&self) -> Result<T> {
        let output = self.output().ok_or_else(|| AgentError::Misuse("the run has no final output".to_owned()))?;
        serde_json::from_value(output.clone())
            .map_err(|error| AgentError::Misuse(format!("the final output is not of this type: {error}")))
    }

    /// What it started with.
    #[must_use]
    pub fn input(&self) -> &[Item] {
        self.run.input()
    }

    /// What happened, in order.
    #[must_use]
    pub fn new_items(&self) -> &[RunItem] {
        self.run.items()
    }

    /// Each answer of the model as it came.
    #[must_use]
    pub fn replies(&self) -> Vec<ModelReply> {
        self.run.replies().collect()
    }

    /// The conversation as the input of a next run.
    #[must_use]
    pub fn to_input_list(&self) -> Vec<Item> {
        self.run.input_list()
    }

    /// The agent that spoke last.
    #[must_use]
    pub fn last_agent(&self) -> &str {
        self.run.agent()
    }

    /// The server's name for the last answer.
    #[must_use]
    pub fn last_response_id(&self) -> Option<&str> {
        self.run.last_response_id()
    }

    /// The calls that wait for a person.
    #[must_use]
    pub fn interruptions(&self) -> Vec<Interruption> {
        self.run.interruptions()
    }

    /// What it used, nested runs included.
    #[must_use]
    pub fn usage(&self) -> &Usage {
        self.run.usage()
    }

    /// What input guardrails found.
    #[must_use]
    pub fn input_guardrails(&self) -> &[GuardrailResult] {
        &self.run.checks.input
    }

    /// What output guardrails found.
    #[must_use]
    pub fn output_guardrails(&self) -> &[GuardrailResult] {
        &self.run.checks.output
    }

    /// What guardrails found before tools were called.
    #[must_use]
    pub fn tool_input_guardrails(&self) -> &[GuardrailResult] {
        &self.run.checks.tool_input
    }

    /// What guardrails found in what tools answered.
    #[must_use]
    pub fn tool_output_guardrails(&self) -> &[GuardrailResult] {
        &self.run.checks.tool_output
    }

    /// The trace it is recorded in.
    #[must_use]
    pub fn trace_id(&self) -> Option<TraceId> {
        self.run.trace.as_ref().map(|trace| trace.id)
    }

    /// The run, to be saved or gone on with. A copy: it does not change with this result.
    #[must_use]
    pub fn to_state(&self) -> RunState {
        RunState(self.run.clone())
    }

    pub(crate) fn into_run(self) -> Run {
        self.run
    }

    /// The last thing the model said, or a tool answered.
    pub(crate) fn last_words(&self) -> String {
        let items = self.run.items().iter().rev();
        let mut words = items.filter_map(|item| match (item.kind, item.raw.view()) {
            (RunItemKind::Message, View::Message(message)) => Some(message.text()),
            (RunItemKind::ToolOutput, _) => item.raw.text_field("output").map(str::to_owned),
            _ => None,
        });
        words.find(|text| !text.is_empty()).unwrap_or_default()
    }
}

/// A run that failed: why, and the run as it stood, so that nothing it did is lost.
pub struct RunError {
    error: AgentError,
    run: Box<Run>,
}

impl RunError {
    pub(crate) fn new(error: AgentError, run: Run) -> Self {
        Self { error, run: Box::new(run) }
    }

    /// Why.
    #[must_use]
    pub fn error(&self) -> &AgentError {
        &self.error
    }

    /// Why, without the run.
    #[must_use]
    pub fn into_error(self) -> AgentError {
        self.error
    }

    /// The run as it stood. Where the cause has gone away it can be gone on with.
    #[must_use]
    pub fn state(&self) -> RunState {
        RunState((*self.run).clone())
    }

    /// What had happened.
    #[must_use]
    pub fn run(&self) -> &Run {
        &self.run
    }
}

impl fmt::Debug for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunError").field("error", &self.error).field("turn", &self.run.turn()).finish_non_exhaustive()
    }
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for RunError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}

impl From<RunError> for AgentError {
    fn from(error: RunError) -> Self {
        error.error
    }
}
