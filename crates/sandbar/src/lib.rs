//! A computer of its own for an AI agent: isolated, rootless, daemon-free.
//!
//! A *client* makes *machines*; a [`Machine`] runs commands, keeps files and can be stopped. The local client needs
//! nothing installed and no privileges: its machines have their own namespaces and file tree, no network, no
//! capabilities, and nothing of the caller's environment.
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
//! Code that talks to a machine takes `&dyn Machine` and can be tested without any host at all:
//!
//! ```
//! use sandbar::{MemoryMachine, collect, once, prelude::*};
//!
//! async fn remember(machine: &dyn Machine, note: &'static str) -> sandbar::Result<()> {
//!     let target = Target::from(MachinePath::new("/workspace/note.txt")?);
//!     machine.write(&target, once(note)).await
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> sandbar::Result<()> {
//! let machine = MemoryMachine::new();
//! remember(&machine, "milk").await?;
//! let note = Target::from(MachinePath::new("/workspace/note.txt")?);
//! assert_eq!(collect(machine.read(&note).await?, 1024).await?, "milk");
//! # Ok(())
//! # }
//! ```

pub use sandbar_machine::*;

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
        Access, Command, Control, Exit, ExitReason, HostMount, Isolation, Limits, Machine, MachineError, MachinePath,
        MachineSpec, Network, Output, Process, SandboxClient, Signal, Target, TerminalSize, Workspace, collect, once,
    };
}
