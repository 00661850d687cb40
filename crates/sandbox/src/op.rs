//! The names of everything a session can be asked to do, as errors, audit events and spans spell them.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What was being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Op {
    /// A machine is made for a session.
    Create,
    /// A session finds its machine again.
    Attach,
    /// A session begins: its workspace is filled.
    Start,
    /// A session ends its work; its files stay.
    Stop,
    /// A session's machine is ended.
    Shutdown,
    /// A session's machine and files are removed.
    Delete,
    /// Whether the machine still lives.
    Running,
    /// A command is run to its end.
    Exec,
    /// A command is started in the process table.
    PtyStart,
    /// Something is typed to a command of the process table, or it is asked for news.
    PtyStdin,
    /// A command of the process table is ended.
    PtyTerminate,
    /// A file is read.
    Read,
    /// A file is written.
    Write,
    /// A directory is listed.
    List,
    /// A path is looked at.
    Stat,
    /// A directory is made.
    MakeDir,
    /// Something is removed.
    Remove,
    /// An archive is unpacked.
    Extract,
    /// An image is read for a model.
    ViewImage,
    /// Files are changed by a patch.
    ApplyPatch,
    /// Manifest entries become files.
    Materialize,
    /// The workspace leaves as one archive.
    PersistWorkspace,
    /// The workspace comes back from one archive.
    HydrateWorkspace,
    /// A port is made reachable.
    ResolveExposedPort,
    /// A snapshot is saved.
    SnapshotPersist,
    /// A snapshot is brought back.
    SnapshotRestore,
    /// A pre-stop hook runs.
    PreStopHook,
}

impl Op {
    /// Its name in errors, events and spans.
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
            Self::SnapshotPersist => "snapshot_persist",
            Self::SnapshotRestore => "snapshot_restore",
            Self::PreStopHook => "pre_stop_hook",
        }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
