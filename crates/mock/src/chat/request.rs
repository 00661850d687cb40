//! A Chat Completions request, converted to a transcript, so that it is checked and answered like a Responses request.

use std::{borrow::Cow, collections::HashSet};

use serde_json::{Value, json};

use crate::{
    check::{
        self, Shape, fields, text,
        tools::{self, Offered},
    },
    play::Play,
    refusal::Refusal,
    transcript::{Ask, Entry, ItemPosition},
};

/// Fields that a chat request can have.
const FIELDS: &[(&str, Shape)] = &[
    ("model", Shape::Text),
    ("messages", Shape::List),
    ("tools", Shape::List),
    ("tool_choice", Shape::Any),
    ("parallel_tool_calls", Shape::Flag),
    ("stream", Shape::Flag),
    ("stream_options", Shape::Object),
    ("response_format", Shape::Object),
    ("temperature", Shape::Number),
    ("top_p", Shape::Number),
    ("n", Shape::Count),
    ("stop", Shape::Any),
    ("seed", Shape::Number),
    ("max_tokens", Shape::Count),
    ("max_completion_tokens", Shape::Count),
    ("frequency_penalty", Shape::Number),
    ("presence_penalty", Shape::Number),
    ("logit_bias", Shape::Object),
    ("logprobs", Shape::Flag),
    ("top_logprobs", Shape::Count),
    ("reasoning_effort", Shape::Text),
    ("verbosity", Shape::Text),
    ("modalities", Shape::List),
    ("metadata", Shape::Object),
    ("store", Shape::Flag),
    ("service_tier", Shape::Text),
    ("prompt_cache_key", Shape::Text),
    ("prompt_cache_retention", Shape::Text),
    ("safety_identifier", Shape::Text),
    ("user", Shape::Text),
];

/// Checks a request to `/chat/completions`.
pub(crate) fn read<'a>(body: &'a Value, play: &Play) -> Result<Ask<'a>, Refusal> {
    fields(body, FIELDS)?;
    let mut ask = Ask { model: text(body, "model"), ..Ask::default() };
    if ask.model.is_none() {
        return Err(Refusal::lacks("model"));
    }
    let mut custom = HashSet::new();
    let messages = body.get("messages").and_then(Value::as_array).filter(|messages| !messages.is_empty());
    for (at, message) in messages.ok_or_else(|| Refusal::lacks("messages"))?.iter().enumerate() {
        read_message(message, at, &mut ask.entries, &mut custom)?;
    }
    let mut offered = Offered::default();
    for (at, tool) in body.get("tools").and_then(Value::as_array).into_iter().flatten().enumerate() {
        let place = format!("tools[{at}]");
        let kind = text(tool, "type").ok_or_else(|| Refusal::lacks(&format!("{place}.type")))?;
        let inner = || tool.get(kind).ok_or_else(|| Refusal::lacks(&format!("{place}.{kind}")));
        match kind {
            "function" => offered.function(inner()?, &format!("{place}.function"))?,
            "custom" => offered.custom(inner()?, &format!("{place}.custom"))?,
            _ => {
                return Err(Refusal::invalid(
                    format!("{place}.type"),
                    "Supported values are: 'function' and 'custom'.",
                ));
            }
        }
    }
    offered.check_choice(body.get("tool_choice"))?;
    ask.tools = offered.names;
    if let Some(format) = body.get("response_format").filter(|format| !format.is_null()) {
        read_format(format)?;
    }
    check::pairs(&ask, play)?;
    Ok(ask)
}

fn read_format(format: &Value) -> Result<(), Refusal> {
    match (text(format, "type"), format.get("json_schema")) {
        (Some("text" | "json_object"), _) => Ok(()),
        (Some("json_schema"), Some(schema)) => tools::answer_format(schema, "response_format.json_schema"),
        (Some("json_schema"), None) => Err(Refusal::lacks("response_format.json_schema")),
        _ => Err(Refusal::invalid(
            "response_format.type",
            "Supported values are: 'text', 'json_object' and 'json_schema'.",
        )),
    }
}

