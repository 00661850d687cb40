//! Explains why this host offers no usable namespaces, and what to do about it.

use std::io;

use sandbar_guest::protocol::BootFailure;

use crate::confine::is_forbidden;

/// Fix for hosts where AppArmor takes the capabilities of user namespaces away (Ubuntu 23.10 and newer).
const PROFILE: &str = "let this program have them by an AppArmor profile (`sandbar doctor --fix` shows one and installs \
                       it), or run `sysctl kernel.apparmor_restrict_unprivileged_userns=0` as root";

/// The namespaces could not be created.
pub(crate) fn not_made(error: &io::Error) -> BootFailure {
    let fix = if reads("/proc/sys/kernel/unprivileged_userns_clone", "0") {
        "run `sysctl kernel.unprivileged_userns_clone=1` as root"
    } else if reads("/proc/sys/user/max_user_namespaces", "0") {
        "run `sysctl user.max_user_namespaces=10000` as root"
    } else if apparmor_restricts() {
        PROFILE
    } else if is_forbidden(error) {
        "this looks like a container: run sandbar outside it, allow user namespaces in its seccomp profile, or ask for \
         --isolation landlock"
    } else {
        "free some memory or processes"
    };
    let errno = error.raw_os_error().unwrap_or_default();
    BootFailure {
        stage: "make namespaces".to_owned(),
        errno,
        missing: "user namespaces".to_owned(),
        fix: fix.to_owned(),
    }
}

/// The id maps could not be written.
pub(crate) fn not_mapped(error: &io::Error) -> BootFailure {
    let fix = if apparmor_restricts() { PROFILE } else { "check that no security module forbids user namespaces" };
    BootFailure {
        stage: "map user ids".to_owned(),
        errno: error.raw_os_error().unwrap_or_default(),
        missing: "the right to map a user into a new user namespace".to_owned(),
        fix: fix.to_owned(),
    }
}

/// Explains a permission error inside namespaces on a host where AppArmor takes their capabilities away: they exist,
/// but nothing can be done in them. Other failures stay as they are. Root's programs are not restricted.
pub(crate) fn explain(failure: BootFailure) -> BootFailure {
    let known = !failure.missing.is_empty() || !matches!(failure.errno, libc::EPERM | libc::EACCES);
    if known || !apparmor_restricts() {
        return failure;
    }
    let missing =
        format!("the powers of user namespaces, which AppArmor restricts on this host (to {})", failure.stage);
    BootFailure { missing, fix: PROFILE.to_owned(), ..failure }
}

fn apparmor_restricts() -> bool {
    reads("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1")
}

fn reads(path: &str, value: &str) -> bool {
    std::fs::read_to_string(path).is_ok_and(|text| text.trim() == value)
}
