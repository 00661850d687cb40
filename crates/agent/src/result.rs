//! Result of a run: its output, its items, and its state, from which it can be resumed.

use std::fmt;

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{
    AgentError, Interruption, Item, ModelReply, Result, Run, RunItem, RunItemKind, RunState, Stop, Usage, View,
    guardrail::GuardrailResult, trace::TraceId,
};

/// Result of a run.
#[derive(Clone, Debug)]
pub struct RunResult {
    run: Run,
    stop: Stop,
}

impl RunResult {
    pub(crate) fn new(run: Run, stop: Stop) -> Self {
        Self { run, stop }
    }

    /// Why the run stopped: finished, waiting for a person, out of budget, or cancelled.
    #[must_use]
    pub fn stop(&self) -> &Stop {
        &self.stop
    }

    /// The final output, if there is one.
    #[must_use]
    pub fn output(&self) -> Option<&Value> {
        self.run.final_output()
    }

    /// The final output as text. If the run stopped without one: the last message of the model or output of a tool.
    #[must_use]
    pub fn final_output(&self) -> String {
        match self.output() {
            Some(Value::String(text)) => text.clone(),
            Some(value) => value.to_string(),
            None => self.last_text(),
        }
    }

    /// The final output as a typed value.
    ///
    /// # Errors
    /// When there is no final output, or it is not a `T`.
    pub fn final_output_as<T: DeserializeOwned>(&self) -> Result<T> {
        let output = self.output().ok_or_else(|| AgentError::Misuse("the run has no final output".to_owned()))?;
        serde_json::from_value(output.clone())
            .map_err(|error| AgentError::Misuse(format!("the final output is not of this type: {error}")))
    }

    /// Input that the run started with.
    #[must_use]
    pub fn input(&self) -> &[Item] {
        self.run.input()
    }

    /// Items that the run added, in order.
    #[must_use]
    pub fn new_items(&self) -> &[RunItem] {
        self.run.items()
    }

    /// Replies of the model.
    #[must_use]
    pub fn replies(&self) -> Vec<ModelReply> {
        self.run.replies().collect()
    }

    /// The conversation, as input for another run.
    #[must_use]
    pub fn to_input_list(&self) -> Vec<Item> {
        self.run.input_list()
    }

    /// Key of the last agent.
    #[must_use]
    pub fn last_agent(&self) -> &str {
        self.run.agent()
    }

    /// The server's id of the last reply.
    #[must_use]
    pub fn last_response_id(&self) -> Option<&str> {
        self.run.last_response_id()
    }

    /// Calls that wait for a person.
    #[must_use]
    pub fn interruptions(&self) -> Vec<Interruption> {
        self.run.interruptions()
    }

    /// Usage, including nested runs.
    #[must_use]
    pub fn usage(&self) -> &Usage {
        self.run.usage()
    }

    /// Results of input guardrails.
    #[must_use]
    pub fn input_guardrails(&self) -> &[GuardrailResult] {
        &self.run.checks.input
    }

    /// Results of output guardrails.
    #[must_use]
    pub fn output_guardrails(&self) -> &[GuardrailResult] {
        &self.run.checks.output
    }

    /// Results of guardrails on tool calls.
    #[must_use]
    pub fn tool_input_guardrails(&self) -> &[GuardrailResult] {
        &self.run.checks.tool_input
    }

    /// Results of guardrails on tool outputs.
    #[must_use]
    pub fn tool_output_guardrails(&self) -> &[GuardrailResult] {
        &self.run.checks.tool_output
    }

    /// Trace that the run is recorded in.
    #[must_use]
    pub fn trace_id(&self) -> Option<TraceId> {
        self.run.trace.as_ref().map(|trace| trace.id)
    }

    /// A copy of the run that can be saved and resumed.
    #[must_use]
    pub fn to_state(&self) -> RunState {
        RunState(self.run.clone())
    }

    pub(crate) fn into_run(self) -> Run {
        self.run
    }

    /// Text of the last message or tool output that is not empty.
    pub(crate) fn last_text(&self) -> String {
        let items = self.run.items().iter().rev();
        let mut texts = items.filter_map(|item| match (item.kind, item.raw.view()) {
            (RunItemKind::Message, View::Message(message)) => Some(message.text()),
            (RunItemKind::ToolOutput, _) => item.raw.text_field("output").map(str::to_owned),
            _ => None,
        });
        texts.find(|text| !text.is_empty()).unwrap_or_default()
    }
}

/// Failure of a run, with the run so far, so that its work is not lost.
pub struct RunError {
    error: AgentError,
    run: Box<Run>,
}

impl RunError {
    pub(crate) fn new(error: AgentError, run: Run) -> Self {
        Self { error, run: Box::new(run) }
    }

    /// Why the run failed.
    #[must_use]
    pub fn error(&self) -> &AgentError {
        &self.error
    }

    /// Why the run failed, without the run.
    #[must_use]
    pub fn into_error(self) -> AgentError {
        self.error
    }

    /// The run so far. It can be resumed if the cause of the failure is gone.
    #[must_use]
    pub fn state(&self) -> RunState {
        RunState((*self.run).clone())
    }

    /// The run so far.
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
