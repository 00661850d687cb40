//! The tool calls of one answer, put together from pieces that servers number in their own ways.

use std::sync::Arc;

use serde_json::{Value, json};

use super::Known;
use crate::{Item, ModelError};

/// More calls than any model makes in one answer.
const MOST_CALLS: usize = 1000;

/// One call so far.
#[derive(Debug)]
pub(super) struct Call {
    /// How the server numbers it, if it does.
    number: Option<u64>,
    /// How the server names it, if it does.
    named: Option<String>,
    /// How it is named from here on.
    pub(super) id: String,
    pub(super) name: String,
    pub(super) arguments: String,
    /// Whether it is one of a freeform tool.
    pub(super) custom: bool,
    /// Its place in the answer.
    pub(super) place: usize,
}

/// What a piece was good for.
pub(super) struct Added {
    /// Which call it belongs to.
    pub(super) call: usize,
    /// Whether it began it.
    pub(super) is_new: bool,
    /// What it adds to the arguments.
    pub(super) arguments: String,
}

/// All calls of one answer.
#[derive(Debug, Default)]
pub(super) struct Calls {
    pub(super) all: Vec<Call>,
    known: Arc<Known>,
}

impl Calls {
    pub(super) fn new(known: Arc<Known>) -> Self {
        Self { all: Vec::new(), known }
    }

    /// Adds a piece; a call that it begins gets this place.
    pub(super) fn add(&mut self, piece: &Value, place: usize) -> Result<Added, ModelError> {
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
                custom: name.as_ref().is_some_and(|name| self.known.custom.contains(name)),
                name: name.clone().unwrap_or_default(),
                arguments: String::new(),
                place,
            })?,
        };
        let arguments = match function.get("arguments").or_else(|| function.get("input")) {
            Some(Value::String(more)) => more.clone(),
            // Some servers parse them first.
            Some(whole @ Value::Object(_)) => whole.to_string(),
            _ => String::new(),
        };
        let target = &mut self.all[call];
        target.arguments.push_str(&arguments);
        if target.name.is_empty() {
            target.name = name.unwrap_or_default();
            target.custom = self.known.custom.contains(&target.name);
        }
        target.named = target.named.take().or(named);
        Ok(Added { call, is_new: found.is_none(), arguments })
    }

    /// The call that a piece goes on with.
    fn find(&self, number: Option<u64>, named: Option<&str>, name: Option<&str>) -> Option<usize> {
        if let Some(number) = number {
            let last = self.all.iter().rposition(|call| call.number == Some(number))?;
            // Some servers give every call the same number, but a name of its own.
            let other = named.is_some() && self.all[last].named.is_some() && self.all[last].named.as_deref() != named;
            return (!other || name.is_none()).then_some(last);
        }
        if let Some(named) = named {
            return self.all.iter().rposition(|call| call.named.as_deref() == Some(named));
        }
        // Without any number, a piece that says which tool begins a call, and another goes on with the last one.
        if name.is_some() { None } else { self.all.len().checked_sub(1) }
    }

    fn begin(&mut self, call: Call) -> Result<usize, ModelError> {
        if self.all.len() >= MOST_CALLS {
            return Err(ModelError::Malformed(format!("its answer has more than {MOST_CALLS} tool calls")));
        }
        self.all.push(call);
        Ok(self.all.len() - 1)
    }

    /// The server's id where it names one call only.
    fn fresh_id(&self, named: Option<&str>) -> String {
        let taken = |id: &str| self.known.calls.contains(id) || self.all.iter().any(|call| call.id == id);
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

    /// The text for a freeform tool, out of the object it was wrapped in; as it is if it was not.
    pub(super) fn input(&self) -> String {
        let wrapped = serde_json::from_str::<Value>(&self.arguments).ok();
        let input = wrapped.as_ref().and_then(|object| object.get("input")?.as_str());
        input.unwrap_or(&self.arguments).to_owned()
    }

    /// The call before its arguments are known, as an event wants it.
    pub(super) fn begun(&self) -> Value {
        let (kind, field) = if self.custom { ("custom_tool_call", "input") } else { ("function_call", "arguments") };
        json!({ "type": kind, "call_id": self.id, "name": self.name, field: "", "status": "in_progress" })
    }
}
