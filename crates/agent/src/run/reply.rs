//! Adds a model's reply to a run: classifies each item and collects the calls.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use super::{
    CallKind, CallStatus, PendingCall, Phase, ReplyRecord, Run, RunItem, RunItemKind, Thread, ledger::LedgerMatch,
};
use crate::{AgentError, Item, ModelReply, Result, View, tool};

/// Tools and handoffs that the model was offered, by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Offer {
    pub(crate) names: Arc<BTreeMap<String, Offered>>,
    pub(crate) on_unknown: OnUnknown,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Offered {
    Function,
    Custom,
    BuiltIn,
    Handoff(String),
}

/// How to treat a call of a tool that was not offered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum OnUnknown {
    #[default]
    Raise,
    Tell,
}

/// Items and calls that one reply adds to a run.
#[derive(Default)]
struct ParsedReply {
    items: Vec<RunItem>,
    calls: Vec<PendingCall>,
    places: HashMap<String, usize>,
    /// Calls that were answered before.
    repeated: Vec<String>,
}

/// The most calls one reply may make.
const MAX_CALLS: usize = 10_000;

impl ParsedReply {
    /// Removes the reasoning item before a call that is left out: servers reject reasoning that nothing follows.
    fn drop_thought(&mut self) {
        if self.items.last().is_some_and(|item| item.kind == RunItemKind::Reasoning) {
            self.items.pop();
        }
    }
}

impl Run {
    /// Adds a reply to the run. An invalid reply changes nothing. Returns the index of the first new item.
    pub(crate) fn replied(&mut self, model: &str, reply: ModelReply, offer: &Offer) -> Result<usize> {
        let read = self.read(&reply, offer)?;
        let from = self.items.len();
        self.turn = self.turn.saturating_add(1);
        self.usage.add_request(model, &reply.usage);
        for call in &read.calls {
            self.ledger.open(&call.call_id, &call.raw, self.secrets.as_deref());
        }
        self.items.extend(read.items);
        if let (Thread::Responses(last), Some(id)) = (&mut self.thread, &reply.response_id) {
            *last = Some(id.clone());
        }
        let ModelReply { usage, response_id, request_id, .. } = reply;
        self.replies.push(ReplyRecord { from, to: self.items.len(), usage, response_id, request_id });
        if self.thread != Thread::Ours {
            // The server has the answer already and repeats the call: send the answer again.
            let again = read.repeated.iter().filter_map(|id| self.items.iter().rfind(|item| item.raw.is_answer_to(id)));
            let again: Vec<RunItem> = again.cloned().collect();
            self.items.extend(again);
        }
        self.phase = Phase::Acting { calls: read.calls, repeated: !read.repeated.is_empty() };
        Ok(from)
    }

    fn read(&self, reply: &ModelReply, offer: &Offer) -> Result<ParsedReply> {
        let mut read = ParsedReply::default();
        for raw in &reply.output {
            if raw.fields().values().any(|value| tool::deeper_than(value, tool::MAX_DEPTH)) {
                return Err(misbehaved(format!(
                    "The model sent an item nested deeper than {} levels",
                    tool::MAX_DEPTH
                )));
            }
            let kind = match raw.view() {
                View::Message(_) => RunItemKind::Message,
                View::Reasoning(_) => RunItemKind::Reasoning,
                View::Compaction(_) => RunItemKind::Compaction,
                View::Answer(item) if is_ours(item.kind(), offer) => {
                    return Err(misbehaved("The model answered a call that is ours to answer".to_owned()));
                }
                View::Answer(_) => RunItemKind::ToolOutput,
                View::FunctionCall(call) => {
                    let Some(kind) = self.called(&mut read, (call.call_id, call.name), raw, offer)? else {
                        read.drop_thought();
                        continue;
                    };
                    kind
                }
                View::CustomCall(call) => {
                    let Some(kind) = self.called(&mut read, (call.call_id, call.name), raw, offer)? else {
                        read.drop_thought();
                        continue;
                    };
                    kind
                }
                View::Malformed(lacks) => return Err(misbehaved(format!("The model sent a broken item: {lacks}"))),
                View::Other(kind) => match built_in(kind, offer) {
                    None => other(kind)?,
                    Some(name) => {
                        let Some(kind) =
                            self.called(&mut read, (raw.call_id().unwrap_or_default(), name), raw, offer)?
                        else {
                            read.drop_thought();
                            continue;
                        };
                        kind
                    }
                },
            };
            read.items.push(RunItem { kind, agent: self.agent.clone(), raw: raw.clone(), output: None });
        }
        Ok(read)
    }

