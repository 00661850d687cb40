//! A session as it is saved: enough to find it again, and nothing that must not be written down.

use sandbar_machine::MachineHandle;
use serde::{Deserialize, Serialize};

use crate::{SavedManifest, processes::SavedProcess};

/// A session as it is saved. Secrets, ephemeral values and paths of the host are not in it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionState {
    /// The form of this document, 1.
    pub version: u32,
    /// The session's id.
    pub session_id: String,
    /// The name people gave it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// When it was made.
    pub created_at: jiff::Timestamp,
    /// What finds its machine again.
    pub machine: MachineHandle,
    /// Its manifest, in the form that may be saved.
    pub manifest: SavedManifest,
    /// The ports that were declared.
    #[serde(default)]
    pub exposed_ports: Vec<u16>,
    /// Whether the workspace was filled.
    pub workspace_root_ready: bool,
    /// Whether it was still being made when this was saved. If its machine is gone, whoever made it was killed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unfinished: bool,
    /// The processes that run on, if its machine outlives whoever holds it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<SavedProcess>,
}
