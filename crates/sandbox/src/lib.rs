//! The workspace of an agent: the code between a declared workspace (a manifest) and a live one (a session on a
//! machine). It is the same for every client.
//!
//! A [`Manifest`] declares files, variables and mounts. [`SandboxSession::open`] creates a machine for it with any
//! [`SandboxClient`](sandbar_machine::SandboxClient) and fills its workspace. The session then runs commands, reads and
//! writes files, applies [patches](patch), keeps [processes] running between calls, and reports every operation to an
//! [audit].

pub mod archive;
pub mod audit;
#[cfg(feature = "conformance")]
pub mod conformance;
mod entry;
mod error;
pub mod fetch;
pub mod image;
mod local;
mod manifest;
mod materialise;
mod op;
pub mod patch;
mod paths;
pub mod processes;
mod secret;
mod session;
mod staging;

pub use archive::{ArchiveLimits, Format as ArchiveFormat};
pub use entry::{
    Attributes, AzureBlobMount, BoxMount, Content, Credential, Dir, Entry, File, GcsMount, GitRepo, LocalDir,
    LocalFile, Mount, MountPoint, MountStrategy, MountText, R2Mount, RemoteDir, RemoteFile, S3FilesMount, S3Mount,
    Settings, Shape, Symlinks,
};
pub use error::{ErrorDetails, PathFault, Result, SandboxError};
pub use manifest::{
    Entries, EntryGroup, EnvSource, EnvValue, Environment, Format, Group, Manifest, Outlook, PathGrant, Permissions,
    SavedManifest, Unchecked, User,
};
pub use materialise::{LeftOut, Materialised, Progress, ProgressEvent, Receipt};
pub use op::Op;
pub use paths::{Grant, Intent, Paths, WorkspacePath};
pub use secret::{MaskStream, Secret, SecretMask, SecretStore};
pub use session::{
    DamagedSession, Exec, ExecResult, Extract, Owner, SandboxSession, Scope, SessionHooks, SessionLimits,
    SessionOptions, SessionPatches, SessionPorts, SessionProcesses, SessionState, SessionStore,
};
pub use staging::is_leftover;