    /// Adds a call. Returns `None` for a call that was answered already or is repeated in this reply.
    fn called(
        &self,
        read: &mut ParsedReply,
        (call_id, name): (&str, &str),
        raw: &Item,
        offer: &Offer,
    ) -> Result<Option<RunItemKind>> {
        if call_id.is_empty() {
            return Err(misbehaved(format!("The model called {name} without a call id")));
        }
        let known = read.places.get(call_id).and_then(|place| read.calls.get(*place));
        match (self.ledger.lookup(call_id, raw, self.secrets.as_deref()), known) {
            (LedgerMatch::Clash, _) => return Err(reused(call_id)),
            (_, Some(known)) if known.raw != *raw => return Err(reused(call_id)),
            (_, Some(_)) => return Ok(None),
            (LedgerMatch::Completed, None) => {
                read.repeated.push(call_id.to_owned());
                return Ok(None);
            }
            (LedgerMatch::New | LedgerMatch::Open, None) => {}
        }
        if read.calls.len() >= MAX_CALLS {
            return Err(misbehaved(format!("The model made more than {MAX_CALLS} calls in one reply")));
        }
        read.places.insert(call_id.to_owned(), read.calls.len());
        let kind = match (offer.names.get(name), raw.kind()) {
            (Some(Offered::Handoff(target)), "function_call") => CallKind::Handoff(target.clone()),
            (Some(Offered::Function), "function_call") => CallKind::Function,
            (Some(Offered::Custom), "custom_tool_call") => CallKind::Custom,
            (Some(Offered::BuiltIn), kind) if kind.strip_suffix("_call") == Some(name) => CallKind::BuiltIn,
            _ if offer.on_unknown == OnUnknown::Tell => CallKind::Unknown,
            _ => return Err(misbehaved(format!("Tool {name} not found in agent {}", self.agent))),
        };
        let item = match kind {
            CallKind::Handoff(_) => RunItemKind::HandoffCall,
            _ => RunItemKind::ToolCall,
        };
        read.calls.push(PendingCall {
            call_id: call_id.to_owned(),
            tool: name.to_owned(),
            kind,
            status: CallStatus::Open,
            raw: raw.clone(),
            nested: None,
            answer: None,
        });
        Ok(Some(item))
    }
}

/// Whether outputs of this kind are made by this program, and not by the model's server.
fn is_ours(kind: &str, offer: &Offer) -> bool {
    matches!(kind, "function_call_output" | "custom_tool_call_output")
        || kind.strip_suffix("_output").is_some_and(|call| built_in(call, offer).is_some())
}

/// Name of the built-in tool that is called by items of this kind, if it was offered.
fn built_in<'k>(kind: &'k str, offer: &Offer) -> Option<&'k str> {
    let name = kind.strip_suffix("_call")?;
    (offer.names.get(name) == Some(&Offered::BuiltIn)).then_some(name)
}

/// Kind of an item that is neither a message nor a call that is answered here.
fn other(kind: &str) -> Result<RunItemKind> {
    match kind {
        "local_shell_call" | "apply_patch_call" | "computer_call" => {
            Err(misbehaved(format!("The model made a {kind}, and no tool for it was offered")))
        }
        "file_search_call"
        | "web_search_call"
        | "code_interpreter_call"
        | "image_generation_call"
        | "shell_call"
        | "mcp_call" => Ok(RunItemKind::ToolCall),
        "program_output" => Ok(RunItemKind::ToolOutput),
        unknown => {
            tracing::debug!(kind = unknown, "item of an unknown kind; kept unchanged");
            Ok(RunItemKind::Other)
        }
    }
}

fn misbehaved(what: String) -> AgentError {
    AgentError::ModelBehavior(what)
}

fn reused(call_id: &str) -> AgentError {
    misbehaved(format!("The model used the call id {call_id} for two different calls"))
}
