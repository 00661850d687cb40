//! The saved form of a session: enough to find the session again, and no secrets.

use sandbar_machine::{MachineHandle, MachinePath};
use serde::{Deserialize, Serialize};

use crate::{SavedManifest, processes::SavedProcess};

/// The saved form of a session. It contains no secrets, no ephemeral values and no paths of the host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionState {
    /// Version of the format: 1.
    pub version: u32,
    /// Id of the session.
    pub session_id: String,
    /// Name that the user gave to the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Creation time.
    pub created_at: jiff::Timestamp,
    /// Handle of the machine.
    pub machine: MachineHandle,
    /// The manifest, in its saved form.
    pub manifest: SavedManifest,
    /// Path of the workspace on the machine, if it differs from the manifest's root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_root: Option<MachinePath>,
    /// Declared ports.
    #[serde(default)]
    pub exposed_ports: Vec<u16>,
    /// Whether the workspace was filled.
    pub workspace_root_ready: bool,
    /// Whether the session was still being created when it was saved. If its machine is gone, the creating process was
    /// killed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unfinished: bool,
    /// Processes that keep running, if the machine outlives its client.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<SavedProcess>,
}

impl SessionState {
    /// Path of the workspace on the machine.
    #[must_use]
    pub fn workspace(&self) -> &MachinePath {
        self.workspace_root.as_ref().unwrap_or(&self.manifest.manifest.root)
    }
}
