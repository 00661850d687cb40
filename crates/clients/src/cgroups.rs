//! Which limits control groups can hold for local machines of this user, and why not the others.

use serde::Serialize;

/// The versions of control groups a host has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CgroupVersion {
    /// It has none.
    None,
    /// The first: a hierarchy for each controller.
    V1,
    /// The second: one hierarchy for all.
    V2,
    /// Both at once.
    Hybrid,
}

/// Whether a control group can hold one limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ControllerState {
    /// Which: `memory`, `cpu` or `pids`.
    pub name: String,
    /// Whether machines of this user, started from where this process is, get it.
    pub usable: bool,
    /// Why not.
    pub missing: Option<String>,
}

/// What control groups can do for local machines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CgroupState {
    /// What the host has.
    pub version: CgroupVersion,
    /// Memory, processors and processes, in this order.
    pub controllers: Vec<ControllerState>,
    /// What to do, when something is missing.
    pub fix: Option<String>,
}

impl CgroupState {
    /// Why a limit cannot be held by a control group; `None` when it can.
    #[must_use]
    pub fn missing(&self, name: &str) -> Option<&str> {
        self.controllers.iter().find(|one| one.name == name)?.missing.as_deref()
    }
}

const FIX: &str = "start sandbar as root, or, where the host has control groups of version 2 and systemd, with \
                   `systemd-run --user --scope sandbar …`";

/// Looks at the host; makes nothing.
#[must_use]
pub fn cgroups() -> CgroupState {
    let controllers = controllers();
    let fix = controllers.iter().any(|one| !one.usable).then(|| FIX.to_owned());
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    CgroupState { version: version(&mounts), controllers, fix }
}

#[cfg(target_os = "linux")]
fn controllers() -> Vec<ControllerState> {
    use sandbar_guest::cgroup::{Controller, place};
    let state = |controller: Controller| {
        let missing = place(controller).err();
        ControllerState { name: controller.name().to_owned(), usable: missing.is_none(), missing }
    };
    Controller::ALL.into_iter().map(state).collect()
}

#[cfg(not(target_os = "linux"))]
fn controllers() -> Vec<ControllerState> {
    let missing = || Some("control groups are a part of Linux".to_owned());
    let state = |name: &str| ControllerState { name: name.to_owned(), usable: false, missing: missing() };
    ["memory", "cpu", "pids"].map(state).into()
}

fn version(mounts: &str) -> CgroupVersion {
    let has = |wanted: &str| {
        let kind = |line: &str| line.split_once(" - ").is_some_and(|(_, kind)| kind.split(' ').next() == Some(wanted));
        mounts.lines().any(kind)
    };
    match (has("cgroup"), has("cgroup2")) {
        (true, true) => CgroupVersion::Hybrid,
        (true, false) => CgroupVersion::V1,
        (false, true) => CgroupVersion::V2,
        (false, false) => CgroupVersion::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_mounted_tells_the_version() {
        let one = "30 1 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
        let two = "31 1 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        assert_eq!(version(""), CgroupVersion::None);
        assert_eq!(version(one), CgroupVersion::V1);
        assert_eq!(version(two), CgroupVersion::V2);
        assert_eq!(version(&format!("{one}{two}")), CgroupVersion::Hybrid);
    }

    #[test]
    fn what_cannot_be_held_says_why_and_what_to_do() {
        let state = cgroups();
        for one in &state.controllers {
            assert_eq!(one.usable, one.missing.is_none(), "{one:?}");
            assert_eq!(state.missing(&one.name).is_some(), !one.usable);
        }
        assert_eq!(state.controllers.len(), 3);
        assert_eq!(state.fix.is_some(), state.controllers.iter().any(|one| !one.usable));
    }
}
