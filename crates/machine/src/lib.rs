//! The interface between sandbar and its sandbox providers: a [`Machine`] runs commands and holds files, a [`SandboxClient`]
//! creates machines. Code above this crate does not know which provider it uses.
//!
//! A provider implements [`SandboxClient`] and the six required methods of [`Machine`]. Each optional ability is a *facet*, a
//! trait object that a machine has or lacks: [`Files`], [`Commands`], [`Ports`], [`Snapshots`]. For a machine without
//! [`Files`], the functions of [`posix`] do the same work with POSIX tools on the machine; they use only `spawn`, `read` and
//! `write`.
//!
//! To write a client: state what its machines support in a [`Supports`], refuse the rest with
//! [`MachineSpec::refuse_unless`], and run the conformance suite (feature `conformance`), which checks every promise that
//! the documentation of these traits makes. For a provider with an HTTP interface, [`remote`] and [`posix`] contain the parts
//! that such clients share.
//!
//! ```
//! use sandbar_machine::{Machine, MachinePath, MemoryMachine, Target, collect, once};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> sandbar_machine::Result<()> {
//! let machine = MemoryMachine::new();
//! let note = Target::from(MachinePath::new("/workspace/note.txt")?);
//! machine.write(&note, once("hello")).await?;
//! assert_eq!(collect(machine.read(&note).await?, 1024).await?, "hello");
//! # Ok(())
//! # }
//! ```

mod account;
mod bare;
mod client;
mod command;
#[cfg(feature = "conformance")]
pub mod conformance;
mod endpoint;
mod entry;
mod error;
mod facets;
mod features;
mod limits;
mod machine;
mod memory;
mod network;
mod path;
pub mod posix;
mod process;
pub mod remote;
mod spec;
mod stream;
mod supports;
pub mod tar;
mod tarcheck;

pub use bytes::Bytes;

pub use account::{AccountGroup, Accounts, account_name_fault, takes_an_account};
pub use bare::{Bare, BareClient};
pub use client::{MachineHandle, Recorder, SandboxClient};
pub use command::{Command, Control, Exit, ExitReason, NEUTRAL_ENVIRONMENT, Output, Process, Signal, TerminalSize};
pub use endpoint::Endpoint;
pub use entry::{DirEntry, EntryKind, Expected, Hashes, ScanOptions, Sha256, Stamp, TreeEntry, TreeIndex};
pub use error::{BoxError, MachineError, Result};
pub use facets::{Commands, Files, Ports, Snapshots};
pub use features::{Demand, Enforcement, Features, Isolation, LimitReport};
pub use limits::{Cpus, Limits};
pub use machine::Machine;
pub use memory::{MemoryClient, MemoryMachine};
pub use network::{AllowRule, DenyRule, Network, NetworkPolicy, NetworkProtocol};
pub use path::{MachinePath, Target};
pub use process::{KEPT_PROCESSES, ProcessId, ProcessInfo, ProcessState};
pub use spec::{Access, FileIdentity, HostMount, Lifetime, MachineSpec, SnapshotId, Workspace};
pub use stream::{ByteStream, collect, once};
pub use supports::{Support, Supports};
