//! Constructors for the output items of a model, as JSON.
//!
//! The server adds ids, call ids and states. Other items can be written as plain JSON.

use serde_json::{Map, Value, json};

use self::Fill::{CallId, List, Status, Text};

/// A message with plain text.
pub fn text(text: impl Into<String>) -> Value {
    json!({"type": "message", "content": text.into()})
}

/// A message with a refusal.
pub fn refusal(reason: impl Into<String>) -> Value {
    json!({"type": "message", "content": [{"type": "refusal", "refusal": reason.into()}]})
}

/// Reasoning, of which the client sees a summary.
pub fn reasoning(summary: impl Into<String>) -> Value {
    json!({"type": "reasoning", "summary": [{"type": "summary_text", "text": summary.into()}]})
}

/// A call of a function tool. Arguments that are a string are sent unchanged, so they need not be valid JSON.
pub fn function_call(name: impl Into<String>, arguments: impl Into<Value>) -> Value {
    json!({"type": "function_call", "name": name.into(), "arguments": arguments.into()})
}

/// A call of a custom tool, whose input is free text.
pub fn custom_tool_call(name: impl Into<String>, input: impl Into<String>) -> Value {
    json!({"type": "custom_tool_call", "name": name.into(), "input": input.into()})
}

/// A call of the shell tool.
pub fn shell_call<C: Into<String>>(commands: impl IntoIterator<Item = C>) -> Value {
    let commands: Vec<String> = commands.into_iter().map(Into::into).collect();
    json!({"type": "shell_call", "action": {"commands": commands}})
}

/// A call of the patch tool, with an operation such as `{"type": "create_file", "path": …, "diff": …}`.
pub fn apply_patch_call(operation: impl Into<Value>) -> Value {
    json!({"type": "apply_patch_call", "operation": operation.into()})
}

/// A compaction item, whose content is opaque to the client.
pub fn compaction(encrypted_content: impl Into<String>) -> Value {
    json!({"type": "compaction", "encrypted_content": encrypted_content.into()})
}

/// Rules for the completion of items of one kind.
struct Kind {
    name: &'static str,
    /// Prefix of the id.
    prefix: &'static str,
    fills: &'static [Fill],
}

enum Fill {
    CallId,
    Status,
    Text(&'static str, &'static str),
    List(&'static str),
}

const KINDS: &[Kind] = &[
    Kind { name: "message", prefix: "msg", fills: &[Status, Text("role", "assistant"), List("content")] },
    Kind { name: "function_call", prefix: "fc", fills: &[Status, CallId, Text("arguments", "{}")] },
    Kind { name: "custom_tool_call", prefix: "ctc", fills: &[CallId, Text("input", "")] },
    Kind { name: "reasoning", prefix: "rs", fills: &[List("summary")] },
    Kind { name: "compaction", prefix: "cmp", fills: &[Text("encrypted_content", "")] },
    Kind { name: "shell_call", prefix: "sh", fills: &[CallId, Status] },
    Kind { name: "local_shell_call", prefix: "lsh", fills: &[CallId, Status] },
    Kind { name: "apply_patch_call", prefix: "apc", fills: &[CallId, Status] },
    Kind { name: "computer_call", prefix: "cu", fills: &[CallId, Status, List("pending_safety_checks")] },
    Kind { name: "mcp_list_tools", prefix: "mcpl", fills: &[List("tools")] },
    Kind { name: "mcp_call", prefix: "mcp", fills: &[Text("arguments", "{}")] },
    Kind { name: "mcp_approval_request", prefix: "mcpr", fills: &[Text("arguments", "{}")] },
    Kind { name: "web_search_call", prefix: "ws", fills: &[Status] },
    Kind { name: "file_search_call", prefix: "fs", fills: &[Status, List("queries")] },
    Kind { name: "code_interpreter_call", prefix: "ci", fills: &[Status] },
    Kind { name: "image_generation_call", prefix: "ig", fills: &[Status] },
    Kind { name: "tool_search_call", prefix: "tsc", fills: &[CallId, Status] },
    Kind { name: "program", prefix: "prog", fills: &[CallId] },
];

/// Prefix of the ids of items of this kind, if the API defines one.
pub(crate) fn id_prefix(kind: &str) -> Option<&'static str> {
    KINDS.iter().take(4).find(|known| known.name == kind).map(|known| known.prefix)
}

/// Kind of an item of a request. An item without a type is a message if it has a role.
pub(crate) fn kind(item: &Value) -> Option<&str> {
    match item.get("type") {
        Some(kind) => kind.as_str(),
        None => item.get("role").map(|_| "message"),
    }
}

