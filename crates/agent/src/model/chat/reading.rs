//! The chunks of a Chat Completions stream, told as the events of a Responses stream.

use std::{collections::VecDeque, sync::Arc};

use sandbar_http::error_parts;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{
    Known,
    calls::{Added, Calls},
};
use crate::{
    Item, ModelError, ModelEvent, ModelReply, RawEvent, Usage,
    model::{
        responses::cut_short,
        sse::SseEvent,
        stream::{Reading, Whole},
    },
    usage::WireUsage,
};

/// How much of an answer is gathered, in bytes.
const MOST_GATHERED: usize = 64 << 20;

/// What one answer said so far.
pub(super) struct Chunks {
    /// What every event tells about the response; empty until the first chunk.
    response: Map<String, Value>,
    sequence: u64,
    /// How many items were begun.
    places: usize,
    thoughts: Text,
    message: Text,
    refusal: Text,
    calls: Calls,
    usage: Value,
    finish: Option<String>,
    gathered: usize,
}

/// A text that grows, and its place among the items.
#[derive(Default)]
struct Text {
    place: Option<usize>,
    text: String,
}

impl Reading for Chunks {
    fn take(&mut self, event: SseEvent<'_>, said: &mut VecDeque<ModelEvent>) -> Result<(), ModelError> {
        if event.is_done_mark() {
            self.finish.get_or_insert_with(|| "stop".to_owned());
            return self.end(said).map(drop);
        }
        self.gathered = self.gathered.saturating_add(event.data.len());
        if self.gathered > MOST_GATHERED {
            return Err(ModelError::Malformed(format!("its answer is larger than {MOST_GATHERED} bytes")));
        }
        let chunk: Map<String, Value> = serde_json::from_slice(event.data)
            .map_err(|error| ModelError::Malformed(format!("a chunk of its stream is not a JSON object: {error}")))?;
        if let Some(error) = chunk.get("error").filter(|error| !error.is_null()) {
            let (code, message) = error_parts(error);
            return Err(ModelError::Failed { code, message });
        }
        self.begin(&chunk, said);
        if let Some(usage) = chunk.get("usage").filter(|usage| usage.is_object()) {
            self.usage = responses_usage(usage);
        }
        let choices = chunk.get("choices").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        match choices.iter().find(|choice| choice["index"].as_u64().unwrap_or(0) == 0) {
            Some(choice) => self.choice(choice, said),
            None => Ok(()),
        }
    }

    fn end(&mut self, said: &mut VecDeque<ModelEvent>) -> Result<Whole, ModelError> {
        let Some(finish) = self.finish.as_deref().filter(|_| !self.response.is_empty()) else { return Ok(Whole::No) };
        let reason = match finish {
            "length" | "max_tokens" | "model_length" => "max_output_tokens",
            "content_filter" => "content_filter",
            "error" => {
                let message = "its server reports an error and says nothing about it".to_owned();
                return Err(ModelError::Failed { code: Some("server_error".to_owned()), message });
            }
            // Everything else is some server's word for an ordinary end.
            _ => {
                self.complete(said);
                return Ok(Whole::Yes);
            }
        };
        self.response.insert("incomplete_details".to_owned(), json!({ "reason": reason }));
        let response = self.told("incomplete");
        self.tell(said, "response.incomplete", json!({ "response": response }));
        Err(cut_short(reason))
    }
}

impl Chunks {
    pub(super) fn new(known: Arc<Known>) -> Self {
        Self {
            response: Map::new(),
            sequence: 0,
            places: 0,
            thoughts: Text::default(),
            message: Text::default(),
            refusal: Text::default(),
            calls: Calls::new(known),
            usage: Value::Null,
            finish: None,
            gathered: 0,
        }
    }

    fn begin(&mut self, chunk: &Map<String, Value>, said: &mut VecDeque<ModelEvent>) {
        if !self.response.is_empty() {
            return;
        }
        let field = |name| chunk.get(name).cloned().unwrap_or_default();
        let head = json!({
            "id": field("id"), "object": "response", "created_at": field("created"), "model": field("model"),
        });
        if let Value::Object(head) = head {
            self.response = head;
        }
        let response = self.told("in_progress");
        self.tell(said, "response.created", json!({ "response": response }));
    }

