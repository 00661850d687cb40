//! An item of a transcript, stored unchanged: a message, a call, an output, or an item of an unknown kind.

mod items;
mod view;

use std::{fmt, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use serde_json::{Map, Value, json};

pub use self::items::Items;
pub use self::view::{CustomCall, FunctionCall, Message, Part, Role, View};

/// A JSON object of the Responses API, cheap to clone. All fields are kept in their order, also if the kind is unknown: the
/// next request contains the item exactly as the model sent it. Only numbers beyond 64 bits are rounded to floating point.
/// [`view`](Self::view) returns a typed view.
///
/// ```
/// use sandbar_agent::{Item, View};
///
/// let item = Item::user("hello");
/// let View::Message(message) = item.view() else { unreachable!() };
/// assert_eq!(message.text(), "hello");
///
/// let newer: Item = serde_json::from_str(r#"{"type":"hologram","depth":3}"#)?;
/// assert!(matches!(newer.view(), View::Other("hologram")));
/// assert_eq!(serde_json::to_string(&newer)?, r#"{"type":"hologram","depth":3}"#);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, PartialEq)]
pub struct Item(Arc<Map<String, Value>>);

impl Item {
    /// A message of the user.
    pub fn user(text: impl Into<String>) -> Self {
        Self::of(json!({ "role": "user", "content": text.into() }))
    }

    /// A message of the user in parts: texts, images, files.
    pub fn user_parts(parts: impl IntoIterator<Item = Part>) -> Self {
        Self::of(json!({ "role": "user", "content": Vec::from_iter(parts) }))
    }

    /// A message of the developer of the agent.
    pub fn developer(text: impl Into<String>) -> Self {
        Self::of(json!({ "role": "developer", "content": text.into() }))
    }

    /// A finished message of the model.
    pub fn assistant(text: impl Into<String>) -> Self {
        let content = json!([{ "type": "output_text", "text": text.into(), "annotations": [] }]);
        Self::of(json!({ "type": "message", "role": "assistant", "status": "completed", "content": content }))
    }

    /// A call of a function.
    pub fn function_call(call_id: impl Into<String>, name: impl Into<String>, arguments: impl Into<String>) -> Self {
        Self::of(json!({
            "type": "function_call", "call_id": call_id.into(), "name": name.into(), "arguments": arguments.into(),
        }))
    }

    /// A call of a freeform tool.
    pub fn custom_call(call_id: impl Into<String>, name: impl Into<String>, input: impl Into<String>) -> Self {
        Self::of(json!({
            "type": "custom_tool_call", "call_id": call_id.into(), "name": name.into(), "input": input.into(),
        }))
    }

    /// The output of a function call.
    pub fn function_output(call_id: impl Into<String>, output: impl Into<Value>) -> Self {
        Self::of(json!({ "type": "function_call_output", "call_id": call_id.into(), "output": output.into() }))
    }

    /// The output of a call of a freeform tool.
    pub fn custom_output(call_id: impl Into<String>, output: impl Into<Value>) -> Self {
        Self::of(json!({ "type": "custom_tool_call_output", "call_id": call_id.into(), "output": output.into() }))
    }

    /// The output of a call of a built-in tool, by the kind of the call.
    pub(crate) fn built_in_output(call_kind: &str, call_id: &str, status: &str) -> Self {
        Self::of(json!({ "type": format!("{call_kind}_output"), "call_id": call_id, "status": status }))
    }

    /// An item from a JSON object; `None` if the value is not an object.
    #[must_use]
    pub fn from_value(value: Value) -> Option<Self> {
        match value {
            Value::Object(fields) => Some(Self(Arc::new(fields))),
            _ => None,
        }
    }

    /// All fields.
    #[must_use]
    pub fn fields(&self) -> &Map<String, Value> {
        &self.0
    }

    /// A field, if it is a string.
    #[must_use]
    pub fn text_field(&self, name: &str) -> Option<&str> {
        self.0.get(name).and_then(Value::as_str)
    }

    /// Type of the item on the wire; a message without a type is `message`.
    #[must_use]
    pub fn kind(&self) -> &str {
        self.text_field("type").unwrap_or(if self.0.contains_key("role") { "message" } else { "" })
    }

    /// Id that the server assigned to the item.
    #[must_use]
    pub fn id(&self) -> Option<&str> {
        self.text_field("id")
    }

    /// Id of the call that the item is or answers.
    #[must_use]
    pub fn call_id(&self) -> Option<&str> {
        self.text_field("call_id")
    }

    /// Whether the item is the output of a call.
    #[must_use]
    pub fn is_answer(&self) -> bool {
        self.call_id().is_some() && self.kind().ends_with("_output")
    }

    /// Whether the item is the output of this call.
    pub(crate) fn is_answer_to(&self, call_id: &str) -> bool {
        self.is_answer() && self.call_id() == Some(call_id)
    }

    /// Whether the item is a call that needs an output.
    #[must_use]
    pub fn is_call(&self) -> bool {
        self.call_id().is_some() && self.kind().ends_with("_call")
    }

    /// A copy of the item without some fields.
    #[must_use]
    pub fn without(mut self, names: &[&str]) -> Self {
        if names.iter().any(|name| self.0.contains_key(*name)) {
            let fields = Arc::make_mut(&mut self.0);
            for name in names {
                fields.shift_remove(*name);
            }
        }
        self
    }

    /// A copy of the item with one field set.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        Arc::make_mut(&mut self.0).insert(name.to_owned(), value.into());
        self
    }

    fn of(value: Value) -> Self {
        Self::from_value(value).unwrap_or_else(|| Self(Arc::default()))
    }
}

impl fmt::Debug for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Item({})", serde_json::to_string(&*self.0).unwrap_or_default())
    }
}

impl Serialize for Item {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Item {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        Self::from_value(value).ok_or_else(|| D::Error::custom("an item of a transcript is a JSON object"))
    }
}

impl From<&str> for Item {
    fn from(text: &str) -> Self {
        Self::user(text)
    }
}

impl From<String> for Item {
    fn from(text: String) -> Self {
        Self::user(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_a_server_sends_comes_back_unchanged() {
        for text in [
            r#"{"role":"user","content":"no type at all"}"#,
            r#"{"type":"message","id":"msg_1","role":"assistant","status":null,"content":[{"type":"output_text","text":"é","logprobs":[]}],"phase":"commentary"}"#,
            r#"{"type":"function_call","call_id":"c","name":"f","arguments":"{\"a\": 1}","namespace":null,"caller":{"type":"program"}}"#,
            r#"{"type":"brand_new","z":1,"a":[{"deep":1.5}]}"#,
            r#"{"id":"x"}"#,
            r"{}",
        ] {
            let item: Item = serde_json::from_str(text).expect("an object");
            assert_eq!(serde_json::to_string(&item).expect("json"), text);
        }
    }

    #[test]
    fn only_objects_are_items() {
        for text in ["1", "null", "\"text\"", "[]"] {
            assert!(serde_json::from_str::<Item>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_changed_copy_leaves_the_original_alone() {
        let item = Item::function_call("c", "f", "{}");
        assert_eq!(item.clone().without(&["name"]).text_field("name"), None);
        assert_eq!(item.text_field("name"), Some("f"));
    }
}
