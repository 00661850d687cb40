//! The waist of sandbar: a [`Machine`] acts, a [`SandboxClient`] is where machines come from, and nothing above this
//! crate knows which kind it is talking to.
//!
//! A provider implements [`SandboxClient`] and the six required methods of [`Machine`]. Everything optional is a facet that
//! is there or not: [`Files`], [`Commands`], [`Ports`], [`Snapshots`]. Where a machine has no [`Files`], POSIX tools on it do
//! the same, with nothing but `spawn`, `read` and `write`.
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
mod kept;
mod limits;
mod machine;
mod memory;
mod network;
mod path;
pub mod posix;
mod spec;
mod stream;
mod supports;
pub mod tar;
mod tarcheck;

pub use account::{AccountGroup, Accounts, account_name_fault, takes_an_account};
pub use bare::{Bare, BareClient};
pub use client::{MachineHandle, Recorder, SandboxClient};
pub use command::{Command, Control, Exit, ExitReason, Output, Process, Signal, TerminalSize};
pub use endpoint::Endpoint;
pub use entry::{DirEntry, EntryKind, Expected, Hashes, ScanOptions, Sha256, Stamp, TreeEntry, TreeIndex};
pub use error::{BoxError, MachineError, Result};
pub use facets::{Commands, Files, Ports, Snapshots};
pub use features::{Demand, Enforcement, Features, Isolation, LimitReport};
pub use kept::{KEPT_PROCESSES, ProcessId, ProcessInfo, ProcessState};
pub use limits::{Cpus, Limits};
pub use machine::Machine;
pub use memory::{MemoryClient, MemoryMachine};
pub use network::{AllowRule, DenyRule, Network, NetworkPolicy, NetworkProtocol};
pub use path::{MachinePath, Target};
pub use spec::{Access, FileIdentity, HostMount, Lifetime, MachineSpec, SnapshotId, Workspace};
pub use stream::{ByteStream, collect, once};
pub use supports::{Support, Supports};
