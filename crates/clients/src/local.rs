//! Machines on this host. Each has a supervisor process that sets up the isolation, runs the guest and removes
//! everything at the end.
//!
//! A bound machine lives until its last reference is dropped, or the process that created it ends. Its supervisor holds the
//! other end of a *leash*, a socket that closes in both cases. The supervisor then removes everything that the machine had.
//!
//! A detached machine is released from its leash once it is ready. Its supervisor listens on its *door* instead, a socket in the
//! machine's directory, and connects every process that knows the machine's nonce with the guest.

#[cfg(target_os = "linux")]
mod boot;
#[cfg(target_os = "linux")]
mod check;
#[cfg(target_os = "linux")]
mod client;
#[cfg(target_os = "linux")]
mod detached;
#[cfg(target_os = "linux")]
mod leftovers;
#[cfg(target_os = "linux")]
mod provider;
#[cfg(target_os = "linux")]
mod removal;
#[cfg(target_os = "linux")]
mod state;

#[cfg(target_os = "linux")]
pub use client::UnixLocal;
#[cfg(not(target_os = "linux"))]
pub use elsewhere::UnixLocal;
#[cfg(target_os = "linux")]
pub use leftovers::{Remainder, Resident, ResidentState};
#[cfg(target_os = "linux")]
pub(crate) use provider::LocalProvider;

#[cfg(not(target_os = "linux"))]
mod elsewhere {
    use std::{path::PathBuf, sync::Arc};

    use async_trait::async_trait;
    use sandbar_machine::{Machine, MachineError, MachineHandle, MachineSpec, Result, SandboxClient};

    /// Creates machines on this host. Needs Linux.
    #[derive(Clone, Debug, Default)]
    pub struct UnixLocal {
        state_dir: Option<PathBuf>,
    }

    impl UnixLocal {
        /// A client with the default state directory.
        #[must_use]
        pub fn new() -> Self {
            Self::default()
        }

        /// Stores the state of live machines in this directory instead of the system's temporary directory.
        #[must_use]
        pub fn state_dir(mut self, directory: impl Into<PathBuf>) -> Self {
            self.state_dir = Some(directory.into());
            self
        }
    }

    #[async_trait]
    impl SandboxClient for UnixLocal {
        fn id(&self) -> &'static str {
            "local"
        }

        async fn create(&self, _spec: MachineSpec) -> Result<Arc<dyn Machine>> {
            Err(MachineError::Isolation {
                missing: "Linux namespaces".to_owned(),
                fix: "use a Linux host, or a client with its own isolation, such as Docker".to_owned(),
            })
        }

        async fn attach(&self, _handle: &MachineHandle) -> Result<Option<Arc<dyn Machine>>> {
            Ok(None)
        }

        async fn delete(&self, _handle: &MachineHandle) -> Result<()> {
            Ok(())
        }
    }
}
