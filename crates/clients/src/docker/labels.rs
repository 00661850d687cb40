//! Who a container belongs to, in labels: enough to tell, later and from outside, whether that process still lives.

use std::{collections::HashMap, fs};

use rustix::{process::getuid, system::uname};

/// The labels of one machine.
pub(super) fn owned(session: &str) -> HashMap<String, String> {
    let host = uname();
    let labels = [
        ("sandbar.session", session.to_owned()),
        ("sandbar.owner", format!("{}@{}", getuid().as_raw(), host.nodename().to_string_lossy())),
        // Numbers of processes mean something only until the host starts again.
        ("sandbar.boot", line("/proc/sys/kernel/random/boot_id")),
        ("sandbar.pid", std::process::id().to_string()),
        ("sandbar.pid-started", started().unwrap_or_default()),
    ];
    labels.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
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
        let labels = owned("abc");
        assert_eq!(labels["sandbar.pid"], std::process::id().to_string());
        assert!(labels["sandbar.pid-started"].parse::<u64>().is_ok_and(|ticks| ticks > 0), "{labels:?}");
        assert_eq!(labels["sandbar.boot"].len(), 36);
    }
}
