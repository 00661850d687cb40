//! Specification of a tool for the model, and its JSON in requests.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::schema;

/// Specification of a tool for the model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// Name of the tool.
    pub name: String,
    /// Description of the tool.
    pub description: String,
    /// Kind of the tool.
    pub kind: ToolKind,
}

/// Kind of a tool: how the model calls it.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolKind {
    /// The arguments are a JSON object.
    Function {
        /// JSON schema of the arguments.
        parameters: Value,
        /// Whether the server enforces the schema.
        strict: bool,
    },
    /// The input is text.
    Custom {
        /// Grammar of the text; `None` allows any text.
        grammar: Option<Grammar>,
    },
    /// The model's server calls the tool itself. The object is sent unchanged.
    Hosted(Map<String, Value>),
    /// A tool that is built into the API, with a call that this program answers. The object is sent unchanged; a call is an
    /// item of the kind `NAME_call`, its output one of the kind `NAME_call_output`. The arguments are the fields of the
    /// call, as JSON.
    BuiltIn(Map<String, Value>),
}

/// Prints only the names of the fields of a hosted tool, because their values may contain keys of other servers.
impl fmt::Debug for ToolKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Function { parameters, strict } => {
                f.debug_struct("Function").field("parameters", parameters).field("strict", strict).finish()
            }
            Self::Custom { grammar } => f.debug_struct("Custom").field("grammar", grammar).finish(),
            Self::Hosted(fields) | Self::BuiltIn(fields) => {
                let name = if matches!(self, Self::Hosted(_)) { "Hosted" } else { "BuiltIn" };
                let kind = fields.get("type").and_then(Value::as_str).unwrap_or_default();
                f.debug_struct(name).field("type", &kind).field("fields", &Vec::from_iter(fields.keys())).finish()
            }
        }
    }
}

/// Grammar of the text for a freeform tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grammar {
    /// Language of the grammar: `lark` or `regex`.
    pub syntax: String,
    /// Definition in that language.
    pub definition: String,
}

impl ToolSpec {
    /// Specification of a function with this schema.
    pub fn function(name: impl Into<String>, description: impl Into<String>, parameters: Value) -> Self {
        let kind = ToolKind::Function { parameters, strict: true };
        Self { name: name.into(), description: description.into(), kind }
    }

    /// Kind of a function with arguments of this type; strict if the type has a strict form.
    pub(crate) fn parameters_of<T: schemars::JsonSchema>() -> ToolKind {
        let bare = schema::schema_of::<T>();
        match schema::strict(&bare) {
            Ok(parameters) => ToolKind::Function { parameters, strict: true },
            Err(_) => ToolKind::Function { parameters: bare, strict: false },
        }
    }

    /// JSON of the tool in the format of the Responses API.
    #[must_use]
    pub fn wire(&self) -> Value {
        let Self { name, description, kind } = self;
        match kind {
            ToolKind::Function { parameters, strict } => json!({
                "type": "function", "name": name, "description": description, "parameters": parameters, "strict": strict,
            }),
            ToolKind::Custom { grammar: None } => {
                json!({ "type": "custom", "name": name, "description": description, "format": { "type": "text" } })
            }
            ToolKind::Custom { grammar: Some(Grammar { syntax, definition }) } => json!({
                "type": "custom", "name": name, "description": description,
                "format": { "type": "grammar", "syntax": syntax, "definition": definition },
            }),
            ToolKind::Hosted(fields) | ToolKind::BuiltIn(fields) => Value::Object(fields.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_hosted_tool_only_its_type_and_the_names_of_its_fields_are_printed() {
        let fields = json!({ "type": "mcp", "headers": { "x": "hunter2" }, "authorization": "hunter2" });
        for (kind, printed) in [
            (
                ToolKind::Hosted(serde_json::from_value(fields).unwrap()),
                r#"Hosted { type: "mcp", fields: ["type", "headers", "authorization"] }"#,
            ),
            (ToolKind::Hosted(Map::new()), r#"Hosted { type: "", fields: [] }"#),
            (ToolKind::Custom { grammar: None }, "Custom { grammar: None }"),
            (
                ToolKind::Function { parameters: json!({ "type": "object" }), strict: true },
                r#"Function { parameters: Object {"type": String("object")}, strict: true }"#,
            ),
        ] {
            assert_eq!(format!("{kind:?}"), printed);
        }
    }
}
