//! Checks that every call has one output and every output one call, in the right order.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde_json::Value;

use crate::{
    item,
    play::{Play, Position},
    refusal::Refusal,
    transcript::{Ask, ItemPosition},
};

/// Calls that a client answers: kind of the call, kind of the output, and the names of both in messages.
const CALLS: &[(&str, &str, &str)] = &[
    ("function_call", "function_call_output", "function call"),
    ("custom_tool_call", "custom_tool_call_output", "custom tool call"),
    ("shell_call", "shell_call_output", "shell call"),
    ("local_shell_call", "local_shell_call_output", "local shell call"),
    ("apply_patch_call", "apply_patch_call_output", "apply patch call"),
    ("computer_call", "computer_call_output", "computer call"),
    ("mcp_approval_request", "mcp_approval_response", "approval request"),
];

/// A call without an output.
struct Open {
    words: &'static str,
    place: Option<ItemPosition>,
    /// Position in the script, if the call comes from the script.
    at: Option<Position>,
}

/// Calls of a transcript, by the kind of their outputs and their id.
#[derive(Default)]
struct Ledger<'a> {
    /// Sorted, so that the first error is deterministic.
    open: BTreeMap<(&'static str, &'a str), Open>,
    answered: HashSet<(&'static str, &'a str)>,
    /// Current turn of each conversation in the transcript.
    turns: HashMap<usize, usize>,
}

pub(crate) fn check(ask: &Ask<'_>, play: &Play) -> Result<(), Refusal> {
    let mut ledger = Ledger::default();
    // Calls of earlier answers of the chain have outputs; otherwise the later requests would have been refused.
    if let Some((conversation, turn)) = ask.previous.last() {
        for (number, item) in play.turn(conversation, turn).into_iter().flat_map(|turn| &turn.output).enumerate() {
            ledger.call(item, None, Some(Position { conversation, turn, item: number }));
        }
    }
    for entry in &ask.entries {
        let item = entry.item.as_ref();
        let kind = item::kind(item).unwrap_or_default();
        if kind == "item_reference" {
            reference(&mut ledger, item, entry.place, play)?;
            continue;
        }
        if let Some((_, output, words)) = CALLS.iter().find(|(_, output, _)| *output == kind) {
            ledger.output((output, call_of_output(item).unwrap_or_default()), words, entry.place)?;
            continue;
        }
        let at = position(item, play);
        if let Some(at) = at {
            ledger.turn(at, entry.place)?;
        }
        ledger.call(item, Some(entry.place), at);
    }
    ledger.end()
}

fn reference<'a>(ledger: &mut Ledger<'a>, item: &Value, place: ItemPosition, play: &'a Play) -> Result<(), Refusal> {
    let id = item.get("id").and_then(Value::as_str).unwrap_or_default();
    let Some(at) = play.marks.ids.get(id).and_then(|positions| positions.first()).copied() else {
        return Err(Refusal {
            param: Some("input".to_owned()),
            ..Refusal::missing(format!("Item with id '{id}' not found."))
        });
    };
    ledger.turn(at, place)?;
    if let Some(item) = play.turn(at.conversation, at.turn).and_then(|turn| turn.output.get(at.item)) {
        ledger.call(item, Some(place), Some(at));
    }
    Ok(())
}

fn position(item: &Value, play: &Play) -> Option<Position> {
    let field = |key: &str| item.get(key).and_then(Value::as_str);
    let ids = field("id").and_then(|id| play.marks.ids.get(id));
    ids.or_else(|| field("call_id").and_then(|id| play.marks.calls.get(id)))?.first().copied()
}

/// The call that an output belongs to.
fn call_of_output(output: &Value) -> Option<&str> {
    ["call_id", "approval_request_id", "id"].iter().find_map(|key| output.get(*key)?.as_str())
}

impl<'a> Ledger<'a> {
    fn call(&mut self, item: &'a Value, place: Option<ItemPosition>, at: Option<Position>) {
        let kind = item::kind(item).unwrap_or_default();
        let Some((_, output, words)) = CALLS.iter().find(|(call, _, _)| *call == kind) else { return };
        // The server itself adds the output of a call that runs in its container.
        let environment = item.pointer("/environment/type").and_then(Value::as_str);
        if environment.is_some_and(|kind| kind.starts_with("container")) {
            return;
        }
        let key = if kind == "mcp_approval_request" { "id" } else { "call_id" };
        let Some(id) = item.get(key).and_then(Value::as_str) else { return };
        self.open.insert((output, id), Open { words, place, at });
    }

    fn output(&mut self, key: (&'static str, &'a str), words: &str, place: ItemPosition) -> Result<(), Refusal> {
        if self.open.remove(&key).is_some() {
            self.answered.insert(key);
            return Ok(());
        }
        let id = key.1;
        let message = if self.answered.contains(&key) {
            format!("Duplicate output for {words} with call_id {id}.")
        } else {
            format!("No tool call found for {words} output with call_id {id}.")
        };
        Err(Refusal::invalid(place.to_string(), message))
    }

    /// Starts a turn: all calls of earlier turns of the conversation must have outputs.
    fn turn(&mut self, at: Position, place: ItemPosition) -> Result<(), Refusal> {
        let current = self.turns.entry(at.conversation).or_insert(at.turn);
        if at.turn <= *current {
            return Ok(());
        }
        *current = at.turn;
        let late =
            self.open.iter().filter(must_be_answered).find(|(_, open)| {
                open.at.is_some_and(|made| made.conversation == at.conversation && made.turn < at.turn)
            });
        match late {
            Some(((_, id), open)) => Err(Refusal::invalid(
                place.to_string(),
                format!("No tool output found for {} {id} before the next turn.", open.words),
            )),
            None => Ok(()),
        }
    }

    fn end(&self) -> Result<(), Refusal> {
        match self.open.iter().find(must_be_answered) {
            Some(((_, id), open)) => {
                let place = open.place.map_or_else(|| "input".to_owned(), |place| place.to_string());
                Err(Refusal::invalid(place, format!("No tool output found for {} {id}.", open.words)))
            }
            None => Ok(()),
        }
    }
}

/// Whether the call needs no approval.
fn must_be_answered(call: &(&(&'static str, &str), &Open)) -> bool {
    call.0.0 != "mcp_approval_response"
}