/// Converts a message to items. `custom` collects the ids of calls of custom tools.
fn read_message<'a>(
    message: &'a Value,
    at: usize,
    entries: &mut Vec<Entry<'a>>,
    custom: &mut HashSet<String>,
) -> Result<(), Refusal> {
    let place = ItemPosition::Message(at);
    let role = text(message, "role").ok_or_else(|| Refusal::lacks(&format!("{place}.role")))?;
    let content = content(message, place)?;
    let calls = message.get("tool_calls").and_then(Value::as_array).filter(|calls| !calls.is_empty());
    let mut push = |place, item| entries.push(Entry { place, item: Cow::Owned(item) });
    match role {
        "system" | "developer" | "user" | "assistant" => {
            let refusal = text(message, "refusal").map(str::to_owned);
            match content.or(refusal) {
                Some(content) => push(place, json!({"type": "message", "role": role, "content": content})),
                None if role == "assistant" && calls.is_some() => {}
                None => return Err(Refusal::lacks(&format!("{place}.content"))),
            }
        }
        "tool" => {
            let id = text(message, "tool_call_id").ok_or_else(|| Refusal::lacks(&format!("{place}.tool_call_id")))?;
            let content = content.ok_or_else(|| Refusal::lacks(&format!("{place}.content")))?;
            let kind = if custom.contains(id) { "custom_tool_call_output" } else { "function_call_output" };
            let item = json!({"type": kind, "call_id": id, "output": content});
            push(place, item);
            return Ok(());
        }
        other => {
            return Err(Refusal::invalid(format!("{place}.role"), format!("Invalid value: '{other}'.")));
        }
    }
    for (number, call) in calls.into_iter().flatten().enumerate() {
        let place = ItemPosition::ToolCall(at, number);
        let item = read_call(call, place)?;
        if text(call, "type") == Some("custom") {
            custom.extend(text(&item, "call_id").map(str::to_owned));
        }
        push(place, item);
    }
    Ok(())
}

fn read_call(call: &Value, place: ItemPosition) -> Result<Value, Refusal> {
    let needed = |holder: &Value, key: &str, name: &str| {
        text(holder, key).map(str::to_owned).ok_or_else(|| Refusal::lacks(&format!("{place}.{name}{key}")))
    };
    let id = needed(call, "id", "")?;
    let empty = json!({});
    if text(call, "type") == Some("custom") {
        let custom = call.get("custom").unwrap_or(&empty);
        let (name, input) = (needed(custom, "name", "custom.")?, needed(custom, "input", "custom.")?);
        return Ok(json!({"type": "custom_tool_call", "call_id": id, "name": name, "input": input}));
    }
    let function = call.get("function").unwrap_or(&empty);
    let (name, arguments) = (needed(function, "name", "function.")?, needed(function, "arguments", "function.")?);
    Ok(json!({"type": "function_call", "call_id": id, "name": name, "arguments": arguments}))
}

/// Text of a message, from a string or from parts. A part that is not text contributes an empty text.
fn content(message: &Value, place: ItemPosition) -> Result<Option<String>, Refusal> {
    match message.get("content") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(Value::Array(parts)) => {
            for (at, part) in parts.iter().enumerate() {
                let kind = text(part, "type").ok_or_else(|| Refusal::lacks(&format!("{place}.content[{at}].type")))?;
                if part.get(kind).is_none() {
                    return Err(Refusal::lacks(&format!("{place}.content[{at}].{kind}")));
                }
            }
            Ok(Some(parts.iter().filter_map(|part| text(part, "text").or_else(|| text(part, "refusal"))).collect()))
        }
        Some(_) => Err(Refusal::invalid(format!("{place}.content"), "Invalid type: expected a string or an array.")),
    }
}
