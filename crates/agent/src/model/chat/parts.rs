//! Converts message parts (texts, pictures, files) to the format of Chat Completions.

use serde_json::{Map, Value, json};

use super::unsupported;
use crate::ModelError;

/// Content of a message or tool output: one text, or a list of parts.
pub(super) fn content(content: &Value) -> Result<Value, ModelError> {
    let Value::Array(parts) = content else {
        return Ok(if content.is_string() { content.clone() } else { json!(content.to_string()) });
    };
    let parts = parts.iter().map(part).collect::<Result<Vec<Value>, ModelError>>()?;
    if parts.iter().all(is_text) {
        // Simple servers accept only a string.
        return Ok(Value::String(parts.iter().filter_map(|part| part["text"].as_str()).collect()));
    }
    Ok(Value::Array(parts))
}

/// Content, split into the text and all other parts.
pub(super) fn split(content_value: &Value) -> Result<(String, Vec<Value>), ModelError> {
    match content(content_value)? {
        Value::Array(parts) => {
            let (texts, others): (Vec<_>, Vec<_>) = parts.into_iter().partition(is_text);
            Ok((texts.iter().filter_map(|part| part["text"].as_str()).collect(), others))
        }
        Value::String(text) => Ok((text, Vec::new())),
        other => Ok((other.to_string(), Vec::new())),
    }
}

fn is_text(part: &Value) -> bool {
    part["type"] == "text"
}

fn part(part: &Value) -> Result<Value, ModelError> {
    let text = |name: &str| part.get(name).and_then(Value::as_str);
    match text("type").unwrap_or_default() {
        "input_text" | "output_text" | "text" | "summary_text" | "reasoning_text" => {
            Ok(json!({ "type": "text", "text": text("text").unwrap_or_default() }))
        }
        "refusal" => Ok(json!({ "type": "text", "text": text("refusal").unwrap_or_default() })),
        "input_image" => {
            let Some(url) = text("image_url") else { return Err(unsupported("a picture by its file_id")) };
            let mut image = json!({ "url": url });
            if let Some(detail) = text("detail") {
                image["detail"] = json!(detail);
            }
            Ok(json!({ "type": "image_url", "image_url": image }))
        }
        "input_file" => {
            let file: Map<String, Value> = ["file_data", "file_id", "filename"]
                .iter()
                .filter_map(|name| Some(((*name).to_owned(), json!(text(name)?))))
                .collect();
            if !file.contains_key("file_data") && !file.contains_key("file_id") {
                return Err(unsupported("a file by its URL"));
            }
            Ok(json!({ "type": "file", "file": file }))
        }
        other => Err(unsupported(&format!("a part of kind {other:?}"))),
    }
}
