//! A Chat Completions request, converted to a transcript, so that it is checked and answered like a Responses request.

use std::{borrow::Cow, collections::HashSet};

use serde_json::{Value, json};

use crate::{
    check::{self, text},
    play::Play,
    refusal::Refusal,
    transcript::{Ask, Entry, ItemPosition},
};

/// Checks a request to `/chat/completions`.
pub(crate) fn read<'a>(body: &'a Value, play: &Play) -> Result<Ask<'a>, Refusal> {
    check::chat(body, play)?;
    let mut ask = Ask { model: text(body, "model"), tools: check::offered(body)?, ..Ask::default() };
    let mut custom = HashSet::new();
    for (at, message) in list(body, "messages").enumerate() {
        read_message(message, at, &mut ask.entries, &mut custom);
    }
    check::pairs(&ask, play)?;
    Ok(ask)
}

/// Converts a message to items. `custom` collects the ids of calls of custom tools.
fn read_message<'a>(message: &'a Value, at: usize, entries: &mut Vec<Entry<'a>>, custom: &mut HashSet<&'a str>) {
    let mut push = |place, item| entries.push(Entry { place, item: Cow::Owned(item) });
    let content = content(message);
    if text(message, "role") == Some("tool") {
        let id = text(message, "tool_call_id").unwrap_or_default();
        let kind = if custom.contains(id) { "custom_tool_call_output" } else { "function_call_output" };
        return push(ItemPosition::Message(at), json!({"type": kind, "call_id": id, "output": content}));
    }
    if let Some(content) = content.or_else(|| text(message, "refusal").map(str::to_owned)) {
        let item = json!({"type": "message", "role": message["role"], "content": content});
        push(ItemPosition::Message(at), item);
    }
    for (number, call) in list(message, "tool_calls").enumerate() {
        let id = &call["id"];
        let item = if text(call, "type") == Some("custom") {
            custom.extend(id.as_str());
            let called = &call["custom"];
            json!({"type": "custom_tool_call", "call_id": id, "name": called["name"], "input": called["input"]})
        } else {
            let called = &call["function"];
            json!({"type": "function_call", "call_id": id, "name": called["name"], "arguments": called["arguments"]})
        };
        push(ItemPosition::ToolCall(at, number), item);
    }
}

/// Text of a message, from a string or from parts. A part that is not text contributes an empty text.
fn content(message: &Value) -> Option<String> {
    match message.get("content")? {
        Value::Array(parts) => {
            Some(parts.iter().filter_map(|part| text(part, "text").or_else(|| text(part, "refusal"))).collect())
        }
        content => content.as_str().map(str::to_owned),
    }
}

fn list<'a>(holder: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    holder.get(key).and_then(Value::as_array).into_iter().flatten()
}
