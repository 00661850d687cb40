//! What is written down about a run: who asked for what, on which directory, and how it ended.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::index::Name;
use crate::render::Style;

/// The version of the document.
const VERSION: u32 = 1;

/// As much of a prompt or an answer as is kept.
const TEXT_LIMIT: usize = 256 << 10;

/// How a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RunStatus {
    /// Somebody is at it, or was killed at it.
    Running,
    Completed,
    /// It waits for an approval.
    Interrupted,
    MaxTurns,
    Budget,
    Failed,
    Cancelled,
    /// It says that it runs, but nobody is at it.
    #[serde(skip)]
    Lost,
}

impl RunStatus {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Interrupted => "interrupted",
            Self::MaxTurns => "max_turns",
            Self::Budget => "budget",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Lost => "lost",
        }
    }

    pub(crate) fn style(self) -> Style {
        match self {
            Self::Completed => Style::Good,
            Self::Running => Style::Strong,
            Self::Interrupted | Self::MaxTurns | Self::Budget | Self::Lost => Style::Doubtful,
            Self::Cancelled => Style::Faint,
            Self::Failed => Style::Bad,
        }
    }
}

/// The record of a run, `record.json` in its directory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct RunRecord {
    pub(crate) version: u32,
    pub(crate) id: String,
    pub(crate) prompt: String,
    pub(crate) created_at: Timestamp,
    pub(crate) status: RunStatus,
    /// The directory that the working copy was made of, if there is one.
    #[serde(default)]
    pub(crate) source: Option<Name>,
    #[serde(default)]
    pub(crate) final_output: Option<String>,
    #[serde(default)]
    pub(crate) session_id: Option<String>,
    /// What the models used, in their own words.
    #[serde(default)]
    pub(crate) usage: Option<Value>,
}

impl RunRecord {
    pub(super) fn new(id: &str, prompt: &str, created_at: Timestamp) -> Self {
        Self {
            version: VERSION,
            id: id.to_owned(),
            prompt: prompt.to_owned(),
            created_at,
            status: RunStatus::Running,
            source: None,
            final_output: None,
            session_id: None,
            usage: None,
        }
    }

    pub(super) fn check(self, id: &str) -> Result<Self, String> {
        match self {
            Self { version, .. } if version != VERSION => {
                Err(format!("it is of version {version}, and only {VERSION} can be read"))
            }
            Self { id: other, .. } if other != id => Err("it holds a run with another id".to_owned()),
            record => Ok(record),
        }
    }

    /// The same without what can be large.
    pub(super) fn without_texts(mut self) -> Self {
        self.prompt.truncate(self.prompt.floor_char_boundary(1024));
        self.final_output = None;
        self
    }

    /// The same with texts of a size that is kept.
    pub(super) fn bounded(mut self) -> Self {
        cut(&mut self.prompt);
        if let Some(text) = &mut self.final_output {
            cut(text);
        }
        self
    }
}

fn cut(text: &mut String) {
    if text.len() > TEXT_LIMIT {
        text.truncate(text.floor_char_boundary(TEXT_LIMIT));
        text.push('…');
    }
}
