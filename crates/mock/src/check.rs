//! Checks of requests. A refusal names the position of the fault.

use std::borrow::Cow;

use serde_json::{Value, json};

use crate::{
    chain::Chain,
    play::Play,
    refusal::Refusal,
    transcript::{Ask, Entry, ItemPosition},
};

mod items;
mod pairs;
mod schema;
pub(crate) mod tools;

/// Fields of a Responses request, with their types.
const FIELDS: &[(&str, Shape)] = &[
    ("model", Shape::Text),
    ("input", Shape::Any),
    ("instructions", Shape::Text),
    ("tools", Shape::Any),
    ("tool_choice", Shape::Any),
    ("parallel_tool_calls", Shape::Flag),
    ("stream", Shape::Flag),
    ("store", Shape::Flag),
    ("previous_response_id", Shape::Text),
    ("conversation", Shape::Any),
    ("include", Shape::List),
    ("reasoning", Shape::Object),
    ("text", Shape::Object),
    ("temperature", Shape::Number),
    ("top_p", Shape::Number),
    ("max_output_tokens", Shape::Count),
    ("max_tool_calls", Shape::Count),
    ("truncation", Shape::OneOf(&["auto", "disabled"])),
    ("metadata", Shape::Object),
    ("prompt", Shape::Object),
    ("prompt_cache_key", Shape::Text),
    ("prompt_cache_options", Shape::Object),
    ("prompt_cache_retention", Shape::Text),
    ("context_management", Shape::List),
    ("service_tier", Shape::Text),
    ("safety_identifier", Shape::Text),
    ("stream_options", Shape::Object),
    ("background", Shape::Flag),
    ("top_logprobs", Shape::Count),
    ("moderation", Shape::Any),
    ("user", Shape::Text),
];

/// Type of a field of a request.
#[derive(Clone, Copy)]
pub(crate) enum Shape {
    Any,
    Text,
    Flag,
    List,
    Object,
    Number,
    Count,
    OneOf(&'static [&'static str]),
}

impl Shape {
    fn fits(self, value: &Value) -> bool {
        match self {
            Self::Any => true,
            Self::Text => value.is_string(),
            Self::Flag => value.is_boolean(),
            Self::List => value.is_array(),
            Self::Object => value.is_object(),
            Self::Number => value.is_number(),
            Self::Count => value.is_u64(),
            Self::OneOf(words) => value.as_str().is_some_and(|word| words.contains(&word)),
        }
    }
}

/// Checks that the fields of a request are known and of the right type. Null counts as absent.
pub(crate) fn fields(body: &Value, known: &[(&str, Shape)]) -> Result<(), Refusal> {
    let Some(body) = body.as_object() else {
        return Err(Refusal::bare(400, "We could not parse the JSON body of your request: expected an object."));
    };
    for (key, value) in body {
        let Some((_, shape)) = known.iter().find(|(name, _)| name == key) else {
            return Err(
                Refusal::invalid(key.as_str(), format!("Unknown parameter: '{key}'.")).code("unknown_parameter")
            );
        };
        if !value.is_null() && !shape.fits(value) {
            return Err(Refusal::invalid(key.as_str(), format!("Invalid value for '{key}'.")).code("invalid_type"));
        }
    }
    Ok(())
}

/// Lookup of the items of a stored conversation, by its id.
pub(crate) type Stored<'s> = &'s dyn Fn(&str) -> Option<Vec<Value>>;

/// Checks a request to `/responses`, except the pairs of calls and outputs.
pub(crate) fn responses<'a>(body: &'a Value, play: &Play, stored: Stored<'_>) -> Result<Ask<'a>, Refusal> {
    fields(body, FIELDS)?;
    if text(body, "model").is_none() && body.get("prompt").is_none_or(Value::is_null) {
        return Err(Refusal::lacks("model"));
    }
    if body.pointer("/prompt").is_some_and(|prompt| prompt.is_object() && text(prompt, "id").is_none()) {
        return Err(Refusal::lacks("prompt.id"));
    }
    let mut ask = transcript(body, play, stored)?;
    let offered = tools::offered(body.get("tools"))?;
    offered.check_choice(body.get("tool_choice"))?;
    details(body)?;
    ask.tools = offered.names;
    Ok(ask)
}

