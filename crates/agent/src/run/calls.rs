//! The calls of one reply: which are due, which wait for a person, and what the others answered.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Interruption, Phase, Run, RunItem, RunItemKind};
use crate::{Item, ToolOutput, agent::ToolResult, handoff::InputFilter};

/// A call of the last reply.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PendingCall {
    pub(crate) call_id: String,
    pub(crate) tool: String,
    pub(crate) kind: CallKind,
    pub(crate) status: CallStatus,
    pub(crate) raw: Item,
    /// Run of the agent behind the tool, while it waits for a person or was interrupted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) nested: Option<Box<Run>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) answer: Option<ToolOutput>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CallKind {
    Function,
    Custom,
    BuiltIn,
    /// Handoff to the agent with this key.
    Handoff(String),
    /// Call of a tool that was not offered.
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CallStatus {
    /// Not made yet.
    Open,
    /// Waits for the decision of a person.
    #[serde(rename = "held")]
    AwaitingApproval,
    /// The call was begun. In a loaded run this means: it was interrupted, and its effect is unknown.
    Begun,
    /// Answered.
    Answered,
}

/// Outcome of a call.
#[derive(Debug)]
pub(crate) enum Answer {
    Output(ToolOutput),
    /// Text from the harness in place of an output of the tool.
    Message(String),
    Pending(Option<Box<Run>>),
}

impl PendingCall {
    pub(crate) fn arguments(&self) -> Cow<'_, str> {
        if self.kind == CallKind::BuiltIn {
            let own = self.raw.clone().without(&["type", "id", "call_id", "status", "created_by"]);
            return serde_json::to_string(&own).unwrap_or_default().into();
        }
        self.raw.text_field("arguments").or_else(|| self.raw.text_field("input")).unwrap_or_default().into()
    }

    /// Arguments as JSON; an empty text is an empty object.
    pub(crate) fn parsed_arguments(&self) -> serde_json::Result<Value> {
        let text = self.arguments();
        if text.trim().is_empty() { Ok(Value::Object(Map::new())) } else { serde_json::from_str(&text) }
    }

    /// The call, for the person who decides about it.
    pub(crate) fn interruption(&self, agent: &str) -> Interruption {
        Interruption {
            agent: agent.to_owned(),
            tool: self.tool.clone(),
            call_id: self.call_id.clone(),
            arguments: self.arguments().into_owned(),
            inside: Vec::new(),
            raw: self.raw.clone(),
        }
    }

    fn is_handoff(&self) -> bool {
        matches!(self.kind, CallKind::Handoff(_))
    }

    fn answer_item(&self, output: &ToolOutput) -> Item {
        match self.raw.kind() {
            "custom_tool_call" => Item::custom_output(&self.call_id, output.wire()),
            kind if self.kind == CallKind::BuiltIn => {
                let status = if matches!(output, ToolOutput::Failure(_)) { "failed" } else { "completed" };
                Item::built_in_output(kind, &self.call_id, status).with("output", output.wire())
            }
            _ => Item::function_output(&self.call_id, output.wire()),
        }
    }
}

impl PartialEq for Run {
    fn eq(&self, other: &Self) -> bool {
        serde_json::to_value(self).ok() == serde_json::to_value(other).ok()
    }
}

impl Phase {
    /// Calls of the last reply.
    pub(super) fn calls(&self) -> &[PendingCall] {
        match self {
            Self::Acting { calls, .. } => calls,
            _ => &[],
        }
    }

    pub(super) fn calls_mut(&mut self) -> &mut [PendingCall] {
        match self {
            Self::Acting { calls, .. } => calls,
            _ => &mut [],
        }
    }

    /// The first handoff of the reply, which is the only one that is executed.
    pub(crate) fn due_handoff(&self) -> Option<&PendingCall> {
        self.calls().iter().find(|call| call.is_handoff() && call.status == CallStatus::Open)
    }

    /// Number of handoffs in the last reply.
    pub(crate) fn handoffs_asked(&self) -> usize {
        self.calls().iter().filter(|call| call.is_handoff()).count()
    }

    /// Marks calls as begun.
    pub(crate) fn begin_calls(&mut self, call_ids: &HashSet<String>) {
        for call in self.calls_mut().iter_mut().filter(|call| call_ids.contains(&call.call_id)) {
            call.status = CallStatus::Begun;
        }
    }

    /// Outputs of the function tools in this turn.
    pub(crate) fn tool_results(&self) -> Vec<ToolResult> {
        let answered = self.calls().iter().filter_map(|call| {
            let output = call.answer.clone()?;
            Some(ToolResult { tool: call.tool.clone(), call_id: call.call_id.clone(), output })
        });
        answered.collect()
    }

    /// Whether the last reply contained calls.
    pub(crate) fn had_calls(&self) -> bool {
        matches!(self, Self::Acting { calls, repeated } if *repeated || !calls.is_empty())
    }
}

