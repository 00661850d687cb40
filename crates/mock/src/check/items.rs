//! Checks of the required fields of items.

use serde_json::Value;

use self::Shape::{Flag, List, Object, OneOf, Text, TextOrList};
use crate::{item, play::Play, refusal::Refusal, transcript::Entry};

/// Type of a field.
#[derive(Clone, Copy)]
enum Shape {
    Text,
    List,
    Object,
    Flag,
    TextOrList,
    OneOf(&'static [&'static str]),
}

type Fields = &'static [(&'static str, Shape)];

const STATES: Shape = OneOf(&["in_progress", "completed", "incomplete", "failed"]);

/// Kinds of items, with their required fields.
const KINDS: &[(&str, Fields)] = &[
    ("message", &[("role", OneOf(&["user", "assistant", "system", "developer"])), ("content", TextOrList)]),
    ("function_call", &[("call_id", Text), ("name", Text), ("arguments", Text)]),
    ("function_call_output", &[("call_id", Text), ("output", TextOrList)]),
    ("custom_tool_call", &[("call_id", Text), ("name", Text), ("input", Text)]),
    ("custom_tool_call_output", &[("call_id", Text), ("output", TextOrList)]),
    ("reasoning", &[("id", Text), ("summary", List)]),
    ("compaction", &[("encrypted_content", Text)]),
    ("apply_patch_call", &[("call_id", Text), ("status", STATES), ("operation", Object)]),
    ("apply_patch_call_output", &[("call_id", Text), ("status", OneOf(&["completed", "failed"]))]),
    ("shell_call", &[("call_id", Text), ("action", Object)]),
    ("shell_call_output", &[("call_id", Text), ("output", List)]),
    ("local_shell_call", &[("id", Text), ("call_id", Text), ("action", Object), ("status", STATES)]),
    ("local_shell_call_output", &[("id", Text), ("output", Text)]),
    ("computer_call", &[("id", Text), ("call_id", Text)]),
    ("computer_call_output", &[("call_id", Text), ("output", Object)]),
    ("mcp_list_tools", &[("id", Text), ("server_label", Text), ("tools", List)]),
    ("mcp_call", &[("id", Text), ("server_label", Text), ("name", Text), ("arguments", Text)]),
    ("mcp_approval_request", &[("id", Text), ("server_label", Text), ("name", Text), ("arguments", Text)]),
    ("mcp_approval_response", &[("approval_request_id", Text), ("approve", Flag)]),
    ("item_reference", &[("id", Text)]),
    ("web_search_call", &[("id", Text)]),
    ("file_search_call", &[("id", Text)]),
    ("code_interpreter_call", &[("id", Text)]),
    ("image_generation_call", &[("id", Text)]),
    ("tool_search_call", &[]),
    ("tool_search_output", &[]),
    ("program", &[("call_id", Text)]),
    ("program_output", &[("call_id", Text)]),
    ("additional_tools", &[]),
    ("compaction_trigger", &[]),
];

/// Internal fields of clients that must not be sent.
const PRIVATE: &[&str] = &["created_by", "provider_data"];

/// Kind of an item. An item without a type is a message if it has a role.
pub(super) fn kind(item: &Value) -> Option<&str> {
    match item.get("type") {
        Some(kind) => kind.as_str(),
        None => item.get("role").map(|_| "message"),
    }
}

pub(super) fn check(entry: &Entry<'_>, play: &Play) -> Result<(), Refusal> {
    let item = entry.item.as_ref();
    let at = |key: &str| format!("{}.{key}", entry.place);
    if !item.is_object() {
        return Err(Refusal::invalid(entry.place.to_string(), "Invalid type: expected an object."));
    }
    let kind = kind(item).ok_or_else(|| Refusal::lacks(&at("type")))?;
    // Every kind that the script contains is allowed.
    let id = item.get("id").and_then(Value::as_str);
    let is_ours = id.is_some_and(|id| play.marks.ids.contains_key(id));
    let Some((_, fields)) = KINDS.iter().find(|(name, _)| *name == kind) else {
        return if is_ours { Ok(()) } else { Err(Refusal::invalid(at("type"), format!("Invalid value: '{kind}'."))) };
    };
    for (key, shape) in *fields {
        check_field(item.get(*key), *shape, || at(key))?;
    }
    if let Some(key) = PRIVATE.iter().find(|key| item.get(**key).is_some()) {
        return Err(Refusal::invalid(at(key), format!("Unknown parameter: '{}'.", at(key))).code("unknown_parameter"));
    }
    if let (Some(id), Some(prefix)) = (id, item::id_prefix(kind))
        && !is_ours
        && !id.starts_with(prefix)
    {
        let message = format!("Invalid '{}': '{id}'. Expected an ID that begins with '{prefix}'.", at("id"));
        return Err(Refusal::invalid(at("id"), message));
    }
    inside(kind, item, &at)
}

