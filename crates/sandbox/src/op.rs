//! The names of a session's operations, as they are in errors, audit events and spans.

use std::fmt;

use serde::{Deserialize, Serialize};

/// An operation of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Op {
    /// Create a machine for a session.
    Create,
    /// Attach a session to its existing machine.
    Attach,
    /// Start a session: fill its workspace.
    Start,
    /// Stop a session; its files stay.
    Stop,
    /// Shut down a session's machine.
    Shutdown,
    /// Delete a session's machine and files.
    Delete,
    /// Check whether the machine is running.
    Running,
    /// Run a command until it exits.
    Exec,
    /// Start a command in the process table.
    PtyStart,
    /// Write to a command of the process table, or poll its output.
    PtyStdin,
    /// Terminate a command of the process table.
    PtyTerminate,
    /// Read a file.
    Read,
    /// Write a file.
    Write,
    /// List a directory.
    List,
    /// Read the metadata of a path.
    Stat,
    /// Create a directory.
    MakeDir,
    /// Remove a file or directory.
    Remove,
    /// Unpack an archive.
    Extract,
    /// Read an image for a model.
    ViewImage,
    /// Apply a patch to files.
    ApplyPatch,
    /// Create the files of manifest entries.
    Materialize,
    /// Export the workspace as an archive.
    PersistWorkspace,
    /// Restore the workspace from an archive.
    HydrateWorkspace,
    /// Make a port reachable.
    ResolveExposedPort,
    /// Run a pre-stop hook.
    PreStopHook,
}

impl Op {
    /// Name of the operation in errors, events and spans.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Attach => "attach",
            Self::Start => "start",
            Self::Stop => "stop",
            Self::Shutdown => "shutdown",
            Self::Delete => "delete",
            Self::Running => "running",
            Self::Exec => "exec",
            Self::PtyStart => "pty_start",
            Self::PtyStdin => "pty_stdin",
            Self::PtyTerminate => "pty_terminate",
            Self::Read => "read",
            Self::Write => "write",
            Self::List => "list",
            Self::Stat => "stat",
            Self::MakeDir => "make_dir",
            Self::Remove => "remove",
            Self::Extract => "extract",
            Self::ViewImage => "view_image",
            Self::ApplyPatch => "apply_patch",
            Self::Materialize => "materialize",
            Self::PersistWorkspace => "persist_workspace",
            Self::HydrateWorkspace => "hydrate_workspace",
            Self::ResolveExposedPort => "resolve_exposed_port",
            Self::PreStopHook => "pre_stop_hook",
        }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
