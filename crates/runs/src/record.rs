//! The record of a run: prompt, source directory, status and result.

use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::index::PathBytes;

/// Version of `record.json`.
const VERSION: u32 = 1;

/// Longest prompt or answer in a record.
const TEXT_LIMIT: usize = 256 << 10;

/// The status of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RunStatus {
    /// A process works on the run.
    Running,
    /// The run has a final output.
    Completed,
    /// The run waits for an approval.
    Interrupted,
    /// The limit of turns was reached.
    MaxTurns,
    /// The budget was spent.
    Budget,
    /// The run failed.
    Failed,
    /// The caller cancelled the run.
    Cancelled,
    /// The record says `running`, but the process that worked on it is gone.
    #[serde(rename = "lost", skip_deserializing)]
    Killed,
}

impl RunStatus {
    /// The name of the status in documents.
    pub fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Interrupted => "interrupted",
            Self::MaxTurns => "max_turns",
            Self::Budget => "budget",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Killed => "lost",
        }
    }
}

/// The record of a run, `record.json` in its directory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RunRecord {
    /// Version of the document.
    pub version: u32,
    /// Id of the run.
    pub id: String,
    /// Prompt of the run.
    pub prompt: String,
    /// Start of the run.
    pub created_at: Timestamp,
    /// Status at the last save.
    pub status: RunStatus,
    /// Source directory of the working copy, if there is one.
    #[serde(default)]
    pub source: Option<PathBytes>,
    /// Final output of the agent.
    #[serde(default)]
    pub final_output: Option<String>,
    /// Id of the sandbox session.
    #[serde(default)]
    pub session_id: Option<String>,
    /// Token usage.
    #[serde(default)]
    pub usage: Option<Value>,
}

impl RunRecord {
    /// Time since the run was created.
    pub fn age(&self) -> Duration {
        let created = Duration::from_secs(self.created_at.as_second().max(0).unsigned_abs());
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().saturating_sub(created)
    }

    pub(crate) fn new(id: &str, prompt: &str, created_at: Timestamp) -> Self {
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

    pub(crate) fn check(self, id: &str) -> Result<Self, String> {
        match self {
            Self { version, .. } if version != VERSION => {
                Err(format!("it has version {version}, and only version {VERSION} can be read"))
            }
            Self { id: other, .. } if other != id => Err("it belongs to a run with another id".to_owned()),
            record => Ok(record),
        }
    }

    /// The record without its long texts.
    pub(crate) fn without_texts(mut self) -> Self {
        self.prompt.truncate(self.prompt.floor_char_boundary(1024));
        self.final_output = None;
        self
    }

    /// The record with its texts cut to the limit.
    pub(crate) fn bounded(mut self) -> Self {
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
