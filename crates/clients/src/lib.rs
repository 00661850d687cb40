//! Sandbox clients: [`UnixLocal`] creates machines on this host, [`Docker`] in containers, [`E2b`] at a hosted
//! provider. [`GuestMachine`] is the host side of any machine that runs the guest.
//!
//! A client implements [`sandbar_machine::SandboxClient`]. If its machines run the guest, [`GuestMachine`] provides the
//! whole [`sandbar_machine::Machine`] implementation.

mod cgroups;
#[cfg(target_os = "linux")]
mod detached;
#[cfg(all(feature = "docker", target_os = "linux"))]
pub mod docker;
pub mod doctor;
#[cfg(all(feature = "e2b", target_os = "linux"))]
pub mod e2b;
mod guest;
mod guest_binary;
#[cfg(target_os = "linux")]
mod launch;
mod local;
mod ports;
#[cfg(target_os = "linux")]
mod random;
pub mod registry;
#[cfg(target_os = "linux")]
mod sockets;

pub use cgroups::{CgroupState, CgroupVersion, ControllerState, cgroups};
#[cfg(all(feature = "docker", target_os = "linux"))]
pub use docker::Docker;
#[cfg(all(feature = "e2b", target_os = "linux"))]
pub use e2b::E2b;
pub use guest::{GuestMachine, GuestSetup, Teardown};
pub use guest_binary::GUEST;
pub use local::UnixLocal;
#[cfg(target_os = "linux")]
pub use local::{Remainder, Resident, ResidentState};
pub use registry::{ClientContext, Provider, Registry, Source};
