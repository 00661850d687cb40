//! The tools: names, descriptions, schemas and annotations.

use std::sync::Arc;

use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use sandbar::{
    Network,
    sandbox::{
        image::ViewImageArgs,
        processes::{ExecCommandArgs, WriteStdinArgs},
    },
};
use serde_json::{Value, json};

use super::files::{DEPTH, LINES};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ToolName {
    ExecCommand,
    WriteStdin,
    ApplyPatch,
    ViewImage,
    ReadFile,
    WriteFile,
    ListDirectory,
}

impl ToolName {
    pub(crate) const ALL: [Self; 7] = [
        Self::ExecCommand,
        Self::WriteStdin,
        Self::ApplyPatch,
        Self::ViewImage,
        Self::ReadFile,
        Self::WriteFile,
        Self::ListDirectory,
    ];

    pub(crate) fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tool| tool.name() == name)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::ExecCommand => "exec_command",
            Self::WriteStdin => "write_stdin",
            Self::ApplyPatch => "apply_patch",
            Self::ViewImage => "view_image",
            Self::ReadFile => "read_file",
            Self::WriteFile => "write_file",
            Self::ListDirectory => "list_directory",
        }
    }

    fn description(self) -> &'static str {
        match self {
            Self::ExecCommand => {
                "Runs a shell command in the sandbox and returns its output, or a session_id for write_stdin if it is \
                 still running after yield_time_ms."
            }
            Self::WriteStdin => {
                "Types chars to a command that exec_command left running (started with tty=true), or, without chars, \
                 waits for more of its output."
            }
            Self::ApplyPatch => {
                "Creates, changes, renames and deletes files, all or nothing, by a patch that begins with \
                 `*** Begin Patch`, has `*** Add File: PATH`, `*** Update File: PATH` (with `@@` hunks of ` `, `-` and `+` \
                 lines) or `*** Delete File: PATH` sections, and ends with `*** End Patch`."
            }
            Self::ViewImage => "Shows an image file of the workspace, at most 10 MB.",
            Self::ReadFile => {
                "Reads a text file, from line offset (the first is 1) for at most limit lines, and says where to go on if \
                 there is more."
            }
            Self::WriteFile => "Writes a text file, and the directories above it, in place of what was there.",
            Self::ListDirectory => {
                "Lists a directory, and what is below it down to depth levels, one path a line with the sizes of files."
            }
        }
    }

    fn schema(self) -> Value {
        match self {
            Self::ExecCommand => ExecCommandArgs::schema(),
            Self::WriteStdin => WriteStdinArgs::schema(),
            Self::ViewImage => ViewImageArgs::schema(),
            // Written inline, because not every client resolves references.
            Self::ApplyPatch => json!({"type": "object", "additionalProperties": true, "properties": {
                "patch": {"type": "string", "description": "The whole patch."},
                "input": {"type": "string", "description": "The same, by its other name."},
                "operation": operation(),
                "operations": {"type": "array", "items": operation()},
                "command": {"type": "array", "items": {"type": "string"}, "description": "[\"apply_patch\", patch]"},
            }}),
            Self::ReadFile => {
                json!({"type": "object", "required": ["path"], "additionalProperties": false, "properties": {
                    "path": {"type": "string", "minLength": 1},
                    "offset": {"type": "integer", "minimum": 1, "default": 1},
                    "limit": {"type": "integer", "minimum": 1, "default": LINES},
                }})
            }
            Self::WriteFile => json!({"type": "object", "required": ["path", "content"], "additionalProperties": false,
                "properties": {"path": {"type": "string", "minLength": 1}, "content": {"type": "string"}}}),
            Self::ListDirectory => json!({"type": "object", "additionalProperties": false, "properties": {
                "path": {"type": "string", "default": "."},
                "depth": {"type": "integer", "minimum": 1, "maximum": DEPTH, "default": 1},
            }}),
        }
    }

    /// Properties of the tool that do not depend on the call.
    fn annotations(self, network: &Network) -> ToolAnnotations {
        let hints = ToolAnnotations::new();
        match self {
            Self::ViewImage | Self::ReadFile | Self::ListDirectory => hints.read_only(true).open_world(false),
            Self::WriteFile => hints.read_only(false).destructive(true).idempotent(true).open_world(false),
            Self::ApplyPatch => hints.read_only(false).destructive(true).idempotent(false).open_world(false),
            Self::ExecCommand | Self::WriteStdin => {
                let open = matches!(network, Network::Host);
                hints.read_only(false).destructive(true).idempotent(false).open_world(open)
            }
        }
    }
}

/// Schema of one operation of a patch.
fn operation() -> Value {
    json!({"type": "object", "required": ["type", "path"], "properties": {
        "type": {"type": "string", "enum": ["create_file", "update_file", "delete_file"]},
        "path": {"type": "string", "minLength": 1},
        "diff": {"type": "string"},
        "move_to": {"type": "string"},
    }})
}

/// All tools as listed to clients.
pub(crate) fn all(network: &Network) -> Vec<Tool> {
    let tool = |tool: ToolName| {
        let schema: JsonObject = match tool.schema() {
            Value::Object(schema) => schema,
            _ => JsonObject::new(),
        };
        Tool::new(tool.name(), tool.description(), Arc::new(schema)).annotate(tool.annotations(network))
    };
    ToolName::ALL.map(tool).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tool_has_a_name_and_takes_an_object() {
        for tool in all(&Network::Off) {
            assert_eq!(ToolName::parse(&tool.name).map(ToolName::name), Some(&*tool.name));
            assert_eq!(tool.input_schema["type"], "object", "{}", tool.name);
            let description = tool.description.expect("a description");
            assert!(description.ends_with('.') && description.len() < 400, "{description}");
        }
        assert_eq!(ToolName::parse("shell"), None);
    }
}
