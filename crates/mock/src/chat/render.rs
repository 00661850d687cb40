//! A turn as a chat completion: one object, or chunks.

use serde_json::{Value, json};

use crate::{
    play::Ready,
    refusal::envelope,
    render::{
        Ending, Rendered, Writer, pieces,
        response::{CREATED_AT, Frame},
    },
};

/// Whether a stream ends with a chunk that contains the usage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum UsageChunk {
    Sent,
    Left,
}

/// Content of a turn in the structure of a chat message.
struct TurnContent {
    text: Option<String>,
    refusal: Option<String>,
    reasoning: Option<String>,
    calls: Vec<Value>,
}

impl TurnContent {
    fn new(output: &[Value]) -> Self {
        let of_kind = |kind: &'static str| output.iter().filter(move |item| item["type"] == kind);
        let parts = |kind: &'static str, key: &'static str| {
            let texts: Vec<String> = of_kind("message")
                .map(|message| message["content"].as_array().map(Vec::as_slice).unwrap_or_default())
                .map(|parts| {
                    parts.iter().filter(|part| part["type"] == kind).filter_map(|part| part[key].as_str()).collect()
                })
                .filter(|text: &String| !text.is_empty())
                .collect();
            (!texts.is_empty()).then(|| texts.join("\n"))
        };
        let reasoning: Vec<&str> = of_kind("reasoning")
            .flat_map(|item| item["summary"].as_array().into_iter().flatten())
            .filter_map(|part| part["text"].as_str())
            .collect();
        Self {
            text: parts("output_text", "text"),
            refusal: parts("refusal", "refusal"),
            reasoning: (!reasoning.is_empty()).then(|| reasoning.join("\n")),
            calls: output.iter().filter_map(call).collect(),
        }
    }

    fn finish_reason(&self, ending: &Ending) -> &'static str {
        match ending {
            Ending::Incomplete { reason } if reason == "content_filter" => "content_filter",
            Ending::Incomplete { .. } => "length",
            _ if self.calls.is_empty() => "stop",
            _ => "tool_calls",
        }
    }
}

fn call(item: &Value) -> Option<Value> {
    match item["type"].as_str()? {
        "function_call" => Some(json!({"id": item["call_id"], "type": "function",
            "function": {"name": item["name"], "arguments": item["arguments"]}})),
        "custom_tool_call" => Some(json!({"id": item["call_id"], "type": "custom",
            "custom": {"name": item["name"], "input": item["input"]}})),
        _ => None,
    }
}

fn usage(usage: &Value) -> Value {
    if usage.is_null() {
        return Value::Null;
    }
    json!({
        "prompt_tokens": usage["input_tokens"],
        "completion_tokens": usage["output_tokens"],
        "total_tokens": usage["total_tokens"],
        "prompt_tokens_details": {"cached_tokens": usage["input_tokens_details"]["cached_tokens"], "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": usage["output_tokens_details"]["reasoning_tokens"]},
    })
}

/// The completion as one object, or its error.
pub(crate) fn whole(frame: &Frame, turn: &Ready, ending: &Ending) -> Value {
    if let Ending::Failed { code, message } | Ending::Error { code, message } = ending {
        return envelope(message, "server_error", None, Some(code));
    }
    let said = TurnContent::new(&turn.output);
    let mut message = json!({"role": "assistant", "content": said.text, "refusal": said.refusal});
    if let Some(reasoning) = &said.reasoning {
        message["reasoning_content"] = json!(reasoning);
    }
    if !said.calls.is_empty() {
        message["tool_calls"] = json!(said.calls);
    }
    let choice = json!({"index": 0, "message": message, "logprobs": null, "finish_reason": said.finish_reason(ending)});
    json!({
        "id": frame.id, "object": "chat.completion", "created": CREATED_AT, "model": frame.model(),
        "choices": [choice], "usage": usage(&turn.usage),
    })
}

/// The completion as chunks.
pub(crate) fn chunks(frame: &Frame, turn: &Ready, ending: &Ending, last: UsageChunk, delta_chars: usize) -> Rendered {
    let mut writer = Writer::default();
    let mut chunk = |choices: Value, extra: Option<Value>| {
        let mut chunk = json!({"id": frame.id, "object": "chat.completion.chunk", "created": CREATED_AT,
            "model": frame.model(), "choices": choices});
        if last == UsageChunk::Sent {
            chunk["usage"] = extra.unwrap_or_default();
        }
        writer.event(None, &chunk.to_string());
    };
    let choice = |delta: Value, reason: Option<&str>| json!([{"index": 0, "delta": delta, "logprobs": null, "finish_reason": reason}]);
    chunk(choice(json!({"role": "assistant", "content": "", "refusal": null}), None), None);
    if let Ending::Failed { code, message } | Ending::Error { code, message } = ending {
        writer.event(None, &envelope(message, "server_error", None, Some(code)).to_string());
        return writer.end();
    }
    let said = TurnContent::new(&turn.output);
    let texts = [("reasoning_content", &said.reasoning), ("content", &said.text), ("refusal", &said.refusal)];
    for (key, text) in texts {
        for piece in pieces(text.as_deref().unwrap_or_default(), delta_chars) {
            let mut delta = json!({});
            delta[key] = json!(piece);
            chunk(choice(delta, None), None);
        }
    }
    for (number, call) in said.calls.iter().enumerate() {
        let (kind, key) = if call["type"] == "custom" { ("custom", "input") } else { ("function", "arguments") };
        let mut begun = call.clone();
        begun["index"] = json!(number);
        begun[kind][key] = json!("");
        chunk(choice(json!({"tool_calls": [begun]}), None), None);
        for piece in pieces(call[kind][key].as_str().unwrap_or_default(), delta_chars) {
            let mut more = json!({"index": number});
            more[kind] = json!({});
            more[kind][key] = json!(piece);
            chunk(choice(json!({"tool_calls": [more]}), None), None);
        }
    }
    chunk(choice(json!({}), Some(said.finish_reason(ending))), None);
    if last == UsageChunk::Sent {
        chunk(json!([]), Some(usage(&turn.usage)));
    }
    writer.event(None, "[DONE]");
    writer.end()
}
