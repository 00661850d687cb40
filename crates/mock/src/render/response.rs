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

/// Fields of a request that the response repeats, with the values that they have if the request does not set them.
fn echoed() -> Value {
    json!({
        "background": false,
        "instructions": null,
        "max_output_tokens": null,
        "max_tool_calls": null,
        "metadata": {},
        "model": "mock",
        "parallel_tool_calls": true,
        "previous_response_id": null,
        "prompt_cache_key": null,
        "reasoning": {"effort": null, "summary": null},
        "safety_identifier": null,
        "service_tier": "default",
        "store": true,
        "temperature": 1.0,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_logprobs": 0,
        "top_p": 1.0,
        "truncation": "disabled",
        "user": null,
    })
}

impl Frame {
    pub(crate) fn new(id: String, request: &Value) -> Self {
        let mut echo = match echoed() {
            Value::Object(echo) => echo,
            _ => Map::new(),
        };
        for (key, value) in &mut echo {
            if let Some(given) = request.get(key).filter(|given| !given.is_null()) {
                *value = given.clone();
            }
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
        let mut object = json!({
            "id": self.id,
            "object": "response",
            "created_at": CREATED_AT,
            "status": status,
            "error": error,
            "incomplete_details": null,
            "output": output,
            "usage": usage,
        });
        if let Value::Object(fields) = &mut object {
            fields.extend(self.echo.clone());
        }
        object
    }
}
