//! What the local client makes of a specification: the level, what the host side keeps, and what it refuses to show.

use std::{os::unix::ffi::OsStrExt, path::Path};

use sandbar_guest::protocol::{Launch, Level};
use sandbar_machine::{
    Demand, Enforcement, Isolation, LimitReport, MachineError, MachineHandle, MachineSpec, Network, Result, Support,
    Supports,
};

use crate::{GuestSetup, detached::Listening, launch::resolve};

/// What local machines can be given; which limits are held how strongly, the guest finds out.
pub(super) const SUPPORTS: Supports = Supports::new(
    Isolation::Namespaces,
    &[
        Support::HostDirectories,
        Support::Rootfs,
        Support::Users,
        Support::Ports,
        Support::Detached,
        Support::NetworkOff,
        Support::NetworkHost,
        Support::Memory,
        Support::Cpus,
        Support::Disk,
    ],
);

/// The level that is built for a demand, and what it is.
pub(super) fn level(demand: Demand) -> Result<(Level, Isolation)> {
    match demand {
        Demand::None => Ok((Level::None, Isolation::None)),
        Demand::Landlock => Ok((Level::Landlock, Isolation::Landlock)),
        Demand::Full => Ok((Level::Full, Isolation::Namespaces)),
        _ => Err(MachineError::Unsupported("reach this isolation")),
    }
}

/// What the host side keeps of a specification.
pub(super) fn setup(spec: MachineSpec, isolation: Isolation, handle: MachineHandle) -> GuestSetup {
    GuestSetup {
        handle,
        isolation,
        limits: report(isolation),
        env: spec.env,
        ports: spec.ports,
        output_buffer: spec.limits.output_buffer,
        deadline: spec.limits.time,
    }
}

/// Refuses to show a machine the directory its own door is in: commands inside must not even see it.
pub(super) fn hides(launch: &Launch, state: &Path) -> Result<()> {
    let state = resolve("state directory", state)?.path;
    let shown = launch.workspace.iter().map(|(host, _)| host).chain(launch.mounts.iter().map(|mount| &mount.host));
    for host in shown.chain(&launch.rootfs) {
        let path = Path::new(std::ffi::OsStr::from_bytes(&host.path));
        if state.starts_with(path) {
            return Err(MachineError::invalid(
                format!("showing {}", path.display()),
                format!("would show the machine its own door in {}; choose another state directory", state.display()),
            ));
        }
    }
    Ok(())
}

/// Whether anything inside can listen: Landlock alone keeps the network off by refusing every socket of it.
pub(super) fn can_listen(spec: &MachineSpec) -> Listening {
    match (spec.isolation, &spec.network) {
        (Demand::Landlock, Network::Off) => Listening::Impossible,
        _ => Listening::Possible,
    }
}

/// How strongly each limit is held on any host; what a control group adds to it, the guest knows.
pub(super) fn report(isolation: Isolation) -> LimitReport {
    let (hard, no) = (Enforcement::Hard, Enforcement::Unavailable);
    let only_full = if isolation.is_full() { hard } else { no };
    let mut report = LimitReport::NONE;
    // Processes are counted per user and namespace, so a machine without its own would share the user's count.
    (report.pids, report.tmp) = (only_full, only_full);
    (report.open_files, report.core, report.time) = (hard, hard, hard);
    report
}
