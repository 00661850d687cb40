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

/// Reader of one reply: the items and calls that it adds to a run.
struct ReplyReader<'r> {
    run: &'r Run,
    offer: &'r Offer,
    items: Vec<RunItem>,
    calls: Vec<PendingCall>,
    places: HashMap<String, usize>,
    /// Calls that were answered before.
    repeated: Vec<String>,
}

/// The most calls one reply may make.
const MAX_CALLS: usize = 10_000;

impl Run {
    /// Adds a reply to the run. An invalid reply changes nothing. Returns the index of the first new item.
    pub(crate) fn replied(&mut self, model: &str, reply: ModelReply, offer: &Offer) -> Result<usize> {
        let mut reader = ReplyReader {
            run: self,
            offer,
            items: Vec::new(),
            calls: Vec::new(),
            places: HashMap::new(),
            repeated: Vec::new(),
        };
        reply.output.iter().try_for_each(|raw| reader.read(raw))?;
        let ReplyReader { items, calls, repeated, .. } = reader;
        let from = self.items.len();
        self.turn = self.turn.saturating_add(1);
        self.usage.add_request(model, &reply.usage);
        for call in &calls {
            self.ledger.open(&call.call_id, &call.raw, self.secrets.as_deref());
        }
        self.items.extend(items);
        if let (Thread::Responses(last), Some(id)) = (&mut self.thread, &reply.response_id) {
            *last = Some(id.clone());
        }
        let ModelReply { usage, response_id, request_id, .. } = reply;
        self.replies.push(ReplyRecord { from, to: self.items.len(), usage, response_id, request_id });
        if self.thread != Thread::Ours {
            // The server has the answer already and repeats the call: send the answer again.
            let again = repeated.iter().filter_map(|id| self.items.iter().rfind(|item| item.raw.is_answer_to(id)));
            let again: Vec<RunItem> = again.cloned().collect();
            self.items.extend(again);
        }
        self.phase = Phase::Acting { calls, repeated: !repeated.is_empty() };
        Ok(from)
    }
}

impl ReplyReader<'_> {
    fn read(&mut self, raw: &Item) -> Result<()> {
        if raw.fields().values().any(|value| tool::deeper_than(value, tool::MAX_DEPTH)) {
            return Err(misbehaved(format!("The model sent an item nested deeper than {} levels", tool::MAX_DEPTH)));
        }
        let kind = match raw.view() {
            View::Message(_) => Some(RunItemKind::Message),
            View::Reasoning(_) => Some(RunItemKind::Reasoning),
            View::Compaction(_) => Some(RunItemKind::Compaction),
            View::Answer(item) if is_ours(item.kind(), self.offer) => {
                return Err(misbehaved("The model answered a call that is ours to answer".to_owned()));
            }
            View::Answer(_) => Some(RunItemKind::ToolOutput),
            View::FunctionCall(call) => self.called(call.call_id, call.name, raw)?,
            View::CustomCall(call) => self.called(call.call_id, call.name, raw)?,
            View::Malformed(lacks) => return Err(misbehaved(format!("The model sent a broken item: {lacks}"))),
            View::Other(kind) => match built_in(kind, self.offer) {
                None => Some(other(kind)?),
                Some(name) => self.called(raw.call_id().unwrap_or_default(), name, raw)?,
            },
        };
        match kind {
            Some(kind) => {
                self.items.push(RunItem { kind, agent: self.run.agent.clone(), raw: raw.clone(), output: None });
            }
            // Servers reject reasoning that nothing follows.
            None if self.items.last().is_some_and(|item| item.kind == RunItemKind::Reasoning) => {
                self.items.pop();
            }
            None => {}
        }
        Ok(())
    }

    /// Adds a call. Returns `None` for a call that was answered already or is repeated in this reply.
    fn called(&mut self, call_id: &str, name: &str, raw: &Item) -> Result<Option<RunItemKind>> {
        if call_id.is_empty() {
            return Err(misbehaved(format!("The model called {name} without a call id")));
        }
        let known = self.places.get(call_id).and_then(|place| self.calls.get(*place));
        match (self.run.ledger.lookup(call_id, raw, self.run.secrets.as_deref()), known) {
            (LedgerMatch::Clash, _) => return Err(reused(call_id)),
            (_, Some(known)) if known.raw != *raw => return Err(reused(call_id)),
            (_, Some(_)) => return Ok(None),
            (LedgerMatch::Completed, None) => {
                self.repeated.push(call_id.to_owned());
                return Ok(None);
            }
            (LedgerMatch::New | LedgerMatch::Open, None) => {}
        }
        if self.calls.len() >= MAX_CALLS {
            return Err(misbehaved(format!("The model made more than {MAX_CALLS} calls in one reply")));
        }
        self.places.insert(call_id.to_owned(), self.calls.len());
        let kind = match (self.offer.names.get(name), raw.kind()) {
            (Some(Offered::Handoff(target)), "function_call") => CallKind::Handoff(target.clone()),
            (Some(Offered::Function), "function_call") => CallKind::Function,
            (Some(Offered::Custom), "custom_tool_call") => CallKind::Custom,
            (Some(Offered::BuiltIn), kind) if kind.strip_suffix("_call") == Some(name) => CallKind::BuiltIn,
            _ if self.offer.on_unknown == OnUnknown::Tell => CallKind::Unknown,
            _ => return Err(misbehaved(format!("Tool {name} not found in agent {}", self.run.agent))),
        };
        let item = match kind {
            CallKind::Handoff(_) => RunItemKind::HandoffCall,
            _ => RunItemKind::ToolCall,
        };
        self.calls.push(PendingCall {
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
