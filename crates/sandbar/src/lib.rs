//! A computer of its own for an AI agent: isolated, rootless, daemon-free.
//!
//! A *client* makes *machines*; a *session* is a live workspace on one, declared by a *manifest*. The local client needs
//! nothing installed and no privileges: its machines have their own namespaces and file tree, no network, no
//! capabilities, and nothing of the caller's environment.
//!
//! ```
//! use std::sync::Arc;
//!
//! use sandbar::{client::UnixLocal, prelude::*};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), SandboxError> {
//! let manifest = Manifest::new().file("note.txt", "milk\n").env("GREETING", "hello");
//! let session = SandboxSession::open(Arc::new(UnixLocal::new()), SessionOptions::new(manifest)).await?;
//!
//! let result = session.exec(Exec::shell("echo $GREETING; cat note.txt")).await?;
//! assert_eq!(result.stdout_text(), "hello\nmilk\n");
//!
//! session.write("note.txt", "bread\n").await?;
//! assert_eq!(session.read("note.txt").await?, "bread\n");
//! session.delete().await
//! # }
//! ```
//!
//! Below a session is a [`Machine`], which runs commands, keeps files and can be stopped:
//!
//! ```
//! use sandbar::{client::UnixLocal, prelude::*};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> sandbar::Result<()> {
//! let machine = UnixLocal::new().create(MachineSpec::default()).await?;
//! let mut process = machine.spawn(Command::new(["sh", "-c", "echo hello from $(pwd)"])).await?;
//! while let Some(output) = process.output.recv().await {
//!     match output? {
//!         Output::Stdout(bytes) => assert_eq!(bytes, "hello from /workspace\n"),
//!         Output::Stderr(_) => {}
//!         Output::Exit(exit) => assert!(exit.success()),
//!     }
//! }
//! machine.stop().await
//! # }
//! ```
//!
//! Code that talks to a machine takes `&dyn Machine` and can be tested without any host at all, with a [`MemoryMachine`].

pub use sandbar_machine::*;
pub use sandbar_sandbox::{
    ArchiveFormat, ArchiveLimits, Attributes, AzureBlobMount, BoxMount, Content, Credential, Dir, Entries, Entry,
    EntryGroup, EnvSource, EnvValue, Environment, Exec, ExecResult, ExposedPort, Extract, File, Format, GcsMount,
    GitRepo, Grant, Group, Intent, LeftOut, LocalDir, LocalFile, Manifest, Materialised, Mount, MountPoint,
    MountStrategy, Op, Owner, PathFault, PathGrant, Paths, Permissions, Progress, ProgressEvent, R2Mount, Receipt,
    RemoteDir, RemoteFile, S3FilesMount, S3Mount, Said, SandboxError, SandboxSession, SavedManifest, Scope, Secret,
    SecretStore, SessionLimits, SessionOptions, SessionState, SessionStore, Settings, Shape, Symlinks, User,
    WorkspacePath, archive, audit, fetch, image, patch, processes,
};

pub mod client {
    //! Where machines come from.

    pub use sandbar_clients::{GuestMachine, UnixLocal};
}

pub mod doctor {
    //! What this host can do for local machines.

    pub use sandbar_clients::doctor::{LevelReport, Report, Setting, probe};
}

pub mod prelude {
    //! What most programs need.

    pub use sandbar_machine::{
        Access, Command, Control, Exit, ExitReason, FileIdentity, HostMount, Isolation, Lifetime, Limits, Machine,
        MachineError, MachinePath, MachineSpec, Network, Output, Process, SandboxClient, Signal, Target, TerminalSize,
        Workspace, collect, once,
    };
    pub use sandbar_sandbox::{
        Dir, EnvValue, Exec, ExecResult, File, GitRepo, LocalDir, LocalFile, Manifest, Mount, PathGrant, RemoteDir,
        RemoteFile, SandboxError, SandboxSession, SecretStore, SessionLimits, SessionOptions, SessionState,
        patch::{PatchOptions, Profile},
    };
}