/// Model, instructions and items of the request.
pub(crate) fn transcript<'a>(body: &'a Value, play: &Play, stored: Stored<'_>) -> Result<Ask<'a>, Refusal> {
    let mut ask = Ask { model: text(body, "model"), instructions: text(body, "instructions"), ..Ask::default() };
    let previous = text(body, "previous_response_id");
    let conversation = conversation_id(body)?;
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
            let items = items.iter().enumerate();
            ask.entries
                .extend(items.map(|(at, item)| Entry { place: ItemPosition::Input(at), item: Cow::Borrowed(item) }));
        }
        None | Some(Value::Null) if known => {}
        None | Some(Value::Null) => return Err(Refusal::lacks("input")),
        Some(_) => return Err(Refusal::invalid("input", "Invalid type for 'input': expected a string or an array.")),
    }
    for entry in ask.entries.iter().filter(|entry| !matches!(entry.place, ItemPosition::Stored(_))) {
        items::check(entry, play)?;
    }
    Ok(ask)
}

/// Checks that every output has its call, and every call its output.
pub(crate) fn pairs(ask: &Ask<'_>, play: &Play) -> Result<(), Refusal> {
    pairs::check(ask, play)
}

/// Checks items that are to be stored.
pub(crate) fn stored_items(items: &[Value], play: &Play) -> Result<(), Refusal> {
    items.iter().enumerate().try_for_each(|(at, item)| {
        items::check(&Entry { place: ItemPosition::Item(at), item: Cow::Borrowed(item) }, play)
    })
}

/// Id of the conversation, which is a string or an object.
pub(crate) fn conversation_id(body: &Value) -> Result<Option<&str>, Refusal> {
    match body.get("conversation") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(id)) => Ok(Some(id)),
        Some(object) => text(object, "id").map(Some).ok_or_else(|| Refusal::lacks("conversation.id")),
    }
}

/// Checks the ranges of numbers, the values of enumerations, and the format of the output.
fn details(body: &Value) -> Result<(), Refusal> {
    for (key, most) in [("temperature", 2.0), ("top_p", 1.0)] {
        if body.get(key).and_then(Value::as_f64).is_some_and(|number| !(0.0..=most).contains(&number)) {
            return Err(Refusal::invalid(key, format!("Invalid '{key}': expected a value between 0 and {most}.")));
        }
    }
    if body.get("max_output_tokens").and_then(Value::as_u64).is_some_and(|count| count < 16) {
        return Err(Refusal::invalid(
            "max_output_tokens",
            "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16.",
        ));
    }
    if let Some(effort) = body.pointer("/reasoning/effort").filter(|effort| !effort.is_null()) {
        let known = ["none", "minimal", "low", "medium", "high", "xhigh", "max"];
        if !effort.as_str().is_some_and(|effort| known.contains(&effort)) {
            return Err(Refusal::invalid("reasoning.effort", format!("Invalid value: {effort}.")));
        }
    }
    let metadata = body.get("metadata").and_then(Value::as_object);
    if let Some((key, _)) = metadata.into_iter().flatten().find(|(_, value)| !value.is_string()) {
        return Err(Refusal::invalid(format!("metadata.{key}"), "Invalid type: expected a string."));
    }
    if let Some(Value::Array(include)) = body.get("include")
        && let Some(at) = include.iter().position(|word| !word.is_string())
    {
        return Err(Refusal::invalid(format!("include[{at}]"), "Invalid type: expected a string."));
    }
    let Some(format) = body.pointer("/text/format").filter(|format| !format.is_null()) else { return Ok(()) };
    match text(format, "type") {
        Some("text" | "json_object") => Ok(()),
        Some("json_schema") => tools::answer_format(format, "text.format"),
        _ => {
            Err(Refusal::invalid("text.format.type", "Supported values are: 'text', 'json_object' and 'json_schema'."))
        }
    }
}

pub(crate) fn text<'a>(holder: &'a Value, key: &str) -> Option<&'a str> {
    holder.get(key)?.as_str()
}