impl Run {
    /// Calls to handle now: open ones, begun ones (the model must be told that they were interrupted), and those that waited
    /// for a decision and have one.
    pub(crate) fn due_calls(&self) -> Vec<PendingCall> {
        let due = |call: &&PendingCall| match call.status {
            _ if call.is_handoff() => false,
            CallStatus::Open | CallStatus::Begun => true,
            CallStatus::Answered => false,
            CallStatus::AwaitingApproval => match &call.nested {
                None => self.approvals.decision_for(&call.call_id, &call.tool).is_some(),
                Some(nested) => !matches!(nested.next(), super::Step::AskHuman(_)),
            },
        };
        self.phase.calls().iter().filter(due).cloned().collect()
    }

    /// Records the outcomes of calls, in the model's order. Returns the number of items before.
    pub(crate) fn answered(&mut self, answers: Vec<(String, Answer)>) -> usize {
        let before = self.items.len();
        let calls = self.phase.calls_mut();
        let places: HashMap<String, usize> =
            calls.iter().enumerate().map(|(place, call)| (call.call_id.clone(), place)).collect();
        for (call_id, answer) in answers {
            let Some(call) = places.get(&call_id).and_then(|place| calls.get_mut(*place)) else { continue };
            let (output, is_result) = match answer {
                Answer::Pending(nested) => {
                    call.status = CallStatus::AwaitingApproval;
                    call.nested = nested;
                    continue;
                }
                Answer::Output(output) => (output.bounded(), call.kind == CallKind::Function),
                Answer::Message(text) if call.kind == CallKind::BuiltIn => (ToolOutput::Failure(text), false),
                Answer::Message(text) => (ToolOutput::Text(text), false),
            };
            call.status = CallStatus::Answered;
            call.nested = None;
            call.answer = is_result.then(|| output.clone());
            let raw = call.answer_item(&output);
            if call.kind != CallKind::Unknown {
                self.tools_used.entry(self.agent.clone()).or_default().insert(call.tool.clone());
            }
            self.ledger.complete(&call_id);
            let agent = self.agent.clone();
            self.items.push(RunItem { kind: RunItemKind::ToolOutput, agent, raw, output: Some(output) });
        }
        before
    }
}

/// Output of every handoff of a reply but the first.
const IGNORED: &str = "Multiple handoffs detected, ignoring this one.";

/// Replacement for an output that a guardrail removed.
const WITHHELD: &str = "Output withheld by an output guardrail.";

impl Run {
    /// Hands the conversation over to another agent by this call. Other handoffs of the reply are ignored.
    pub(crate) fn hand_over(&mut self, call_id: &str, target: &str, name: &str, filter: Option<&InputFilter>) -> usize {
        let from = self.items.len();
        let agent = self.agent.clone();
        for call in
            self.phase.calls_mut().iter_mut().filter(|call| call.is_handoff() && call.status == CallStatus::Open)
        {
            call.status = CallStatus::Answered;
            self.ledger.complete(&call.call_id);
            let (kind, text) = if call.call_id == call_id {
                (RunItemKind::HandoffOutput, serde_json::json!({ "assistant": name }).to_string())
            } else {
                (RunItemKind::ToolOutput, IGNORED.to_owned())
            };
            let raw = Item::function_output(&call.call_id, text);
            self.items.push(RunItem { kind, agent: agent.clone(), raw, output: None });
        }
        if let Some(filter) = filter {
            let seen = filter.apply(self.handoff_input());
            self.replace_model_input(super::input::joined(seen));
        }
        target.clone_into(&mut self.agent);
        self.greeted = false;
        self.phase = Phase::Enter;
        from
    }

    /// Removes a final output that a guardrail rejected. If the run is resumed, the model is asked again.
    pub(crate) fn withhold(&mut self, origin: Origin) {
        let Some(reply) = self.replies.last_mut() else { return };
        let (from, to) = (reply.from, reply.to);
        self.phase = Phase::Ready;
        if origin == Origin::Tools {
            for item in self.items[to..].iter_mut().filter(|item| item.kind == RunItemKind::ToolOutput) {
                item.raw = item.raw.clone().with("output", WITHHELD);
                item.output = Some(ToolOutput::Text(WITHHELD.to_owned()));
            }
        }
        if origin == Origin::Message {
            let mut kept: Vec<RunItem> = Vec::new();
            for item in self.items.drain(from..to) {
                if item.kind != RunItemKind::Message {
                    kept.push(item);
                } else if kept.last().is_some_and(|last| last.kind == RunItemKind::Reasoning) {
                    // Servers reject a reasoning item that no message or call follows.
                    kept.pop();
                }
            }
            reply.to = from + kept.len();
            self.items.splice(from..from, kept);
        }
        self.model_input_cache = None;
    }
}

/// Source of a final output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A message of the model.
    Message,
    /// The output of a tool.
    Tools,
    /// A recovery function of the caller.
    Recovery,
}
