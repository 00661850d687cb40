//! One thing that happened in a run: an item, whose it is, and what it means here.

use serde::{Deserialize, Serialize};

use crate::{Item, ToolOutput};

/// One thing that happened in a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunItem {
    /// What it means.
    #[serde(rename = "type")]
    pub kind: RunItemKind,
    /// The agent it belongs to.
    pub agent: String,
    /// The item itself.
    pub raw: Item,
    /// What a tool answered, before it became text for the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<ToolOutput>,
}

/// What an item of a run means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RunItemKind {
    /// The model says something.
    Message,
    /// The model thinks.
    Reasoning,
    /// The model calls a tool, or its server did.
    ToolCall,
    /// A tool answers.
    ToolOutput,
    /// The model hands over.
    HandoffCall,
    /// Another agent has taken over.
    HandoffOutput,
    /// The server has put what came before in here.
    Compaction,
    /// Something was said while the run waited.
    Input,
    /// Anything else the model's server sent.
    Other,
}

impl RunItemKind {
    /// The name of the stream event that announces it, if one does.
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
