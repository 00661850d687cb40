//! Parses the chunks of a Chat Completions stream into the events of a Responses stream.

use std::{collections::VecDeque, sync::Arc};

use sandbar_http::error_parts;
use serde_json::{Map, Value, json};

use super::{
    RequestFacts,
    calls::{AddedPiece, Calls},
};
use crate::{
    Item, ModelError, ModelEvent, ModelReply, RawEvent, Usage,
    model::{
        responses::cut_short,
        sse::SseEvent,
        stream::{Completion, ReplyParser, ReplySize},
    },
};

/// State of one reply.
pub(super) struct Chunks {
    /// The `response` field of events; empty until the first chunk.
    response: Map<String, Value>,
    sequence: u64,
    /// Number of items so far.
    item_count: usize,
    thoughts: TextItem,
    message: TextItem,
    refusal: TextItem,
    calls: Calls,
    usage: Value,
    finish: Option<String>,
    received: ReplySize,
}

/// A text that arrives in pieces, and its index among the items.
#[derive(Default)]
struct TextItem {
    index: Option<usize>,
    text: String,
}

impl ReplyParser for Chunks {
    fn parse(&mut self, event: SseEvent<'_>, events: &mut VecDeque<ModelEvent>) -> Result<(), ModelError> {
        if event.is_done_mark() {
            self.finish.get_or_insert_with(|| "stop".to_owned());
            return self.end(events).map(drop);
        }
        self.received.add(event.data.len())?;
        let chunk: Map<String, Value> = serde_json::from_slice(event.data)
            .map_err(|error| ModelError::Malformed(format!("a chunk of its stream is not a JSON object: {error}")))?;
        if let Some(error) = chunk.get("error").filter(|error| !error.is_null()) {
            let (code, message) = error_parts(error);
            return Err(ModelError::Failed { code, message });
        }
        self.begin(&chunk, events);
        if let Some(usage) = chunk.get("usage").filter(|usage| usage.is_object()) {
            self.usage = responses_usage(usage);
        }
        let choices = chunk.get("choices").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        match choices.iter().find(|choice| choice["index"].as_u64().unwrap_or(0) == 0) {
            Some(choice) => self.choice(choice, events),
            None => Ok(()),
        }
    }

    fn end(&mut self, events: &mut VecDeque<ModelEvent>) -> Result<Completion, ModelError> {
        let Some(finish) = self.finish.as_deref().filter(|_| !self.response.is_empty()) else {
            return Ok(Completion::Incomplete);
        };
        let reason = match finish {
            "length" | "max_tokens" | "model_length" => "max_output_tokens",
            "content_filter" => "content_filter",
            "error" => {
                let message = "its server reports an error and says nothing about it".to_owned();
                return Err(ModelError::Failed { code: Some("server_error".to_owned()), message });
            }
            // Servers have many other names for a regular end.
            _ => {
                self.complete(events);
                return Ok(Completion::Complete);
            }
        };
        self.response.insert("incomplete_details".to_owned(), json!({ "reason": reason }));
        let response = self.response_with_status("incomplete");
        self.emit(events, "response.incomplete", json!({ "response": response }));
        Err(cut_short(reason))
    }
}

impl Chunks {
    pub(super) fn new(facts: Arc<RequestFacts>) -> Self {
        Self {
            response: Map::new(),
            sequence: 0,
            item_count: 0,
            thoughts: TextItem::default(),
            message: TextItem::default(),
            refusal: TextItem::default(),
            calls: Calls::new(facts),
            usage: Value::Null,
            finish: None,
            received: ReplySize::default(),
        }
    }

    fn begin(&mut self, chunk: &Map<String, Value>, events: &mut VecDeque<ModelEvent>) {
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
        let response = self.response_with_status("in_progress");
        self.emit(events, "response.created", json!({ "response": response }));
    }

    fn response_with_status(&self, status: &str) -> Value {
        let mut response = self.response.clone();
        response.insert("status".to_owned(), status.into());
        Value::Object(response)
    }

    fn emit(&mut self, events: &mut VecDeque<ModelEvent>, kind: &str, fields: Value) {
        let mut event = Map::new();
        event.insert("type".to_owned(), kind.into());
        event.insert("sequence_number".to_owned(), self.sequence.into());
        if let Value::Object(fields) = fields {
            event.extend(fields);
        }
        self.sequence += 1;
        events.push_back(ModelEvent::Raw(RawEvent(event)));
    }

    fn choice(&mut self, choice: &Value, events: &mut VecDeque<ModelEvent>) -> Result<(), ModelError> {
        let delta = choice.get("delta").or_else(|| choice.get("message")).unwrap_or(&Value::Null);
        let thoughts = ["reasoning_content", "reasoning", "thinking"].iter().find_map(|name| text(delta.get(*name)));
        for (kind, more) in [
            (TextKind::Thoughts, thoughts),
            (TextKind::Message, text(delta.get("content"))),
            (TextKind::Refusal, text(delta.get("refusal"))),
        ] {
            if let Some(more) = more {
                self.grow(kind, &more, events);
            }
        }
        let calls = delta.get("tool_calls").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let old_form = delta.get("function_call").filter(|call| call.is_object());
        for piece in calls.iter().chain(old_form) {
            self.call(piece, events)?;
        }
        if let Some(reason) = choice.get("finish_reason").and_then(Value::as_str).filter(|reason| !reason.is_empty()) {
            self.finish = Some(reason.to_owned());
        }
        Ok(())
    }

