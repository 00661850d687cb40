//! One item of a run: the raw item, its agent, and its kind.

use serde::{Deserialize, Serialize};

use crate::{Item, ToolOutput};

/// One item of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunItem {
    /// Kind of the item.
    #[serde(rename = "type")]
    pub kind: RunItemKind,
    /// Agent that the item belongs to.
    pub agent: String,
    /// The raw item.
    pub raw: Item,
    /// Output of a tool, before it became text for the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<ToolOutput>,
}

/// Kind of an item of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RunItemKind {
    /// A message of the model.
    Message,
    /// Reasoning of the model.
    Reasoning,
    /// A call of a tool, made by the model or by its server.
    ToolCall,
    /// The output of a tool.
    ToolOutput,
    /// A handoff that the model requested.
    HandoffCall,
    /// The handoff to another agent took place.
    HandoffOutput,
    /// The server's summary of everything before.
    Compaction,
    /// Input that was added while the run was paused.
    Input,
    /// Any other item that the model's server sent.
    Other,
}

impl RunItemKind {
    /// Name of the stream event for this kind, if there is one.
    #[must_use]
    pub fn event_name(self) -> Option<&'static str> {
        match self {
            Self::Message => Some("message_output_created"),
            Self::Reasoning => Some("reasoning_item_created"),
            Self::ToolCall => Some("tool_called"),
            Self::ToolOutput => Some("tool_output"),
            Self::HandoffCall => Some("handoff_requested"),
            Self::HandoffOutput => Some("handoff_occured"),
            Self::Input => Some("input_item"),
            Self::Compaction | Self::Other => None,
        }
    }
}
