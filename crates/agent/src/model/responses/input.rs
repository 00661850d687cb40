//! Serializes items for a request: without fields that only the server or another API sets.

use serde::{Serialize, Serializer, ser::SerializeMap};
use serde_json::Value;

use crate::Item;

/// Id that means "no id".
const FAKE_ID: &str = "__fake_id__";

/// The items of a request.
pub(super) struct Input<'a>(pub(super) &'a [Item]);

impl Serialize for Input<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().filter(|item| is_sendable(item)).map(SentItem))
    }
}

/// Reasoning items of another API are not sent.
fn is_sendable(item: &Item) -> bool {
    item.kind() != "reasoning" || !item.fields().contains_key("provider_data")
}

struct SentItem<'a>(&'a Item);

impl Serialize for SentItem<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let shell = self.0.kind() == "shell_call_output";
        let mut fields = serializer.serialize_map(None)?;
        for (name, value) in self.0.fields() {
            match name.as_str() {
                "created_by" | "provider_data" => {}
                "id" if value == FAKE_ID => {}
                "status" | "shell_output" if shell => {}
                "output" if shell && value.is_array() => fields.serialize_entry(name, &Chunks(value))?,
                _ => fields.serialize_entry(name, value)?,
            }
        }
        fields.end()
    }
}

/// Output of a hosted shell, in chunks.
struct Chunks<'a>(&'a Value);

impl Serialize for Chunks<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.as_array().into_iter().flatten().map(Chunk))
    }
}

struct Chunk<'a>(&'a Value);

impl Serialize for Chunk<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.as_object() {
            Some(fields) => serializer.collect_map(fields.iter().filter(|(name, _)| *name != "created_by")),
            None => self.0.serialize(serializer),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_filter("a number", |number| number.is_finite()).prop_map(Value::from),
            ".{0,8}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            let name = "[a-z_]{1,8}|type|id|output|content";
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::vec((name, inner), 0..4)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn whatever_a_server_sends_is_sent_back_as_it_came(
            kind in "message|reasoning|function_call|custom_tool_call_output|[a-z]{1,6}",
            fields in prop::collection::vec(("[a-z]{1,8}", json()), 0..6),
        ) {
            let mut item = serde_json::Map::from_iter([("type".to_owned(), Value::from(kind))]);
            item.extend(fields);
            let text = serde_json::to_string(&item).expect("json");
            let read: Item = serde_json::from_str(&text).expect("an item");
            let seen = format!("{:?}", read.view());
            prop_assert!(!seen.is_empty());
            prop_assert_eq!(&serde_json::to_string(&read).expect("json"), &text);
            prop_assert_eq!(serde_json::to_string(&Input(&[read])).expect("json"), format!("[{text}]"));
        }
    }

    fn sent(items: Value) -> Value {
        let items: Vec<Item> = serde_json::from_value(items).expect("items");
        serde_json::to_value(Input(&items)).expect("json")
    }

    #[test]
    fn what_only_the_server_knows_is_not_sent_back() {
        for (item, expected) in [
            (
                json!({ "type": "message", "id": "__fake_id__", "role": "user", "content": "x" }),
                json!([{ "type": "message", "role": "user", "content": "x" }]),
            ),
            (
                json!({ "type": "function_call", "id": "fc_1", "call_id": "c", "name": "f", "arguments": "{}",
                        "created_by": "me", "provider_data": {}, "status": "completed" }),
                json!([{ "type": "function_call", "id": "fc_1", "call_id": "c", "name": "f", "arguments": "{}",
                         "status": "completed" }]),
            ),
            (json!({ "type": "reasoning", "summary": [], "provider_data": { "model": "x" } }), json!([])),
            (
                json!({ "type": "reasoning", "id": "rs_1", "summary": [] }),
                json!([{ "type": "reasoning", "id": "rs_1", "summary": [] }]),
            ),
            (
                json!({ "type": "shell_call_output", "call_id": "c", "status": "completed", "shell_output": [],
                        "output": [{ "stdout": "x", "stderr": "", "created_by": "me",
                                     "outcome": { "type": "exit", "exit_code": 0 } }, 1] }),
                json!([{ "type": "shell_call_output", "call_id": "c",
                         "output": [{ "stdout": "x", "stderr": "", "outcome": { "type": "exit", "exit_code": 0 } }, 1] }]),
            ),
            (
                json!({ "type": "newer", "deep": { "created_by": 1 } }),
                json!([{ "type": "newer", "deep": { "created_by": 1 } }]),
            ),
        ] {
            assert_eq!(sent(json!([item])), expected, "{item}");
        }
    }
}
