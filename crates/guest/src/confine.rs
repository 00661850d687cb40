//! Isolates a machine from its host; the layers are applied in this order.

pub(crate) mod claim;
pub(crate) mod etc;
pub(crate) mod filter;
pub(crate) mod landlock;
pub(crate) mod proc;
pub(crate) mod root;
mod sockets;

use std::io;

use crate::{
    limits,
    machine::failure::{Setup, Step, refuse},
    sys::security::{self, Caps, Token},
};

/// What separates commands from the host besides the filter, which must make up for what is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Walls {
    /// Own namespaces: sockets and shared memory reach nothing outside.
    Namespaces,
    /// Own namespaces but the host's network, on a kernel where only the filter blocks the host's abstract sockets.
    HostNetwork,
    /// The host's namespaces, with its network.
    SharedOnline,
    /// The host's namespaces, without its network.
    SharedOffline,
}

impl Walls {
    /// Whether the machine has its own processes, System V objects and files.
    fn has_namespaces(self) -> bool {
        matches!(self, Self::Namespaces | Self::HostNetwork)
    }
}

/// Drops every privilege for good, except the capabilities needed to switch between mapped users. Returns the names of
/// the layers.
pub(crate) fn drop_powers(keep: Caps, rules: &landlock::Rules, walls: Walls, token: Token) -> Setup<Vec<String>> {
    if keep != Caps::NONE {
        // A setting that cannot be read does not exist.
        memory_stays_closed(&std::fs::read_to_string("/proc/sys/fs/suid_dumpable").unwrap_or_default())?;
    }
    let mut layers = vec!["no capabilities".to_owned()];
    // An ordinary user outside a user namespace may not change the bounding set, and need not: it holds no capability,
    // and with no_new_privs no file can grant one.
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

/// This setting decides whether the memory of a process is readable after it changes its user. Until a command executes
/// its program it shares the guest's memory but has its own user: with the value 1, another command could read the
/// token there.
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

/// Verifies the result, instead of trusting that every call did what it reported.
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
    // In a fresh user namespace only the filter refuses this call: so the refusal proves that the filter works.
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

/// Whether an error means that this kernel or container forbids an operation, rather than that it failed.
pub(crate) fn is_forbidden(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EPERM | libc::EACCES | libc::ENOSYS | libc::ENOSPC | libc::EINVAL))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_keeps_memory_readable_after_a_user_change_is_refused() {
        for safe in ["0\n", "2\n", ""] {
            assert!(memory_stays_closed(safe).is_ok(), "{safe:?}");
        }
        let failure = memory_stays_closed("1\n").unwrap_err();
        assert!(failure.missing.contains("fs.suid_dumpable") && failure.fix.contains("sysctl"), "{failure:?}");
    }
}
