//! Assembles the tool calls of one reply from pieces. Servers number the pieces in different ways.

use std::sync::Arc;

use serde_json::{Value, json};

use super::RequestFacts;
use crate::{Item, ModelError};

/// The most tool calls in one reply.
const MOST_CALLS: usize = 1000;

/// One call, as far as it was received.
#[derive(Debug)]
pub(super) struct Call {
    /// Index that the server gave it, if any.
    number: Option<u64>,
    /// Id that the server gave it, if any.
    named: Option<String>,
    /// Id that the run uses for it.
    pub(super) id: String,
    pub(super) name: String,
    pub(super) arguments: String,
    /// Whether it calls a freeform tool.
    pub(super) custom: bool,
    /// Index among the items of the reply.
    pub(super) index: usize,
}

/// What one piece added.
pub(super) struct AddedPiece {
    /// Index of the call that the piece belongs to.
    pub(super) call: usize,
    /// Whether the piece began the call.
    pub(super) is_new: bool,
    /// Text that was appended to the arguments.
    pub(super) arguments: String,
}

/// All calls of one reply.
#[derive(Debug, Default)]
pub(super) struct Calls {
    pub(super) all: Vec<Call>,
    facts: Arc<RequestFacts>,
}

impl Calls {
    pub(super) fn new(facts: Arc<RequestFacts>) -> Self {
        Self { all: Vec::new(), facts }
    }

    /// Adds a piece. If it begins a call, the call gets this item index.
    pub(super) fn add(&mut self, piece: &Value, index: usize) -> Result<AddedPiece, ModelError> {
        let function = piece.get("function").or_else(|| piece.get("custom")).unwrap_or(piece);
        let text =
            |value: Option<&Value>| value.and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned);
        let (named, name) = (text(piece.get("id")), text(function.get("name")));
        let number = piece.get("index").and_then(Value::as_u64);
        let found = self.find(number, named.as_deref(), name.as_deref());
        let call = match found {
            Some(call) => call,
            None => self.begin(Call {
                number,
                id: self.fresh_id(named.as_deref()),
                named: named.clone(),
                custom: name.as_ref().is_some_and(|name| self.facts.custom.contains(name)),
                name: name.clone().unwrap_or_default(),
                arguments: String::new(),
                index,
            })?,
        };
        let arguments = match function.get("arguments").or_else(|| function.get("input")) {
            Some(Value::String(more)) => more.clone(),
            // Some servers send the arguments as an object.
            Some(whole @ Value::Object(_)) => whole.to_string(),
            _ => String::new(),
        };
        let target = &mut self.all[call];
        target.arguments.push_str(&arguments);
        if target.name.is_empty() {
            target.name = name.unwrap_or_default();
            target.custom = self.facts.custom.contains(&target.name);
        }
        target.named = target.named.take().or(named);
        Ok(AddedPiece { call, is_new: found.is_none(), arguments })
    }

    /// The call that a piece continues.
    fn find(&self, number: Option<u64>, named: Option<&str>, name: Option<&str>) -> Option<usize> {
        if let Some(number) = number {
            let last = self.all.iter().rposition(|call| call.number == Some(number))?;
            // Some servers give all calls the same index and different ids.
            let other = named.is_some() && self.all[last].named.is_some() && self.all[last].named.as_deref() != named;
            return (!other || name.is_none()).then_some(last);
        }
        if let Some(named) = named {
            return self.all.iter().rposition(|call| call.named.as_deref() == Some(named));
        }
        // Without index and id: a piece with a tool name begins a call, any other piece continues the last call.
        if name.is_some() { None } else { self.all.len().checked_sub(1) }
    }

    fn begin(&mut self, call: Call) -> Result<usize, ModelError> {
        if self.all.len() >= MOST_CALLS {
            return Err(ModelError::Malformed(format!("its answer has more than {MOST_CALLS} tool calls")));
        }
        self.all.push(call);
        Ok(self.all.len() - 1)
    }

    /// The server's id if it is unique, otherwise a new one.
    fn fresh_id(&self, named: Option<&str>) -> String {
        let taken = |id: &str| self.facts.calls.contains(id) || self.all.iter().any(|call| call.id == id);
        match named.filter(|id| !taken(id)) {
            Some(id) => id.to_owned(),
            None => format!("call_{}", uuid::Uuid::new_v4().simple()),
        }
    }
}

impl Call {
    /// The call as an item.
    pub(super) fn item(&self) -> Item {
        let (id, name) = (self.id.as_str(), self.name.as_str());
        let item = if self.custom {
            Item::custom_call(id, name, self.input())
        } else {
            let arguments = self.arguments.trim();
            Item::function_call(id, name, if arguments.is_empty() { "{}" } else { arguments })
        };
        item.with("status", "completed")
    }

    /// The text for a freeform tool: the `input` field, or the raw arguments if they are no such object.
    pub(super) fn input(&self) -> String {
        let wrapped = serde_json::from_str::<Value>(&self.arguments).ok();
        let input = wrapped.as_ref().and_then(|object| object.get("input")?.as_str());
        input.unwrap_or(&self.arguments).to_owned()
    }

    /// The call without arguments, for the event that announces it.
    pub(super) fn begun(&self) -> Value {
        let (kind, field) = if self.custom { ("custom_tool_call", "input") } else { ("function_call", "arguments") };
        json!({ "type": kind, "call_id": self.id, "name": self.name, field: "", "status": "in_progress" })
    }
}
