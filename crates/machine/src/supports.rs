//! What a client supports, and the check that refuses a specification that needs more.

use crate::{Isolation, Lifetime, Limits, MachineError, MachineSpec, Network, Result, Workspace};

/// Defines [`Support`], the list of its variants, and their names in reports.
macro_rules! supports {
    ($($(#[$doc:meta])* $name:ident $text:literal)*) => {
        /// One ability that a [`MachineSpec`] can need and that not every client has.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Support {
            $($(#[$doc])* $name,)*
        }

        impl Support {
            /// All variants.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// Name in reports.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }
    };
}

supports! {
    /// Files and directories of this host, as workspace and as mounts.
    HostDirectories "directories of the host"
    /// A file tree of this host instead of the machine's own.
    Rootfs "a file tree of the host (rootfs)"
    /// Users and groups in addition to the default user.
    Users "several users"
    /// Ports that are reached from outside.
    Ports "ports"
    /// Machines that outlive the process that created them.
    Detached "detached and leased machines"
    /// Machines that start from a snapshot of the provider.
    Snapshots "a snapshot to start from"
    /// [`Network::Off`].
    NetworkOff "network: off"
    /// [`Network::Open`].
    NetworkOpen "network: open"
    /// [`Network::Host`].
    NetworkHost "network: host"
    /// [`Network::Policy`].
    NetworkPolicy "network: policy"
    /// A limit on memory.
    Memory "a limit on memory"
    /// A limit on processors.
    Cpus "a limit on processors"
    /// A limit on the disk.
    Disk "a limit on the disk"
    /// A deadline for commands without their own, [`Limits::time`].
    Time "a deadline for every command"
    /// A limit on processes other than the default.
    Pids "another limit on processes"
    /// A limit on open files other than the default.
    OpenFiles "another limit on open files"
    /// A size of `/tmp` other than the default.
    TmpSize "another size of `/tmp`"
}

/// What the machines of a client support. A client states it once, and [`MachineSpec::refuse_unless`] refuses the rest.
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
    supported: &'static [Support],
}

impl Supports {
    /// Machines with this isolation and these abilities. Every client also supports a temporary workspace, variables, and
    /// [`Lifetime::WithOwner`].
    #[must_use]
    pub const fn new(isolation: Isolation, supported: &'static [Support]) -> Self {
        Self { isolation, supported }
    }

    /// Whether machines have this ability.
    #[must_use]
    pub fn give(&self, support: Support) -> bool {
        self.supported.contains(&support)
    }
}

impl MachineSpec {
    /// Refuses the first field that needs more than a client supports, and invalid [`limits`](Self::limits). A client calls this
    /// at the beginning of [`create`](crate::SandboxClient::create).
    ///
    /// # Errors
    /// [`MachineError::Isolation`] for the isolation, [`MachineError::Users`] for the accounts, [`MachineError::Invalid`] for
    /// wrong values, and [`MachineError::Unsupported`] that names any other field.
    pub fn refuse_unless(&self, supports: &Supports) -> Result<()> {
        // All fields are listed, so that a new field does not compile until it is handled here.
        let Self { workspace, mounts, env: _, network, ports, isolation, rootfs, limits, accounts, lifetime, snapshot } =
            self;
        let needs_host = *workspace != Workspace::Temporary || !mounts.is_empty();
        let (network, without) = match network {
            Network::Off => (Support::NetworkOff, "keep a machine from the network"),
            Network::Open => (Support::NetworkOpen, "give a machine a network of its own; ask for off or host"),
            Network::Host => (Support::NetworkHost, "share the host's network"),
            Network::Policy(_) => (Support::NetworkPolicy, "enforce a network policy"),
        };
        let default = Limits::default();
        let needs = [
            (needs_host, Support::HostDirectories, "show directories of the host"),
            (rootfs.is_some(), Support::Rootfs, "use a file tree of the host (rootfs)"),
            (!ports.is_empty(), Support::Ports, "expose ports"),
            (snapshot.is_some(), Support::Snapshots, "start from a snapshot"),
            (*lifetime != Lifetime::WithOwner, Support::Detached, "keep machines beyond this process"),
            (true, network, without),
            (limits.memory.is_some(), Support::Memory, "limit memory"),
            (limits.cpus.is_some(), Support::Cpus, "limit processors"),
            (limits.disk.is_some(), Support::Disk, "limit the disk"),
            (limits.time.is_some(), Support::Time, "give every command a deadline"),
            (limits.pids != default.pids, Support::Pids, "limit processes"),
            (limits.open_files != default.open_files, Support::OpenFiles, "limit open files"),
            (limits.tmp_bytes != default.tmp_bytes, Support::TmpSize, "limit the size of /tmp"),
        ];
        let missing = needs.into_iter().find(|(is_needed, support, _)| *is_needed && !supports.give(*support));
        if let Some((_, _, what)) = missing {
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
    use std::{sync::Arc, time::Duration};

    use super::*;
    use crate::{Access, Accounts, Demand, HostMount, MachinePath, NetworkPolicy, SnapshotId};

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
            (spec().limits(Limits::default().time(Duration::from_secs(7))), "unsupported", "a deadline"),
            (spec().limits(Limits::default().pids(7)), "unsupported", "limit processes"),
            (spec().limits(Limits::default().open_files(7)), "unsupported", "limit open files"),
            (spec().limits(Limits::default().tmp_bytes(7)), "unsupported", "size of /tmp"),
            (spec().limits(Limits::default().output_buffer(0)), "invalid", "output_buffer"),
            (MachineSpec::default(), "isolation", "full isolation"),
        ];
        for (spec, code, text) in table {
            let error = spec.refuse_unless(&poor).unwrap_err();
            assert_eq!(error.code(), code, "{spec:?}");
            assert!(error.to_string().contains(text), "{error}");
        }
        spec().refuse_unless(&poor).unwrap();
    }
}