    fn told(&self, status: &str) -> Value {
        let mut response = self.response.clone();
        response.insert("status".to_owned(), status.into());
        Value::Object(response)
    }

    fn tell(&mut self, said: &mut VecDeque<ModelEvent>, kind: &str, fields: Value) {
        let mut event = Map::new();
        event.insert("type".to_owned(), kind.into());
        event.insert("sequence_number".to_owned(), self.sequence.into());
        if let Value::Object(fields) = fields {
            event.extend(fields);
        }
        self.sequence += 1;
        said.push_back(ModelEvent::Raw(RawEvent(event)));
    }

    fn choice(&mut self, choice: &Value, said: &mut VecDeque<ModelEvent>) -> Result<(), ModelError> {
        let delta = choice.get("delta").or_else(|| choice.get("message")).unwrap_or(&Value::Null);
        let thoughts = ["reasoning_content", "reasoning", "thinking"].iter().find_map(|name| text(delta.get(*name)));
        for (kind, more) in [
            (Growing::Thoughts, thoughts),
            (Growing::Message, text(delta.get("content"))),
            (Growing::Refusal, text(delta.get("refusal"))),
        ] {
            if let Some(more) = more {
                self.grow(kind, &more, said);
            }
        }
        let calls = delta.get("tool_calls").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let old_form = delta.get("function_call").filter(|call| call.is_object());
        for piece in calls.iter().chain(old_form) {
            self.call(piece, said)?;
        }
        if let Some(reason) = choice.get("finish_reason").and_then(Value::as_str).filter(|reason| !reason.is_empty()) {
            self.finish = Some(reason.to_owned());
        }
        Ok(())
    }

    fn grow(&mut self, growing: Growing, more: &str, said: &mut VecDeque<ModelEvent>) {
        let places = self.places;
        let (text, kind) = match growing {
            Growing::Thoughts => (&mut self.thoughts, "response.reasoning_text.delta"),
            Growing::Message => (&mut self.message, "response.output_text.delta"),
            Growing::Refusal => (&mut self.refusal, "response.refusal.delta"),
        };
        text.text.push_str(more);
        let is_new = text.place.is_none();
        let place = *text.place.get_or_insert(places);
        if is_new {
            self.places += 1;
            let item = match growing {
                Growing::Thoughts => json!({ "type": "reasoning", "summary": [], "status": "in_progress" }),
                Growing::Message | Growing::Refusal => {
                    json!({ "type": "message", "role": "assistant", "content": [], "status": "in_progress" })
                }
            };
            self.tell(said, "response.output_item.added", json!({ "output_index": place, "item": item }));
        }
        let fields =
            json!({ "item_id": format!("item_{place}"), "output_index": place, "content_index": 0, "delta": more });
        self.tell(said, kind, fields);
    }

    fn call(&mut self, piece: &Value, said: &mut VecDeque<ModelEvent>) -> Result<(), ModelError> {
        let Added { call, is_new, arguments } = self.calls.add(piece, self.places)?;
        let call = &self.calls.all[call];
        let (place, custom) = (call.place, call.custom);
        if is_new {
            let item = call.begun();
            self.places += 1;
            self.tell(said, "response.output_item.added", json!({ "output_index": place, "item": item }));
        }
        // The text for a freeform tool comes wrapped in JSON, so it is told when it is whole.
        if !custom && !arguments.is_empty() {
            let fields = json!({ "item_id": format!("item_{place}"), "output_index": place, "delta": arguments });
            self.tell(said, "response.function_call_arguments.delta", fields);
        }
        Ok(())
    }

