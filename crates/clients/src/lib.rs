//! Where machines come from: [`UnixLocal`] makes them on this host, [`Docker`] in containers, [`E2b`] at a provider, and
//! [`GuestMachine`] speaks with the guest of any.
//!
//! A client implements [`sandbar_machine::SandboxClient`] and nothing else; whatever has a guest in it gets its
//! [`sandbar_machine::Machine`] from here, whole.

mod cgroups;
#[cfg(target_os = "linux")]
mod detached;
#[cfg(all(feature = "docker", target_os = "linux"))]
pub mod docker;
pub mod doctor;
#[cfg(target_os = "linux")]
mod draw;
#[cfg(all(feature = "e2b", target_os = "linux"))]
pub mod e2b;
mod guest;
mod guest_binary;
#[cfg(all(feature = "e2b", target_os = "linux"))]
mod hosted;
#[cfg(target_os = "linux")]
mod launch;
mod local;
mod ports;
#[cfg(target_os = "linux")]
mod sockets;

pub use cgroups::{CgroupState, CgroupVersion, ControllerState, cgroups};
#[cfg(all(feature = "docker", target_os = "linux"))]
pub use docker::Docker;
#[cfg(all(feature = "e2b", target_os = "linux"))]
pub use e2b::E2b;
pub use guest::{Farewell, GuestMachine, GuestSetup};
pub use guest_binary::GUEST;
pub use local::UnixLocal;
#[cfg(target_os = "linux")]
pub use local::{Remainder, Resident, ResidentState};
