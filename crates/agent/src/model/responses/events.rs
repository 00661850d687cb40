//! Parses the events of a Responses stream: passes them on unchanged, and collects the reply.

use std::collections::VecDeque;

use sandbar_http::error_parts;
use serde_json::{Map, Value};

use crate::{
    Item, ModelError, ModelEvent, ModelReply, RawEvent, Usage,
    model::{
        sse::SseEvent,
        stream::{Completion, ReplyParser, ReplySize},
    },
};

/// State of one reply.
#[derive(Default)]
pub(super) struct Events {
    /// Finished items with their indexes, in case the last event omits them.
    items: Vec<(u64, Item)>,
    received: ReplySize,
}

impl ReplyParser for Events {
    fn parse(&mut self, event: SseEvent<'_>, events: &mut VecDeque<ModelEvent>) -> Result<(), ModelError> {
        if event.is_done_mark() {
            return Ok(());
        }
        let mut raw: RawEvent = serde_json::from_slice(event.data)
            .map_err(|error| ModelError::Malformed(format!("an event of its stream is not a JSON object: {error}")))?;
        let failed = raw.0.get("error").is_some_and(|error| !error.is_null());
        if !raw.0.get("type").is_some_and(Value::is_string) {
            let kind = if failed { Some("error") } else { event.name };
            raw.0.insert("type".to_owned(), kind.unwrap_or_default().into());
        }
        let outcome = match raw.kind() {
            "response.completed" => self.reply(&raw.0).map(Some),
            "response.failed" => Err(in_response(&raw.0)),
            "response.incomplete" => Err(incomplete(&raw.0)),
            "error" => Err(failure(raw.0.get("error").unwrap_or(&Value::Object(raw.0.clone())))),
            _ if failed => Err(failure(&raw.0["error"])),
            "response.output_item.done" => self.collect_item(&raw.0, event.data.len()).map(|()| None),
            _ => Ok(None),
        };
        events.push_back(ModelEvent::Raw(raw));
        events.extend(outcome?.map(ModelEvent::Done));
        Ok(())
    }

    fn end(&mut self, _events: &mut VecDeque<ModelEvent>) -> Result<Completion, ModelError> {
        Ok(Completion::Incomplete)
    }
}

impl Events {
    fn collect_item(&mut self, event: &Map<String, Value>, size: usize) -> Result<(), ModelError> {
        self.received.add(size)?;
        let index = event.get("output_index").and_then(Value::as_u64).unwrap_or(self.items.len() as u64);
        let item = event.get("item").cloned().and_then(Item::from_value);
        self.items.extend(item.map(|item| (index, item)));
        Ok(())
    }

    fn reply(&mut self, event: &Map<String, Value>) -> Result<ModelReply, ModelError> {
        let Some(Value::Object(response)) = event.get("response") else {
            return Err(ModelError::Malformed("a completed response has no response in it".to_owned()));
        };
        let output = response.get("output").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let mut output: Vec<Item> = output.iter().cloned().filter_map(Item::from_value).collect();
        if output.is_empty() {
            self.items.sort_by_key(|(index, _)| *index);
            output.extend(self.items.drain(..).map(|(_, item)| item));
        }
        Ok(ModelReply {
            output,
            usage: response.get("usage").map(Usage::from_wire).unwrap_or_default(),
            response_id: response.get("id").and_then(Value::as_str).map(str::to_owned),
            request_id: None,
        })
    }
}

fn failure(error: &Value) -> ModelError {
    let (code, message) = error_parts(error);
    ModelError::Failed { code, message }
}

fn in_response(event: &Map<String, Value>) -> ModelError {
    failure(event.get("response").and_then(|response| response.get("error")).unwrap_or(&Value::Null))
}

fn incomplete(event: &Map<String, Value>) -> ModelError {
    let details = event.get("response").and_then(|response| response.get("incomplete_details"));
    let reason = details.and_then(|details| details.get("reason")).and_then(Value::as_str).unwrap_or("no reason given");
    cut_short(reason)
}

/// Error for a reply that the model did not complete.
pub(in crate::model) fn cut_short(reason: &str) -> ModelError {
    let advice = match reason {
        "max_output_tokens" => "; raise max_tokens in its settings",
        _ => "",
    };
    ModelError::Failed { code: Some(reason.to_owned()), message: format!("its answer is incomplete: {reason}{advice}") }
}

#[cfg(test)]
mod tests;
