//! The body of a request to the Responses API, serialized directly from the request.

use serde::{Serialize, Serializer, ser::SerializeMap};
use serde_json::{Map, Value, json};

use super::{Choice, input::Input};
use crate::{ModelError, ModelRequest, ModelSettings, Reasoning, ToolChoice, ToolKind, ToolSpec};

/// Hosted tools that `tool_choice` names by type.
const HOSTED: &[&str] = &[
    "apply_patch",
    "code_interpreter",
    "computer",
    "computer_use_preview",
    "file_search",
    "image_generation",
    "local_shell",
    "mcp",
    "programmatic_tool_calling",
    "shell",
    "tool_search",
    "web_search",
    "web_search_preview",
];

/// The body of one request.
pub(super) struct Body<'a> {
    model: Option<&'a str>,
    request: &'a ModelRequest,
}

impl<'a> Body<'a> {
    pub(super) fn new(model: &'a str, choice: Choice, request: &'a ModelRequest) -> Result<Self, ModelError> {
        if request.previous_response_id.is_some() && request.conversation_id.is_some() {
            let reason = "a request goes on after a response or in a conversation, not both";
            return Err(ModelError::Unusable(reason.to_owned()));
        }
        let prompt_decides = request.prompt.is_some() && choice == Choice::Usual;
        Ok(Self { model: (!prompt_decides).then_some(model), request })
    }

    pub(super) fn write(&self) -> Result<Vec<u8>, ModelError> {
        serde_json::to_vec(self).map_err(|error| ModelError::Unusable(format!("this cannot be sent: {error}")))
    }
}

impl Serialize for Body<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let request = self.request;
        let settings = &request.settings;
        let extra = &settings.extra_body;
        let uses_tools = !request.tools.is_empty() || request.prompt.is_some();
        let mut fields = Fields { map: serializer.serialize_map(None)?, extra };
        fields.put("model", self.model)?;
        fields.put("instructions", request.instructions.as_ref())?;
        fields.put("input", Some(Input(&request.input)))?;
        fields.put("prompt", request.prompt.as_ref())?;
        fields.put("previous_response_id", request.previous_response_id.as_ref())?;
        fields.put("conversation", request.conversation_id.as_ref())?;
        fields.put("tools", wire_tools(&request.tools))?;
        fields.put(
            "tool_choice",
            settings.tool_choice.as_ref().filter(|_| uses_tools).map(|choice| chosen(choice, &request.tools)),
        )?;
        fields.put("parallel_tool_calls", settings.parallel_tool_calls.filter(|_| uses_tools))?;
        fields.put("reasoning", settings.reasoning.as_ref().filter(|reasoning| **reasoning != Reasoning::default()))?;
        fields.put("text", text(request))?;
        fields.put("temperature", settings.temperature)?;
        fields.put("top_p", settings.top_p)?;
        fields.put("max_output_tokens", settings.max_tokens)?;
        fields.put("truncation", settings.truncation.as_ref())?;
        fields.put("metadata", settings.metadata.as_ref())?;
        fields.put("store", settings.store)?;
        fields.put("include", include(settings))?;
        fields.put("top_logprobs", settings.top_logprobs)?;
        fields.put("prompt_cache_retention", settings.prompt_cache_retention.as_ref())?;
        fields.finish(context_management(settings))
    }
}

/// Writes the fields that are set, unless the caller's extra fields override them.
struct Fields<'a, M> {
    map: M,
    extra: &'a Map<String, Value>,
}

impl<M: SerializeMap> Fields<'_, M> {
    fn put(&mut self, name: &str, value: Option<impl Serialize>) -> Result<(), M::Error> {
        match value {
            Some(value) if !self.extra.contains_key(name) => self.map.serialize_entry(name, &value),
            _ => Ok(()),
        }
    }

    /// Adds the caller's extra fields; null removes a field. `stream` is always true.
    fn finish(mut self, context: Option<Value>) -> Result<M::Ok, M::Error> {
        if let Some(context) = context {
            self.map.serialize_entry("context_management", &context)?;
        }
        for (name, value) in self.extra {
            if !value.is_null() && name != "stream" && name != "context_management" {
                self.map.serialize_entry(name, value)?;
            }
        }
        self.map.serialize_entry("stream", &true)?;
        self.map.end()
    }
}

fn wire_tools(tools: &[ToolSpec]) -> Option<Vec<Value>> {
    (!tools.is_empty()).then(|| tools.iter().map(ToolSpec::wire).collect())
}

fn chosen(choice: &ToolChoice, tools: &[ToolSpec]) -> Value {
    let name = match choice {
        ToolChoice::Auto => return json!("auto"),
        ToolChoice::Required => return json!("required"),
        ToolChoice::None => return json!("none"),
        ToolChoice::Mcp { server_label, name } => {
            return json!({ "type": "mcp", "server_label": server_label, "name": name });
        }
        ToolChoice::Named(name) => name,
    };
    let ours = tools.iter().find(|tool| tool.name == *name).map(|tool| &tool.kind);
    match ours {
        Some(ToolKind::Function { .. }) => json!({ "type": "function", "name": name }),
        Some(ToolKind::Custom { .. }) => json!({ "type": "custom", "name": name }),
        Some(ToolKind::Hosted(fields) | ToolKind::BuiltIn(fields)) => {
            json!({ "type": fields.get("type").cloned().unwrap_or_else(|| json!(name)) })
        }
        None if HOSTED.contains(&name.as_str()) => json!({ "type": name }),
        // A prompt stored on the server may define tools that are unknown here.
        None => json!({ "type": "function", "name": name }),
    }
}

fn text(request: &ModelRequest) -> Option<Value> {
    let mut text = Map::new();
    if let Some(format) = &request.output {
        let format =
            json!({ "type": "json_schema", "name": format.name, "schema": format.schema, "strict": format.strict });
        text.insert("format".to_owned(), format);
    }
    if let Some(verbosity) = &request.settings.verbosity {
        text.insert("verbosity".to_owned(), json!(verbosity));
    }
    (!text.is_empty()).then_some(Value::Object(text))
}

fn include(settings: &ModelSettings) -> Option<Vec<&str>> {
    let mut include: Vec<&str> = Vec::new();
    let logprobs = settings.top_logprobs.map(|_| "message.output_text.logprobs");
    for name in settings.include.iter().map(String::as_str).chain(logprobs) {
        if !include.contains(&name) {
            include.push(name);
        }
    }
    (!include.is_empty()).then_some(include)
}

/// The entries of the settings and of the caller's extra fields: one per type, the caller's first.
fn context_management(settings: &ModelSettings) -> Option<Value> {
    const NAME: &str = "context_management";
    let (ours, theirs) = (settings.context_management.as_ref(), settings.extra_body.get(NAME));
    let (ours, theirs) = match (ours.and_then(Value::as_array), theirs) {
        (_, Some(Value::Null)) => return None,
        (None, None) => return ours.cloned(),
        (Some(ours), Some(Value::Array(theirs))) => (ours, theirs),
        (_, Some(theirs)) => return Some(theirs.clone()),
        (Some(ours), None) => return Some(Value::Array(ours.clone())),
    };
    let kind = |entry: &Value| entry.get("type").cloned();
    let mut all = theirs.clone();
    all.extend(ours.iter().filter(|entry| theirs.iter().all(|other| kind(other) != kind(entry))).cloned());
    Some(Value::Array(all))
}

#[cfg(test)]
mod tests;
