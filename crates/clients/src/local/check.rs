//! How the local client reads a specification: the isolation level, the host side's settings, and the paths it refuses
//! to mount.

use std::{os::unix::ffi::OsStrExt, path::Path};

use sandbar_guest::protocol::{Launch, Level};
use sandbar_machine::{
    Demand, Enforcement, Isolation, LimitReport, MachineError, MachineHandle, MachineSpec, Network, Result, Support,
    Supports,
};

use crate::{GuestSetup, detached::Listening, launch::resolve};

/// What local machines support. The guest reports how strongly each limit is enforced.
pub(super) const SUPPORTS: Supports = Supports::new(
    Isolation::Namespaces,
    &[
        Support::Time,
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
        Support::Pids,
        Support::OpenFiles,
        Support::TmpSize,
    ],
);

/// The isolation level for a demand.
pub(super) fn level(demand: Demand) -> Result<(Level, Isolation)> {
    match demand {
        Demand::None => Ok((Level::None, Isolation::None)),
        Demand::Landlock => Ok((Level::Landlock, Isolation::Landlock)),
        Demand::Full => Ok((Level::Full, Isolation::Namespaces)),
        _ => Err(MachineError::Unsupported("reach this isolation")),
    }
}

/// The part of a specification that the host side needs.
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

/// Refuses to mount the directory that contains the machine's own door: commands inside must not see it.
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

/// Whether a program inside can listen: at the level `landlock`, the network is switched off by refusing every network
/// socket.
pub(super) fn can_listen(spec: &MachineSpec) -> Listening {
    match (spec.isolation, &spec.network) {
        (Demand::Landlock, Network::Off) => Listening::Impossible,
        _ => Listening::Possible,
    }
}

/// How strongly each limit is enforced on any host; the guest adds what a control group enforces.
pub(super) fn report(isolation: Isolation) -> LimitReport {
    let (hard, no) = (Enforcement::Hard, Enforcement::Unavailable);
    let only_full = if isolation.is_full() { hard } else { no };
    let mut report = LimitReport::NONE;
    // The kernel counts processes per user and namespace: a machine without its own namespace would share the user's
    // count.
    (report.pids, report.tmp) = (only_full, only_full);
    (report.open_files, report.core, report.time) = (hard, hard, hard);
    report
}
