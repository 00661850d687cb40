//! Labels that identify the creator of a container, so that another process can later find out whether the creator
//! still lives.

use std::{collections::HashMap, fs, path::Path};

use rustix::{process::getuid, system::uname};

pub(super) const SESSION: &str = "sandbar.session";
/// `bound`: the machine ends with its creator. `detached`: while its container runs it is in use, whether its creator
/// lives or not.
pub(super) const LIFETIME: &str = "sandbar.lifetime";
/// Random value that the handle of a detached machine holds too, so that a changed handle cannot remove another
/// machine.
pub(super) const SEAL: &str = "sandbar.seal";
/// The register in which the creator records detached machines.
pub(super) const REGISTER: &str = "sandbar.register";
pub(super) const OWNER: &str = "sandbar.owner";
pub(super) const HOST: &str = "sandbar.host";
pub(super) const BOOT: &str = "sandbar.boot";
pub(super) const NAMESPACES: &str = "sandbar.namespaces";
pub(super) const PID: &str = "sandbar.pid";
pub(super) const PID_STARTED: &str = "sandbar.pid-started";

/// The labels of one machine; a detached one has a seal, and may have a register.
pub(super) fn owned(session: &str, seal: Option<&str>, register: Option<&str>) -> HashMap<String, String> {
    let lifetime = if seal.is_some() { "detached" } else { "bound" };
    let labels = [
        (SESSION, session.to_owned()),
        (LIFETIME, lifetime.to_owned()),
        (OWNER, owner()),
        (HOST, host()),
        // A process id is valid only until the host restarts,
        (BOOT, boot()),
        // and only inside the same namespaces.
        (NAMESPACES, namespaces()),
        (PID, std::process::id().to_string()),
        (PID_STARTED, started("self").map(|ticks| ticks.to_string()).unwrap_or_default()),
    ];
    // Always all labels, because an image may have labels with the same names.
    let rest = [(SEAL, seal), (REGISTER, register)];
    let rest = rest.map(|(name, value)| (name, value.unwrap_or_default().to_owned()));
    labels.into_iter().chain(rest).map(|(name, value)| (name.to_owned(), value)).collect()
}

/// This user on this host.
pub(super) fn owner() -> String {
    format!("{}@{}", getuid().as_raw(), uname().nodename().to_string_lossy())
}

/// This installation of the host; empty if it has no machine id. A digest, because the machine id itself is
/// confidential.
pub(super) fn host() -> String {
    digest(&line("/etc/machine-id")).unwrap_or_default()
}

/// Id of the host's current boot.
pub(super) fn boot() -> String {
    line("/proc/sys/kernel/random/boot_id")
}

/// The namespaces in which this process sees users, processes and time.
pub(super) fn namespaces() -> String {
    let namespace = |name: &str| {
        let link = fs::read_link(Path::new("/proc/self/ns").join(name)).unwrap_or_default();
        link.to_string_lossy().into_owned()
    };
    ["user", "pid", "time"].map(namespace).join(" ")
}

/// Start time of a process in clock ticks; together with the process id it identifies one process.
pub(super) fn started(process: &str) -> Option<u64> {
    stat(process)?.get(19)?.parse().ok()
}

/// Whether a process has ended and only waits for its parent to reap it.
pub(super) fn has_ended(process: &str) -> bool {
    let Some(stat) = stat(process) else { return false };
    // The first thread of a live process may end before the others.
    let threads = stat.get(17).and_then(|count| count.parse::<u64>().ok());
    matches!(stat.first().map(String::as_str), Some("Z" | "X")) && threads.is_some_and(|count| count < 2)
}

/// The fields of `/proc/PID/stat` after the process's name.
fn stat(process: &str) -> Option<Vec<String>> {
    let stat = line(&format!("/proc/{process}/stat"));
    let (_, rest) = stat.rsplit_once(')')?;
    Some(rest.split_whitespace().map(str::to_owned).collect())
}

/// A hash of half the length, from which the id cannot be restored.
fn digest(number: &str) -> Option<String> {
    let is_number = number.len() == 32 && number.bytes().all(|byte| byte.is_ascii_hexdigit());
    let mix = |sum: u64, byte: u8| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    is_number
        .then(|| format!("{:016x}", b"sandbar".iter().copied().chain(number.bytes()).fold(0xcbf2_9ce4_8422_2325, mix)))
}

fn line(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_names_this_very_process() {
        let labels = owned("abc", None, None);
        assert_eq!(labels[PID], std::process::id().to_string());
        assert!(labels[PID_STARTED].parse::<u64>().is_ok_and(|ticks| ticks > 0), "{labels:?}");
        assert_eq!(labels[BOOT].len(), 36);
        assert!(labels[NAMESPACES].contains("pid:["), "{labels:?}");
        assert_eq!((labels[LIFETIME].as_str(), labels[SEAL].as_str()), ("bound", ""));
        let detached = owned("abc", Some("xyz"), Some("here"));
        assert_eq!((detached[LIFETIME].as_str(), detached[SEAL].as_str()), ("detached", "xyz"));
        assert_eq!((detached[REGISTER].as_str(), labels[REGISTER].as_str()), ("here", ""));
    }

    #[test]
    fn a_hosts_number_is_not_shown_itself() {
        let number = "0123456789abcdef0123456789abcdef";
        let shown = digest(number).expect("a digest");
        assert!(shown.len() == 16 && !number.contains(&shown), "{shown}");
        assert_ne!(digest("0123456789abcdef0123456789abcdee"), Some(shown));
        for none in ["", "uninitialized", "0123"] {
            assert_eq!(digest(none), None);
        }
    }
}