/// The position is computed only for an error: transcripts are long, and most are valid.
fn check_field(value: Option<&Value>, shape: Shape, place: impl Fn() -> String) -> Result<(), Refusal> {
    let Some(value) = value.filter(|value| !value.is_null()) else { return Err(Refusal::lacks(&place())) };
    let (fits, expected) = match shape {
        Text => (value.is_string(), "a string"),
        List => (value.is_array(), "an array"),
        Object => (value.is_object(), "an object"),
        Flag => (value.is_boolean(), "a boolean"),
        TextOrList => (value.is_string() || value.is_array(), "a string or an array"),
        OneOf(words) => (value.as_str().is_some_and(|word| words.contains(&word)), "one of the supported values"),
    };
    if fits {
        return Ok(());
    }
    let param = place();
    let message = format!("Invalid value for '{param}': expected {expected}.");
    Err(Refusal::invalid(param, message))
}

/// Checks the parts of an item.
fn inside(kind: &str, item: &Value, at: &dyn Fn(&str) -> String) -> Result<(), Refusal> {
    match kind {
        "message" => {
            let said_by_model = item.get("role").is_some_and(|role| role == "assistant");
            let legal: &[&str] =
                if said_by_model { &["output_text", "refusal"] } else { &["input_text", "input_image", "input_file"] };
            each(item, "content", at, |part, place| check_part(part, legal, place))
        }
        "function_call_output" | "custom_tool_call_output" => each(item, "output", at, |part, place| {
            check_part(part, &["input_text", "input_image", "input_file"], place)
        }),
        "reasoning" => each(item, "summary", at, |part, place| check_part(part, &["summary_text"], place)),
        "shell_call" => check_field(item["action"].get("commands"), List, || at("action.commands")),
        "shell_call_output" => each(item, "output", at, |part, place| {
            check_field(part.get("stdout"), Text, || format!("{}.stdout", place()))?;
            check_field(part.get("stderr"), Text, || format!("{}.stderr", place()))?;
            match part.pointer("/outcome/type").and_then(Value::as_str) {
                Some("timeout") => Ok(()),
                Some("exit") if part.pointer("/outcome/exit_code").is_some_and(Value::is_i64) => Ok(()),
                Some("exit") => Err(Refusal::lacks(&format!("{}.outcome.exit_code", place()))),
                _ => Err(Refusal::lacks(&format!("{}.outcome.type", place()))),
            }
        }),
        "apply_patch_call" => {
            let operation = &item["operation"];
            let kinds = OneOf(&["create_file", "update_file", "delete_file"]);
            check_field(operation.get("type"), kinds, || at("operation.type"))?;
            check_field(operation.get("path"), Text, || at("operation.path"))?;
            let has_diff = operation["type"] == "delete_file" || operation.get("diff").is_some_and(Value::is_string);
            if has_diff { Ok(()) } else { Err(Refusal::lacks(&at("operation.diff"))) }
        }
        _ => Ok(()),
    }
}

fn each(
    item: &Value,
    key: &str,
    at: &dyn Fn(&str) -> String,
    check: impl Fn(&Value, &dyn Fn() -> String) -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    let parts = item.get(key).and_then(Value::as_array).into_iter().flatten();
    for (number, part) in parts.enumerate() {
        check(part, &|| format!("{}[{number}]", at(key)))?;
    }
    Ok(())
}

fn check_part(part: &Value, legal: &[&str], place: &dyn Fn() -> String) -> Result<(), Refusal> {
    let Some(kind) = part.get("type").and_then(Value::as_str) else {
        return Err(Refusal::lacks(&format!("{}.type", place())));
    };
    if !legal.contains(&kind) {
        let message = format!("Invalid value: '{kind}'. Supported values are: '{}'.", legal.join("', '"));
        return Err(Refusal::invalid(format!("{}.type", place()), message));
    }
    let has = |keys: &[&str]| keys.iter().any(|key| part.get(*key).is_some_and(Value::is_string));
    let needed = match kind {
        "refusal" => &["refusal"][..],
        "input_image" => &["image_url", "file_id"],
        "input_file" => &["file_id", "file_data", "file_url"],
        _ => &["text"],
    };
    if has(needed) { Ok(()) } else { Err(Refusal::lacks(&format!("{}.{}", place(), needed[0]))) }
}
