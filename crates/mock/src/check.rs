//! Checks of requests. A refusal names the position of the fault.

use std::borrow::Cow;

use serde_json::{Value, json};

use crate::{
    chain::Chain,
    item,
    play::Play,
    refusal::Refusal,
    transcript::{Ask, Entry, ItemPosition},
};

mod pairs;
mod schema;
mod tools;
mod wire;

pub(crate) use self::{pairs::check as pairs, tools::offered};

/// Lookup of the items of a stored conversation, by its id.
pub(crate) type Stored<'s> = &'s dyn Fn(&str) -> Option<Vec<Value>>;

/// Checks a request to `/responses`, except the pairs of calls and outputs.
pub(crate) fn responses<'a>(body: &'a Value, play: &Play, stored: Stored<'_>) -> Result<Ask<'a>, Refusal> {
    wire::check("responses", body, play)?;
    let mut ask = transcript(body, play, stored)?;
    ask.tools = offered(body)?;
    Ok(ask)
}

/// Checks a request to `/responses/compact`, except the pairs of calls and outputs.
pub(crate) fn compact<'a>(body: &'a Value, play: &Play) -> Result<Ask<'a>, Refusal> {
    wire::check("compact", body, play)?;
    transcript(body, play, &|_| None)
}

/// Checks the format of a request to `/chat/completions`.
pub(crate) fn chat(body: &Value, play: &Play) -> Result<(), Refusal> {
    wire::check("chat", body, play)
}

/// Checks a new conversation, or items that are added to one. Returns the items.
pub(crate) fn stored_items(format: &str, body: &Value, play: &Play) -> Result<Vec<Value>, Refusal> {
    wire::check(format, body, play)?;
    let items = body.get("items").and_then(Value::as_array).cloned().unwrap_or_default();
    for (at, item) in items.iter().enumerate() {
        check_id(item, ItemPosition::Item(at), play)?;
    }
    Ok(items)
}

/// Model, instructions and items of the request.
fn transcript<'a>(body: &'a Value, play: &Play, stored: Stored<'_>) -> Result<Ask<'a>, Refusal> {
    let mut ask = Ask { model: text(body, "model"), instructions: text(body, "instructions"), ..Ask::default() };
    let previous = text(body, "previous_response_id");
    let conversation = conversation_id(body);
    if previous.is_some() && conversation.is_some() {
        let message = "Mutually exclusive parameters: 'previous_response_id' and 'conversation'.";
        return Err(Refusal::invalid("previous_response_id", message).code("mutually_exclusive_parameters"));
    }
    if let Some(id) = previous {
        let chain = id.strip_prefix("resp_").and_then(|text| Chain::read(text, play));
        ask.previous = chain.ok_or_else(|| {
            Refusal::invalid("previous_response_id", format!("Previous response with id '{id}' not found."))
                .code("previous_response_not_found")
        })?;
    }
    if let Some(id) = conversation {
        let items = stored(id).ok_or_else(|| Refusal::missing(format!("Conversation with id '{id}' not found.")))?;
        let stored = items.into_iter().enumerate();
        ask.entries.extend(stored.map(|(at, item)| Entry { place: ItemPosition::Stored(at), item: Cow::Owned(item) }));
    }
    let known = !ask.entries.is_empty() || previous.is_some() || body.get("prompt").is_some_and(Value::is_object);
    match body.get("input") {
        Some(Value::String(text)) => {
            let item = Cow::Owned(json!({"type": "message", "role": "user", "content": text}));
            ask.entries.push(Entry { place: ItemPosition::InputText, item });
        }
        Some(Value::Array(items)) => {
            for (at, item) in items.iter().enumerate() {
                let place = ItemPosition::Input(at);
                check_id(item, place, play)?;
                ask.entries.push(Entry { place, item: Cow::Borrowed(item) });
            }
        }
        _ if known => {}
        _ => return Err(Refusal::lacks("input")),
    }
    Ok(ask)
}

/// Checks that the id of an item has the prefix of its kind. Every id that the script contains is allowed.
fn check_id(item: &Value, place: ItemPosition, play: &Play) -> Result<(), Refusal> {
    let prefix = item::kind(item).and_then(item::id_prefix);
    match (text(item, "id"), prefix) {
        (Some(id), Some(prefix)) if !id.starts_with(prefix) && !play.has_item(item) => {
            let message = format!("Invalid '{place}.id': '{id}'. Expected an ID that begins with '{prefix}'.");
            Err(Refusal::invalid(format!("{place}.id"), message))
        }
        _ => Ok(()),
    }
}

/// Id of the conversation, which is a string or an object.
pub(crate) fn conversation_id(body: &Value) -> Option<&str> {
    let conversation = body.get("conversation")?;
    conversation.as_str().or_else(|| text(conversation, "id"))
}

pub(crate) fn text<'a>(holder: &'a Value, key: &str) -> Option<&'a str> {
    holder.get(key)?.as_str()
}