/// Completes an item of a script. The ids contain `place`: `0_1` leads to `fc_0_1` and `call_0_1`.
pub(crate) fn complete(item: Value, place: &str) -> Result<Value, String> {
    let Value::Object(mut item) = item else { return Err("an item is an object".to_owned()) };
    let name = match item.get("type") {
        Some(Value::String(name)) => name.clone(),
        Some(_) => return Err("the type of an item is a string".to_owned()),
        None if item.contains_key("content") => "message".to_owned(),
        None => return Err("the item has no type".to_owned()),
    };
    let kind = KINDS.iter().find(|kind| kind.name == name);
    let mut whole = Map::new();
    let id = format!("{}_{place}", kind.map_or("item", |kind| kind.prefix));
    whole.insert("id".to_owned(), item.shift_remove("id").unwrap_or(Value::String(id)));
    whole.insert("type".to_owned(), Value::String(name.clone()));
    for fill in kind.map_or(&[][..], |kind| kind.fills) {
        let (key, value) = match fill {
            CallId => ("call_id", json!(format!("call_{place}"))),
            Status => ("status", json!("completed")),
            Text(key, text) => (*key, json!(text)),
            List(key) => (*key, json!([])),
        };
        let given = item.shift_remove(key).unwrap_or(value);
        whole.insert(key.to_owned(), given);
    }
    item.shift_remove("type");
    whole.extend(item);
    if let Some(arguments) = whole.get_mut("arguments").filter(|arguments| !arguments.is_string()) {
        *arguments = Value::String(arguments.to_string());
    }
    if name == "message" {
        complete_content(&mut whole)?;
    }
    let thoughts = ["summary", "content"].iter().filter_map(|key| whole.get(*key)?.as_array());
    if name == "reasoning" && thoughts.flatten().any(|part| !part.is_object()) {
        return Err("a part is an object".to_owned());
    }
    check(&name, &whole)?;
    Ok(Value::Object(whole))
}

fn complete_content(message: &mut Map<String, Value>) -> Result<(), String> {
    let Some(content) = message.get_mut("content") else { return Ok(()) };
    if let Value::String(text) = content {
        *content = json!([{"type": "output_text", "text": text}]);
    }
    let parts = content.as_array_mut().ok_or("the content of a message is a string or a list of parts")?;
    for part in parts {
        let part = part.as_object_mut().ok_or("a part is an object")?;
        match part.get("type").and_then(Value::as_str) {
            Some("output_text") if part.get("text").is_some_and(Value::is_string) => {
                part.entry("annotations").or_insert_with(|| json!([]));
                part.entry("logprobs").or_insert_with(|| json!([]));
            }
            Some("refusal") if part.get("refusal").is_some_and(Value::is_string) => {}
            _ => return Err("a part is an output_text with a text, or a refusal with a refusal".to_owned()),
        }
    }
    Ok(())
}

/// Checks the fields that the server cannot add.
fn check(kind: &str, item: &Map<String, Value>) -> Result<(), String> {
    let needed: &[&str] = match kind {
        "function_call" | "custom_tool_call" => &["id", "call_id", "name"],
        "shell_call" | "apply_patch_call" | "local_shell_call" => &["id", "call_id"],
        _ => &["id"],
    };
    let is_empty = |key: &str| item.get(key).and_then(Value::as_str).unwrap_or_default().is_empty();
    match needed.iter().find(|key| is_empty(key)) {
        Some(key) => Err(format!("a {kind} needs the string {key:?}")),
        None => Ok(()),
    }
}

/// Text of a message of any role, from a string or from parts.
pub(crate) fn message_text(item: &Value) -> Option<String> {
    if item.get("type").is_some_and(|kind| kind != "message") {
        return None;
    }
    match item.get("content")? {
        Value::String(text) => Some(text.clone()),
        Value::Array(parts) => Some(parts.iter().filter_map(part_text).collect()),
        _ => None,
    }
}

fn part_text(part: &Value) -> Option<&str> {
    part.get("text").or_else(|| part.get("refusal"))?.as_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_filled_in_and_what_is_given_stays() {
        for (given, whole) in [
            (
                text("hi"),
                json!({"id": "msg_0_1", "type": "message", "status": "completed", "role": "assistant", "content":
                    [{"type": "output_text", "text": "hi", "annotations": [], "logprobs": []}]}),
            ),
            (
                function_call("f", json!({"a": 1})),
                json!({"id": "fc_0_1", "type": "function_call", "status": "completed", "call_id": "call_0_1",
                    "arguments": "{\"a\":1}", "name": "f"}),
            ),
            (
                json!({"type": "custom_tool_call", "id": "mine", "call_id": "c", "name": "n", "input": "x"}),
                json!({"id": "mine", "type": "custom_tool_call", "call_id": "c", "input": "x", "name": "n"}),
            ),
            (json!({"type": "news"}), json!({"id": "item_0_1", "type": "news"})),
        ] {
            assert_eq!(complete(given, "0_1").unwrap(), whole);
        }
    }

    #[test]
    fn items_that_cannot_be_completed_say_why() {
        for (given, why) in [
            (json!(1), "an item is an object"),
            (json!({}), "the item has no type"),
            (json!({"type": 1}), "the type of an item is a string"),
            (json!({"type": "function_call"}), "a function_call needs the string \"name\""),
            (json!({"type": "reasoning", "summary": ["thought"]}), "a part is an object"),
            (json!({"type": "message", "content": 1}), "the content of a message is a string or a list of parts"),
            (
                json!({"type": "message", "content": [{}]}),
                "a part is an output_text with a text, or a refusal with a refusal",
            ),
        ] {
            assert_eq!(complete(given, "0_0").unwrap_err(), why);
        }
    }
}
