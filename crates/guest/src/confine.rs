//! Everything that keeps a machine away from its host, in the order in which it is put up.

pub(crate) mod claim;
pub(crate) mod etc;
pub(crate) mod filter;
pub(crate) mod landlock;
pub(crate) mod proc;
pub(crate) mod root;
mod sockets;

use std::io;

use crate::{
    failure::{Setup, Step, refuse},
    limits,
    sys::security::{self, Caps, Token},
};

/// What stands between commands and the host besides the filter, which must make up for what is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Walls {
    /// Own namespaces: sockets and shared memory reach nothing outside.
    Namespaces,
    /// Own namespaces but the host's network, on a kernel that has nothing but the filter against its abstract sockets.
    HostNetwork,
    /// The host's namespaces, with its network.
    SharedOnline,
    /// The host's namespaces, without its network.
    SharedOffline,
}

impl Walls {
    /// Whether processes, System V objects and files are the machine's own.
    fn has_namespaces(self) -> bool {
        matches!(self, Self::Namespaces | Self::HostNetwork)
    }
}

/// Gives up every power for good; what is kept is only what switching between mapped users takes.
pub(crate) fn drop_powers(keep: Caps, rules: &landlock::Rules, walls: Walls, token: Token) -> Setup<Vec<String>> {
    if keep != Caps::NONE {
        // One that cannot be read is not there to be changed.
        memory_stays_closed(&std::fs::read_to_string("/proc/sys/fs/suid_dumpable").unwrap_or_default())?;
    }
    let mut layers = vec!["no capabilities".to_owned()];
    // An ordinary user outside a user namespace may not touch the set, and has nothing to gain from it: it holds no
    // capability, and with no_new_privs no file can give it one.
    let powerless = security::all_caps().step("read capabilities")? == Caps::NONE;
    match security::drop_bounding_set() {
        Err(_) if powerless => {}
        emptied => emptied.step("empty the capability bounding set")?,
    }
    security::no_new_privs().step("set no_new_privs")?;
    limits::limit_own_signals().step("limit the signals that wait for the guest")?;
    layers.push(rules.enter()?);
    security::set_caps(keep).step("drop capabilities")?;
    filter::install(walls, token).needs(
        "install the seccomp filter",
        "seccomp filters",
        "use a kernel built with CONFIG_SECCOMP_FILTER",
    )?;
    layers.push("no_new_privs".to_owned());
    layers.push("seccomp".to_owned());
    verify(keep, powerless)?;
    Ok(layers)
}

/// A process that changes its user gets what this setting says for its memory, and a command is, until it executes its
/// program, a process with the guest's memory and its own user: with 1, another command could read the token there.
fn memory_stays_closed(suid_dumpable: &str) -> Setup<()> {
    if suid_dumpable.trim() != "1" {
        return Ok(());
    }
    Err(refuse(
        "look at fs.suid_dumpable",
        "memory that stays closed when a process changes its user (fs.suid_dumpable is 1)",
        "run `sysctl fs.suid_dumpable=0` as root, or 2 to keep such core dumps",
    ))
}

/// Looks at what was really achieved, instead of trusting that every call did what it said.
fn verify(keep: Caps, powerless: bool) -> Setup<()> {
    let weak = |what: &str| refuse(format!("verify the confinement: {what}"), what, "report this as a bug");
    if !powerless && !security::bounding_set_is_empty() {
        return Err(weak("the capability bounding set is not empty"));
    }
    if security::all_caps().step("read capabilities")? != keep {
        return Err(weak("capabilities are left"));
    }
    if !security::is_filtered() {
        return Err(weak("no_new_privs or the seccomp filter is not in force"));
    }
    // Allowed by capabilities and mounts alone in a fresh user namespace, refused by the filter: so the filter works.
    match crate::sys::process::fork_into(libc::CLONE_NEWUSER) {
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => Ok(()),
        Ok(crate::sys::process::Fork::Child) => crate::sys::process::exit_now(0),
        Ok(crate::sys::process::Fork::Parent(pid)) => {
            let _reaped = crate::sys::process::wait_for(pid);
            Err(weak("a new user namespace could be made"))
        }
        Err(_) => Err(weak("the filter answers in an unexpected way")),
    }
}

/// Whether an error means that this kernel or container forbids a thing, rather than that it failed.
pub(crate) fn is_forbidden(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EPERM | libc::EACCES | libc::ENOSYS | libc::ENOSPC | libc::EINVAL))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_opens_the_memory_of_who_changes_users_is_refused_by_name() {
        for safe in ["0\n", "2\n", ""] {
            assert!(memory_stays_closed(safe).is_ok(), "{safe:?}");
        }
        let failure = memory_stays_closed("1\n").unwrap_err();
        assert!(failure.missing.contains("fs.suid_dumpable") && failure.fix.contains("sysctl"), "{failure:?}");
    }
}
