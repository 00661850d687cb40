//! Who a container belongs to, in labels: enough to tell, later and from outside, whether that process still lives.

use std::{collections::HashMap, fs};

use rustix::{process::getuid, system::uname};

/// Who keeps a machine: `bound`, and it ends with the process that made it; or `detached`, and as long as its container runs
/// it is somebody's, whether its maker lives or not.
pub(super) const LIFETIME: &str = "sandbar.lifetime";
/// What the handle of a detached machine knows too, so that nothing is removed by one that was changed.
pub(super) const SEAL: &str = "sandbar.seal";

/// The labels of one machine; a detached one has a seal.
pub(super) fn owned(session: &str, seal: Option<&str>) -> HashMap<String, String> {
    let host = uname();
    let lifetime = if seal.is_some() { "detached" } else { "bound" };
    let labels = [
        ("sandbar.session", session.to_owned()),
        (LIFETIME, lifetime.to_owned()),
        ("sandbar.owner", format!("{}@{}", getuid().as_raw(), host.nodename().to_string_lossy())),
        // Numbers of processes mean something only until the host starts again.
        ("sandbar.boot", line("/proc/sys/kernel/random/boot_id")),
        ("sandbar.pid", std::process::id().to_string()),
        ("sandbar.pid-started", started().unwrap_or_default()),
    ];
    let seal = seal.map(|seal| (SEAL, seal.to_owned()));
    labels.into_iter().chain(seal).map(|(name, value)| (name.to_owned(), value)).collect()
}

/// When this process began, in the kernel's own ticks: with its number, one process and no other.
fn started() -> Option<String> {
    let stat = line("/proc/self/stat");
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(19).map(str::to_owned)
}

fn line(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_names_this_very_process() {
        let labels = owned("abc", None);
        assert_eq!(labels["sandbar.pid"], std::process::id().to_string());
        assert!(labels["sandbar.pid-started"].parse::<u64>().is_ok_and(|ticks| ticks > 0), "{labels:?}");
        assert_eq!(labels["sandbar.boot"].len(), 36);
        assert_eq!((labels[LIFETIME].as_str(), labels.get(SEAL)), ("bound", None));
        let detached = owned("abc", Some("xyz"));
        assert_eq!((detached[LIFETIME].as_str(), detached[SEAL].as_str()), ("detached", "xyz"));
    }
}