    fn grow(&mut self, text_kind: TextKind, more: &str, events: &mut VecDeque<ModelEvent>) {
        let item_count = self.item_count;
        let (text, kind) = match text_kind {
            TextKind::Thoughts => (&mut self.thoughts, "response.reasoning_text.delta"),
            TextKind::Message => (&mut self.message, "response.output_text.delta"),
            TextKind::Refusal => (&mut self.refusal, "response.refusal.delta"),
        };
        text.text.push_str(more);
        let is_new = text.index.is_none();
        let index = *text.index.get_or_insert(item_count);
        if is_new {
            self.item_count += 1;
            let item = match text_kind {
                TextKind::Thoughts => json!({ "type": "reasoning", "summary": [], "status": "in_progress" }),
                TextKind::Message | TextKind::Refusal => {
                    json!({ "type": "message", "role": "assistant", "content": [], "status": "in_progress" })
                }
            };
            self.emit(events, "response.output_item.added", json!({ "output_index": index, "item": item }));
        }
        let fields =
            json!({ "item_id": format!("item_{index}"), "output_index": index, "content_index": 0, "delta": more });
        self.emit(events, kind, fields);
    }

    fn call(&mut self, piece: &Value, events: &mut VecDeque<ModelEvent>) -> Result<(), ModelError> {
        let AddedPiece { call, is_new, arguments } = self.calls.add(piece, self.item_count)?;
        let call = &self.calls.all[call];
        let (index, custom) = (call.index, call.custom);
        if is_new {
            let item = call.begun();
            self.item_count += 1;
            self.emit(events, "response.output_item.added", json!({ "output_index": index, "item": item }));
        }
        // The text for a freeform tool is wrapped in JSON, so it can be emitted only when it is complete.
        if !custom && !arguments.is_empty() {
            let fields = json!({ "item_id": format!("item_{index}"), "output_index": index, "delta": arguments });
            self.emit(events, "response.function_call_arguments.delta", fields);
        }
        Ok(())
    }

    fn complete(&mut self, events: &mut VecDeque<ModelEvent>) {
        let mut items = self.texts();
        items.extend(self.calls.all.iter().map(|call| (call.index, call.item())));
        items.sort_by_key(|(index, _)| *index);
        for (index, item) in &items {
            self.close(*index, item, events);
        }
        let output: Vec<Item> = items.into_iter().map(|(_, item)| item).collect();
        self.response.insert("output".to_owned(), json!(output));
        self.response.insert("usage".to_owned(), self.usage.clone());
        let response = self.response_with_status("completed");
        self.emit(events, "response.completed", json!({ "response": response }));
        let usage = Usage::from_wire(&self.usage);
        // No later request can refer to this response, so the run gets no id.
        events.push_back(ModelEvent::Done(ModelReply { output, usage, response_id: None, request_id: None }));
    }

    /// Items that are texts, with their indexes.
    fn texts(&self) -> Vec<(usize, Item)> {
        let thoughts = || {
            let content = json!([{ "type": "reasoning_text", "text": self.thoughts.text }]);
            // Marked, because a Responses server rejects reasoning from another API.
            json!({ "type": "reasoning", "summary": [], "content": content, "provider_data": { "api": "chat" } })
        };
        let refusal = || {
            let content = json!([{ "type": "refusal", "refusal": self.refusal.text }]);
            json!({ "type": "message", "role": "assistant", "content": content, "status": "completed" })
        };
        let items = [
            (self.thoughts.index, self.thoughts.index.and_then(|_| Item::from_value(thoughts()))),
            (self.message.index, Some(Item::assistant(self.message.text.as_str()))),
            (self.refusal.index, self.refusal.index.and_then(|_| Item::from_value(refusal()))),
        ];
        items.into_iter().filter_map(|(index, item)| Some((index?, item?))).collect()
    }

    /// Emits the events of a complete item.
    fn close(&mut self, index: usize, item: &Item, events: &mut VecDeque<ModelEvent>) {
        let id = format!("item_{index}");
        let whole = match item.kind() {
            "function_call" => Some(("response.function_call_arguments.done", "arguments")),
            "custom_tool_call" => Some(("response.custom_tool_call_input.done", "input")),
            _ => None,
        };
        if let Some((kind, field)) = whole {
            let text = item.text_field(field).unwrap_or_default();
            if field == "input" {
                let fields = json!({ "item_id": id, "output_index": index, "delta": text });
                self.emit(events, "response.custom_tool_call_input.delta", fields);
            }
            self.emit(events, kind, json!({ "item_id": id, "output_index": index, field: text }));
        } else if self.message.index == Some(index) {
            let fields = json!({ "item_id": id, "output_index": index, "content_index": 0, "text": self.message.text });
            self.emit(events, "response.output_text.done", fields);
        }
        self.emit(events, "response.output_item.done", json!({ "output_index": index, "item": item }));
    }
}

/// Kind of a text that arrives in pieces.
#[derive(Clone, Copy)]
enum TextKind {
    Thoughts,
    Message,
    Refusal,
}

/// A text that is not empty; some servers send it as a list of parts.
fn text(value: Option<&Value>) -> Option<String> {
    let text = match value? {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part.get("text")?.as_str()).collect(),
        _ => return None,
    };
    (!text.is_empty()).then_some(text)
}

/// Usage with the field names of the Responses API.
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
