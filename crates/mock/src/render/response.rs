//! The response object, with the fields of the request that it repeats.

use serde_json::{Map, Value, json};

use super::Ending;

/// Data of an answer, except its output.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Frame {
    pub(crate) id: String,
    /// Fields of the request that the response repeats, in order.
    pub(crate) echo: Map<String, Value>,
}

/// Fixed time of all answers, so that answers are deterministic.
pub(crate) const CREATED_AT: u64 = 1_760_000_000;

const ECHOED: &[&str] = &[
    "background",
    "instructions",
    "max_output_tokens",
    "max_tool_calls",
    "metadata",
    "model",
    "parallel_tool_calls",
    "previous_response_id",
    "prompt_cache_key",
    "reasoning",
    "safety_identifier",
    "service_tier",
    "store",
    "temperature",
    "text",
    "tool_choice",
    "tools",
    "top_logprobs",
    "top_p",
    "truncation",
    "user",
];

impl Frame {
    pub(crate) fn new(id: String, request: &Value) -> Self {
        let mut echo = Map::new();
        for key in ECHOED {
            let given = request.get(*key).filter(|value| !value.is_null()).cloned();
            let value = given.unwrap_or_else(|| default(key));
            echo.insert((*key).to_owned(), value);
        }
        if let Some(conversation) = request.get("conversation").filter(|conversation| !conversation.is_null()) {
            let id = conversation.get("id").unwrap_or(conversation);
            echo.insert("conversation".to_owned(), json!({"id": id}));
        }
        Self { id, echo }
    }

    /// Name of the requested model.
    pub(crate) fn model(&self) -> &Value {
        self.echo.get("model").unwrap_or(&Value::Null)
    }

    /// The object while the response is in progress.
    pub(crate) fn begun(&self) -> Value {
        self.object("in_progress", &[], &Value::Null, Value::Null)
    }

    /// The object after the response has ended.
    pub(crate) fn ended(&self, output: &[Value], usage: &Value, ending: &Ending) -> Value {
        match ending {
            Ending::Completed => self.object("completed", output, usage, Value::Null),
            Ending::Failed { code, message } | Ending::Error { code, message } => {
                self.object("failed", &[], &Value::Null, json!({"code": code, "message": message}))
            }
            Ending::Incomplete { reason } => {
                let mut object = self.object("incomplete", output, usage, Value::Null);
                object["incomplete_details"] = json!({"reason": reason});
                object
            }
        }
    }

    fn object(&self, status: &str, output: &[Value], usage: &Value, error: Value) -> Value {
        let mut object = Map::new();
        let mut put = |key: &str, value: Value| object.insert(key.to_owned(), value);
        put("id", json!(self.id));
        put("object", json!("response"));
        put("created_at", json!(CREATED_AT));
        put("status", json!(status));
        put("error", error);
        put("incomplete_details", Value::Null);
        put("output", Value::Array(output.to_vec()));
        put("usage", usage.clone());
        object.extend(self.echo.clone());
        Value::Object(object)
    }
}

fn default(key: &str) -> Value {
    match key {
        "background" => json!(false),
        "metadata" => json!({}),
        "model" => json!("mock"),
        "parallel_tool_calls" | "store" => json!(true),
        "reasoning" => json!({"effort": null, "summary": null}),
        "service_tier" => json!("default"),
        "temperature" | "top_p" => json!(1.0),
        "text" => json!({"format": {"type": "text"}}),
        "tool_choice" => json!("auto"),
        "tools" => json!([]),
        "top_logprobs" => json!(0),
        "truncation" => json!("disabled"),
        _ => Value::Null,
    }
}
