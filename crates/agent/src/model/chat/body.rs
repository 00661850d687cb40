//! The body of a request to the Chat Completions API.

use serde_json::{Map, Value, json};

use super::{messages, unsupported};
use crate::{Grammar, ModelError, ModelRequest, ToolChoice, ToolKind, ToolSpec};

pub(super) fn write(model: &str, request: &ModelRequest) -> Result<Vec<u8>, ModelError> {
    let body = body(model, request)?;
    serde_json::to_vec(&body).map_err(|error| ModelError::Unusable(format!("this cannot be sent: {error}")))
}

fn body(model: &str, request: &ModelRequest) -> Result<Map<String, Value>, ModelError> {
    for (wanted, what) in [
        (request.prompt.is_some(), "a prompt kept on the server"),
        (request.previous_response_id.is_some(), "previous_response_id"),
        (request.conversation_id.is_some(), "a conversation kept on the server"),
    ] {
        if wanted {
            return Err(unsupported(what));
        }
    }
    let settings = &request.settings;
    let tools = request.tools.iter().map(function).collect::<Result<Vec<Value>, ModelError>>()?;
    let with_tools = !tools.is_empty();
    let choice = settings.tool_choice.as_ref().filter(|_| with_tools).map(chosen).transpose()?;
    let effort = settings.reasoning.as_ref().and_then(|reasoning| reasoning.effort.as_ref());
    let mut body = Map::new();
    for (name, value) in [
        ("model", json!(model)),
        ("messages", Value::Array(messages::messages(request)?)),
        ("tools", if with_tools { Value::Array(tools) } else { Value::Null }),
        ("tool_choice", json!(choice)),
        ("parallel_tool_calls", json!(settings.parallel_tool_calls.filter(|_| with_tools))),
        ("response_format", response_format(request)),
        ("temperature", json!(settings.temperature)),
        ("top_p", json!(settings.top_p)),
        ("frequency_penalty", json!(settings.frequency_penalty)),
        ("presence_penalty", json!(settings.presence_penalty)),
        ("max_tokens", json!(settings.max_tokens)),
        ("reasoning_effort", json!(effort)),
        ("verbosity", json!(settings.verbosity)),
        ("metadata", json!(settings.metadata)),
        ("store", json!(settings.store)),
        ("logprobs", json!(settings.top_logprobs.map(|_| true))),
        ("top_logprobs", json!(settings.top_logprobs)),
        ("stream_options", json!({ "include_usage": true })),
    ] {
        if !value.is_null() {
            body.insert(name.to_owned(), value);
        }
    }
    for (name, value) in &settings.extra_body {
        if value.is_null() {
            body.shift_remove(name);
        } else {
            body.insert(name.clone(), value.clone());
        }
    }
    body.insert("stream".to_owned(), json!(true));
    Ok(body)
}

fn response_format(request: &ModelRequest) -> Value {
    request.output.as_ref().map_or(Value::Null, |format| {
        let schema = json!({ "name": format.name, "schema": format.schema, "strict": format.strict });
        json!({ "type": "json_schema", "json_schema": schema })
    })
}

fn function(tool: &ToolSpec) -> Result<Value, ModelError> {
    let ToolSpec { name, description, kind } = tool;
    let function = match kind {
        ToolKind::Function { parameters, strict } => {
            json!({ "name": name, "description": description, "parameters": parameters, "strict": strict })
        }
        ToolKind::Custom { grammar } => json!({
            "name": name,
            "description": description,
            "parameters": {
                "type": "object",
                "properties": { "input": { "type": "string", "description": input_description(grammar.as_ref()) } },
                "required": ["input"],
                "additionalProperties": false,
            },
        }),
        ToolKind::Hosted(fields) | ToolKind::BuiltIn(fields) => {
            let kind = fields.get("type").and_then(Value::as_str).unwrap_or(name);
            return Err(unsupported(&format!("the hosted tool {kind}")));
        }
    };
    Ok(json!({ "type": "function", "function": function }))
}

/// No server of this API enforces a grammar, so the description contains it.
fn input_description(grammar: Option<&Grammar>) -> String {
    match grammar {
        None => "The text the tool gets.".to_owned(),
        Some(Grammar { syntax, definition }) => {
            format!("The text the tool gets. It must match this {syntax} grammar:\n{definition}")
        }
    }
}

fn chosen(choice: &ToolChoice) -> Result<Value, ModelError> {
    Ok(match choice {
        ToolChoice::Auto => json!("auto"),
        ToolChoice::Required => json!("required"),
        ToolChoice::None => json!("none"),
        ToolChoice::Named(name) => json!({ "type": "function", "function": { "name": name } }),
        ToolChoice::Mcp { .. } => return Err(unsupported("the choice of a tool of a hosted MCP server")),
    })
}

#[cfg(test)]
mod tests;
