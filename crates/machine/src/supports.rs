//! What a client's machines can be given, and the one place where a specification that asks for more is refused.

use crate::{Isolation, Lifetime, MachineError, MachineSpec, Network, Result, Workspace};

/// One thing that a [`MachineSpec`] can ask for and that not every client can give.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Support {
    /// Files and directories of this host, as workspace and as mounts.
    HostDirectories,
    /// A file tree of this host instead of the machine's own.
    Rootfs,
    /// Users and groups beside the default user.
    Users,
    /// Ports that are reached from outside.
    Ports,
    /// Machines that outlive the process that made them.
    Detached,
    /// Beginning as a snapshot of the provider's.
    Snapshots,
    /// [`Network::Off`].
    NetworkOff,
    /// [`Network::Open`].
    NetworkOpen,
    /// [`Network::Host`].
    NetworkHost,
    /// [`Network::Policy`].
    NetworkPolicy,
    /// A limit on memory.
    Memory,
    /// A limit on processors.
    Cpus,
    /// A limit on the disk.
    Disk,
}

/// What a client's machines can be given. A client states it once, and [`MachineSpec::refuse_unless`] refuses the rest.
///
/// ```
/// use sandbar_machine::{Isolation, MachineSpec, Network, Support, Supports};
///
/// const HOSTED: Supports = Supports::new(Isolation::Vm, &[Support::NetworkOff, Support::Ports]);
/// assert!(MachineSpec::default().ports([80]).refuse_unless(&HOSTED).is_ok());
/// let error = MachineSpec::default().network(Network::Host).refuse_unless(&HOSTED).unwrap_err();
/// assert_eq!(error.to_string(), "this client cannot share the host's network");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Supports {
    isolation: Isolation,
    what: &'static [Support],
}

impl Supports {
    /// Machines with this isolation that can be given these things: beside them a temporary workspace, variables, and a
    /// life that ends with its owner's.
    #[must_use]
    pub const fn new(isolation: Isolation, what: &'static [Support]) -> Self {
        Self { isolation, what }
    }

    fn give(&self, support: Support) -> bool {
        self.what.contains(&support)
    }
}

impl MachineSpec {
    /// Refuses, by name, the first field that asks for what a client's machines cannot have.
    ///
    /// # Errors
    /// [`MachineError::Unsupported`]; [`MachineError::Isolation`] and [`MachineError::Users`] for these two.
    pub fn refuse_unless(&self, supports: &Supports) -> Result<()> {
        // Every field is named: a new one does not compile until it is decided on here.
        let Self { workspace, mounts, env: _, network, ports, isolation, rootfs, limits, accounts, lifetime, snapshot } =
            self;
        let shows = *workspace != Workspace::Temporary || !mounts.is_empty();
        let (network, without) = match network {
            Network::Off => (Support::NetworkOff, "keep a machine from the network"),
            Network::Open => (Support::NetworkOpen, "give a machine a network of its own; ask for off or host"),
            Network::Host => (Support::NetworkHost, "share the host's network"),
            Network::Policy(_) => (Support::NetworkPolicy, "enforce a network policy"),
        };
        let asked = [
            (shows, Support::HostDirectories, "show directories of the host"),
            (rootfs.is_some(), Support::Rootfs, "use a file tree of the host (rootfs)"),
            (!ports.is_empty(), Support::Ports, "expose ports"),
            (snapshot.is_some(), Support::Snapshots, "begin from a snapshot"),
            (*lifetime != Lifetime::WithOwner, Support::Detached, "keep machines beyond this process"),
            (true, network, without),
            (limits.memory.is_some(), Support::Memory, "limit memory"),
            (limits.cpus.is_some(), Support::Cpus, "limit processors"),
            (limits.disk.is_some(), Support::Disk, "limit the disk"),
        ];
        if let Some((_, _, what)) = asked.into_iter().find(|(is_asked, what, _)| *is_asked && !supports.give(*what)) {
            return Err(MachineError::Unsupported(what));
        }
        if !isolation.is_met_by(supports.isolation) {
            return Err(MachineError::Isolation {
                missing: format!("{isolation} isolation, where machines have {}", supports.isolation),
                fix: "choose another client, or ask for less".to_owned(),
            });
        }
        if !supports.give(Support::Users) {
            accounts.check_alone("a client whose machines have several users", "remove users and groups")?;
        }
        limits.check()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{Access, Accounts, Demand, HostMount, Limits, MachinePath, NetworkPolicy, SnapshotId};

    #[test]
    fn each_field_is_refused_by_name() {
        let poor = Supports::new(Isolation::None, &[Support::NetworkOff]);
        let spec = || MachineSpec::default().isolation(Demand::None);
        let mount = HostMount {
            host: "/etc".into(),
            inside: MachinePath::new("/etc").unwrap(),
            access: Access::ReadOnly,
            identity: None,
        };
        let workspace = Workspace::Host { path: "/".into(), access: Access::ReadOnly };
        let table = [
            (spec().workspace(workspace), "unsupported", "directories of the host"),
            (spec().mounts([mount]), "unsupported", "directories of the host"),
            (spec().rootfs("/"), "unsupported", "rootfs"),
            (spec().ports([1]), "unsupported", "expose ports"),
            (spec().snapshot(SnapshotId("x".into())), "unsupported", "snapshot"),
            (spec().lifetime(Lifetime::Detached), "unsupported", "beyond this process"),
            (spec().network(Network::Open), "unsupported", "network of its own"),
            (spec().network(Network::Host), "unsupported", "the host's network"),
            (spec().network(Network::Policy(Arc::new(NetworkPolicy::default()))), "unsupported", "policy"),
            (spec().accounts(Accounts::default().user("ada")), "users", "several users"),
            (spec().limits(Limits::default().memory(64 << 20)), "unsupported", "limit memory"),
            (spec().limits(Limits::default().disk(64 << 20)), "unsupported", "limit the disk"),
            (spec().limits(Limits::default().pids(0)), "invalid", "pids"),
            (MachineSpec::default(), "isolation", "full isolation"),
        ];
        for (spec, code, words) in table {
            let error = spec.refuse_unless(&poor).unwrap_err();
            assert_eq!(error.code(), code, "{spec:?}");
            assert!(error.to_string().contains(words), "{error}");
        }
        spec().refuse_unless(&poor).unwrap();
    }
}
