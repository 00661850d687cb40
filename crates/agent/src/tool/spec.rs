//! What a model sees of a tool, and how that looks on the wire.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::schema;

/// What a model sees of a tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// What it is called.
    pub name: String,
    /// What it is good for.
    pub description: String,
    /// How it is called.
    pub kind: ToolKind,
}

/// How a tool is called.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolKind {
    /// With a JSON object.
    Function {
        /// The object's JSON schema.
        parameters: Value,
        /// Whether the server must hold the model to it.
        strict: bool,
    },
    /// With text.
    Custom {
        /// What the text must look like; anything if there is none.
        grammar: Option<Grammar>,
    },
    /// By the model's server itself: the object is sent as it is.
    Hosted(Map<String, Value>),
    /// As models were taught it: the object is sent as it is, a call is an item of the kind `NAME_call`, and is answered here
    /// by a `NAME_call_output`. The arguments are the item's own fields, as JSON.
    BuiltIn(Map<String, Value>),
}

/// Of a hosted tool only the names of its fields, since their values may hold the key to some other server.
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

/// What the text for a freeform tool must look like.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grammar {
    /// `lark` or `regex`.
    pub syntax: String,
    /// The grammar itself.
    pub definition: String,
}

impl ToolSpec {
    /// A function.
    pub fn function(name: impl Into<String>, description: impl Into<String>, parameters: Value) -> Self {
        let kind = ToolKind::Function { parameters, strict: true };
        Self { name: name.into(), description: description.into(), kind }
    }

    /// A function whose arguments are of a type; strict where the type allows it.
    pub(crate) fn parameters_of<T: schemars::JsonSchema>() -> ToolKind {
        let bare = schema::schema_of::<T>();
        match schema::strict(&bare) {
            Ok(parameters) => ToolKind::Function { parameters, strict: true },
            Err(_) => ToolKind::Function { parameters: bare, strict: false },
        }
    }

    /// As the Responses API wants it.
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
