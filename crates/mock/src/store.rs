//! Stored conversations and their items.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use crate::{refusal::Refusal, render::response::CREATED_AT};

/// Limits of the store.
const MOST_CONVERSATIONS: usize = 10_000;
const MOST_BYTES: usize = 256 << 20;

/// All stored conversations.
#[derive(Debug, Default)]
pub(crate) struct Store {
    conversations: HashMap<String, StoredConversation>,
    made: usize,
    bytes: usize,
}

#[derive(Debug, Default)]
struct StoredConversation {
    metadata: Value,
    items: Vec<Value>,
    /// Total number of items so far, from which ids are made.
    numbered: usize,
}

/// Selection of the items of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Page {
    pub(crate) newest_first: bool,
    pub(crate) limit: usize,
    pub(crate) after: Option<String>,
}

impl Page {
    /// Parses a query such as `order=asc&limit=20&after=msg_1`. Unknown parameters are ignored.
    pub(crate) fn from_query(query: &str) -> Self {
        let mut page = Self { newest_first: true, limit: 20, after: None };
        for (key, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
            match key {
                "order" => page.newest_first = value != "asc",
                "limit" => page.limit = value.parse().unwrap_or(20).clamp(1, 100),
                "after" => page.after = Some(value.to_owned()),
                _ => {}
            }
        }
        page
    }
}

impl Store {
    pub(crate) fn create(&mut self, metadata: Value) -> Result<String, Refusal> {
        if self.conversations.len() >= MOST_CONVERSATIONS {
            return Err(Refusal::bare(400, format!("There are {MOST_CONVERSATIONS} conversations already.")));
        }
        self.made += 1;
        let id = format!("conv_{}", self.made);
        self.conversations.insert(id.clone(), StoredConversation { metadata, ..StoredConversation::default() });
        Ok(id)
    }

    /// The conversation object, without its items.
    pub(crate) fn describe(&self, id: &str) -> Result<Value, Refusal> {
        let kept = self.conversations.get(id).ok_or_else(|| unknown(id))?;
        Ok(json!({"id": id, "object": "conversation", "created_at": CREATED_AT, "metadata": kept.metadata}))
    }

    pub(crate) fn items(&self, id: &str) -> Option<Vec<Value>> {
        self.conversations.get(id).map(|kept| kept.items.clone())
    }

    /// Adds items, assigns ids to those without one, and returns them.
    pub(crate) fn add(&mut self, id: &str, items: Vec<Value>) -> Result<Vec<Value>, Refusal> {
        let kept = self.conversations.get_mut(id).ok_or_else(|| unknown(id))?;
        let bytes = self.bytes.saturating_add(size(&items));
        if bytes > MOST_BYTES {
            return Err(Refusal::bare(400, format!("Conversations have {MOST_BYTES} bytes at most.")));
        }
        self.bytes = bytes;
        let mut added = Vec::with_capacity(items.len());
        for item in items {
            added.push(identified(item, &format!("{id}_{}", kept.numbered)));
            kept.numbered += 1;
        }
        kept.items.extend(added.iter().cloned());
        Ok(added)
    }

    pub(crate) fn page(&self, id: &str, page: &Page) -> Result<Value, Refusal> {
        let kept = self.conversations.get(id).ok_or_else(|| unknown(id))?;
        let mut items: Vec<&Value> = kept.items.iter().collect();
        if page.newest_first {
            items.reverse();
        }
        let from = match &page.after {
            Some(after) => items.iter().position(|item| item["id"] == after.as_str()).map_or(0, |at| at + 1),
            None => 0,
        };
        let rest = items.split_off(from.min(items.len()));
        let more = rest.len() > page.limit;
        Ok(list(rest.into_iter().take(page.limit).cloned().collect(), more))
    }

    pub(crate) fn item(&self, id: &str, item: &str) -> Result<Value, Refusal> {
        let kept = self.conversations.get(id).ok_or_else(|| unknown(id))?;
        kept.items.iter().find(|known| known["id"] == item).cloned().ok_or_else(|| no_item(item))
    }

    pub(crate) fn delete_item(&mut self, id: &str, item: &str) -> Result<Value, Refusal> {
        let kept = self.conversations.get_mut(id).ok_or_else(|| unknown(id))?;
        let at = kept.items.iter().position(|known| known["id"] == item).ok_or_else(|| no_item(item))?;
        let removed = kept.items.remove(at);
        self.bytes = self.bytes.saturating_sub(size(&[removed]));
        self.describe(id)
    }

    pub(crate) fn delete(&mut self, id: &str) -> Result<Value, Refusal> {
        let kept = self.conversations.remove(id).ok_or_else(|| unknown(id))?;
        self.bytes = self.bytes.saturating_sub(size(&kept.items));
        Ok(json!({"id": id, "object": "conversation.deleted", "deleted": true}))
    }
}

/// The list object of the API.
pub(crate) fn list(data: Vec<Value>, has_more: bool) -> Value {
    let end = |item: Option<&Value>| item.map_or_else(|| json!(""), |item| item["id"].clone());
    json!({"object": "list", "first_id": end(data.first()), "last_id": end(data.last()), "has_more": has_more, "data": data})
}

/// An item in the form that a server returns: with an id, and with texts as parts.
pub(crate) fn identified(item: Value, name: &str) -> Value {
    let Value::Object(item) = item else { return item };
    let kind = item.get("type").and_then(Value::as_str).unwrap_or("message").to_owned();
    let part = if item.get("role").is_some_and(|role| role == "assistant") { "output_text" } else { "input_text" };
    let mut whole = Map::new();
    let id = format!("{}_{name}", crate::item::id_prefix(&kind).unwrap_or("item"));
    whole.insert("id".to_owned(), json!(id));
    whole.insert("type".to_owned(), json!(kind));
    whole.insert("status".to_owned(), json!("completed"));
    for (key, value) in item.into_iter().filter(|(key, value)| key != "id" || !value.is_null()) {
        let value = match value {
            Value::String(text) if kind == "message" && key == "content" => json!([{"type": part, "text": text}]),
            other => other,
        };
        whole.insert(key, value);
    }
    Value::Object(whole)
}

/// Approximate size of items, in bytes.
fn size(items: &[Value]) -> usize {
    items.iter().map(|item| item.to_string().len()).sum()
}

fn unknown(id: &str) -> Refusal {
    Refusal::missing(format!("Conversation with id '{id}' not found."))
}

fn no_item(id: &str) -> Refusal {
    Refusal::missing(format!("Item with id '{id}' not found."))
}