    fn complete(&mut self, said: &mut VecDeque<ModelEvent>) {
        let mut items = self.texts();
        items.extend(self.calls.all.iter().map(|call| (call.place, call.item())));
        items.sort_by_key(|(place, _)| *place);
        for (place, item) in &items {
            self.close(*place, item, said);
        }
        let output: Vec<Item> = items.into_iter().map(|(_, item)| item).collect();
        self.response.insert("output".to_owned(), json!(output));
        self.response.insert("usage".to_owned(), self.usage.clone());
        let response = self.told("completed");
        self.tell(said, "response.completed", json!({ "response": response }));
        let usage = Option::<WireUsage>::deserialize(&self.usage).ok().flatten();
        let usage = usage.map(Usage::from).unwrap_or_default();
        // No later request can name this response, so it has no id for a run.
        said.push_back(ModelEvent::Done(ModelReply { output, usage, response_id: None, request_id: None }));
    }

    /// The items that are texts, with their places.
    fn texts(&self) -> Vec<(usize, Item)> {
        let thoughts = || {
            let content = json!([{ "type": "reasoning_text", "text": self.thoughts.text }]);
            // Marked, because only this kind of server could have said it.
            json!({ "type": "reasoning", "summary": [], "content": content, "provider_data": { "api": "chat" } })
        };
        let refusal = || {
            let content = json!([{ "type": "refusal", "refusal": self.refusal.text }]);
            json!({ "type": "message", "role": "assistant", "content": content, "status": "completed" })
        };
        let items = [
            (self.thoughts.place, self.thoughts.place.and_then(|_| Item::from_value(thoughts()))),
            (self.message.place, Some(Item::assistant(self.message.text.as_str()))),
            (self.refusal.place, self.refusal.place.and_then(|_| Item::from_value(refusal()))),
        ];
        items.into_iter().filter_map(|(place, item)| Some((place?, item?))).collect()
    }

    /// Tells that an item is whole.
    fn close(&mut self, place: usize, item: &Item, said: &mut VecDeque<ModelEvent>) {
        let id = format!("item_{place}");
        let whole = match item.kind() {
            "function_call" => Some(("response.function_call_arguments.done", "arguments")),
            "custom_tool_call" => Some(("response.custom_tool_call_input.done", "input")),
            _ => None,
        };
        if let Some((kind, field)) = whole {
            let text = item.text_field(field).unwrap_or_default();
            if field == "input" {
                let fields = json!({ "item_id": id, "output_index": place, "delta": text });
                self.tell(said, "response.custom_tool_call_input.delta", fields);
            }
            self.tell(said, kind, json!({ "item_id": id, "output_index": place, field: text }));
        } else if self.message.place == Some(place) {
            let fields = json!({ "item_id": id, "output_index": place, "content_index": 0, "text": self.message.text });
            self.tell(said, "response.output_text.done", fields);
        }
        self.tell(said, "response.output_item.done", json!({ "output_index": place, "item": item }));
    }
}

/// What grows by pieces of text.
#[derive(Clone, Copy)]
enum Growing {
    Thoughts,
    Message,
    Refusal,
}

/// A text that says something; some servers send it in parts.
fn text(value: Option<&Value>) -> Option<String> {
    let text = match value? {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part.get("text")?.as_str()).collect(),
        _ => return None,
    };
    (!text.is_empty()).then_some(text)
}

/// The same numbers under the names of the Responses API.
fn responses_usage(usage: &Value) -> Value {
    let number = |name: &str| usage.get(name).and_then(Value::as_u64).unwrap_or(0);
    let detail = |group: &str, name: &str| usage.get(group).and_then(|group| group.get(name)?.as_u64()).unwrap_or(0);
    let (input, output) = (number("prompt_tokens"), number("completion_tokens"));
    json!({
        "input_tokens": input,
        "input_tokens_details": { "cached_tokens": detail("prompt_tokens_details", "cached_tokens") },
        "output_tokens": output,
        "output_tokens_details": { "reasoning_tokens": detail("completion_tokens_details", "reasoning_tokens") },
        "total_tokens": number("total_tokens").max(input.saturating_add(output)),
    })
}

#[cfg(test)]
mod tests;
