//! Machines on this very host: a supervisor process each, that builds the walls, keeps the guest and cleans up after it.
//!
//! A machine lives exactly as long as somebody holds it. Its supervisor holds the far end of a *leash*, a socket that
//! closes when this process ends for whatever reason; then everything the machine had is removed, without our help.
//!
//! A detached machine is let go of as soon as it is ready. Its supervisor listens at its *door* instead, a socket in the
//! machine's own directory, and hands whoever knows the machine's nonce on to the guest.

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
mod removal;
#[cfg(target_os = "linux")]
mod state;

#[cfg(target_os = "linux")]
pub use client::UnixLocal;
#[cfg(not(target_os = "linux"))]
pub use elsewhere::UnixLocal;
#[cfg(target_os = "linux")]
pub use leftovers::{Remainder, Resident, ResidentState};

#[cfg(not(target_os = "linux"))]
mod elsewhere {
    use std::{path::PathBuf, sync::Arc};

    use async_trait::async_trait;
    use sandbar_machine::{Machine, MachineError, MachineHandle, MachineSpec, Result, SandboxClient};

    /// Makes machines on this host, which needs Linux.
    #[derive(Clone, Debug, Default)]
    pub struct UnixLocal {
        state_dir: Option<PathBuf>,
    }

    impl UnixLocal {
        /// A client whose machines leave nothing behind.
        #[must_use]
        pub fn new() -> Self {
            Self::default()
        }

        /// Keeps what live machines need in this directory instead of the system's temporary one.
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
                fix: "use a Linux host, or a client that brings its own walls".to_owned(),
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
