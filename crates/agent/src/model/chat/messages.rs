//! Converts a transcript of items to the messages of Chat Completions.

use serde_json::{Value, json};

use super::{parts, unsupported};
use crate::{Item, Message, ModelError, ModelRequest, Role, View};

/// The messages of a request: instructions first, then the transcript.
pub(super) fn messages(request: &ModelRequest) -> Result<Vec<Value>, ModelError> {
    let mut transcript = Transcript::default();
    if let Some(instructions) = request.instructions.as_ref().filter(|text| !text.is_empty()) {
        transcript.messages.push(json!({ "role": "system", "content": instructions }));
    }
    for item in &request.input {
        transcript.add(item)?;
    }
    transcript.show_pictures();
    Ok(transcript.messages)
}

#[derive(Default)]
struct Transcript {
    messages: Vec<Value>,
    /// Pictures and files of tool outputs, which tool messages cannot contain; sent as a user message after all outputs.
    pictures: Vec<Value>,
}

impl Transcript {
    fn add(&mut self, item: &Item) -> Result<(), ModelError> {
        match item.view() {
            View::Message(message) => self.message(&message, item),
            View::FunctionCall(call) => {
                self.call(call.call_id, call.name, arguments(call.arguments));
                Ok(())
            }
            View::CustomCall(call) => {
                self.call(call.call_id, call.name, json!({ "input": call.input }).to_string());
                Ok(())
            }
            View::Answer(answer) if matches!(answer.kind(), "function_call_output" | "custom_tool_call_output") => {
                self.answer(answer)
            }
            // This API has no field for reasoning in requests.
            View::Reasoning(_) => Ok(()),
            View::Compaction(_) => Err(unsupported("a compacted transcript")),
            View::Malformed(missing) => Err(ModelError::Unusable(missing.to_owned())),
            View::Answer(_) | View::Other(_) => Err(unsupported(&format!("an item of kind {:?}", item.kind()))),
        }
    }

    fn message(&mut self, message: &Message<'_>, item: &Item) -> Result<(), ModelError> {
        let role = match message.role {
            Role::Assistant => {
                let refusal = message.refusal().unwrap_or_default();
                self.assistant(&format!("{}{refusal}", message.text()));
                return Ok(());
            }
            Role::User => "user",
            Role::Developer | Role::System => "system",
        };
        self.show_pictures();
        let content = parts::content(item.fields().get("content").unwrap_or(&Value::Null))?;
        self.messages.push(json!({ "role": role, "content": content }));
        Ok(())
    }

    /// The current message of the model: texts and calls of one turn are one message.
    fn open(&mut self) -> &mut Value {
        if self.messages.last().is_none_or(|last| last["role"] != "assistant") {
            self.show_pictures();
            self.messages.push(json!({ "role": "assistant", "content": null }));
        }
        let last = self.messages.len() - 1;
        &mut self.messages[last]
    }

    fn assistant(&mut self, text: &str) {
        let message = self.open();
        let so_far = message["content"].as_str().map(|before| format!("{before}\n"));
        message["content"] = json!(format!("{}{text}", so_far.unwrap_or_default()));
    }

    fn call(&mut self, id: &str, name: &str, arguments: String) {
        let call = json!({ "id": id, "type": "function", "function": { "name": name, "arguments": arguments } });
        let message = self.open();
        match message["tool_calls"].as_array_mut() {
            Some(calls) => calls.push(call),
            None => message["tool_calls"] = json!([call]),
        }
    }

    fn answer(&mut self, item: &Item) -> Result<(), ModelError> {
        let id = item.call_id().unwrap_or_default();
        let (mut text, others) = parts::split(item.fields().get("output").unwrap_or(&Value::Null))?;
        if !others.is_empty() {
            if text.is_empty() {
                "The result follows in the next message of the user.".clone_into(&mut text);
            }
            self.pictures.push(json!({ "type": "text", "text": format!("The result of call {id}:") }));
            self.pictures.extend(others);
        }
        self.messages.push(json!({ "role": "tool", "tool_call_id": id, "content": text }));
        Ok(())
    }

    fn show_pictures(&mut self) {
        if !self.pictures.is_empty() {
            let content = std::mem::take(&mut self.pictures);
            self.messages.push(json!({ "role": "user", "content": content }));
        }
    }
}

/// Servers parse the arguments of earlier calls and reject the whole transcript if one is not an object.
fn arguments(text: &str) -> String {
    match serde_json::from_str::<Value>(text) {
        Ok(Value::Object(_)) => text.to_owned(),
        _ if text.trim().is_empty() => "{}".to_owned(),
        _ => json!({ "not_an_object": text }).to_string(),
    }
}

#[cfg(test)]
mod tests;
