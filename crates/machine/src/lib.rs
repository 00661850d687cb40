//! The waist of sandbar: a [`Machine`] acts, a [`SandboxClient`] is where machines come from, and nothing above this
//! crate knows which kind it is talking to.
//!
//! A provider implements [`SandboxClient`] and the six required methods of [`Machine`]; the rest have POSIX fallbacks
//! built on `spawn`, `read` and `write`, to be overridden where the provider is faster.
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
mod entry;
mod error;
mod features;
mod kept;
mod limits;
mod machine;
mod memory;
mod path;
pub mod posix;
mod spec;
mod stream;
pub mod tar;
mod tarcheck;
mod traced;

pub use account::{AccountGroup, Accounts, account_name_fault, takes_an_account};
pub use bare::{Bare, BareClient};
pub use client::{MachineHandle, Recorder, SandboxClient};
pub use command::{Command, Control, Exit, ExitReason, Output, Process, Signal, TerminalSize};
pub use entry::{DirEntry, EntryKind, Expected, Hashes, ScanOptions, Sha256, Stamp, TreeEntry, TreeIndex};
pub use error::{BoxError, MachineError, Result};
pub use features::{Enforcement, Features, Isolation, LimitReport};
pub use kept::{KEPT_PROCESSES, ProcessId, ProcessInfo, ProcessState};
pub use limits::{Cpus, Limits};
pub use machine::{Endpoint, Machine};
pub use memory::{MemoryClient, MemoryMachine};
pub use path::{MachinePath, Target};
pub use spec::{Access, FileIdentity, HostMount, Lifetime, MachineSpec, Network, Workspace};
pub use stream::{ByteStream, collect, once};
pub use traced::Traced;
