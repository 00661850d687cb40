//! Which limits control groups can enforce for local machines of this user, and why they cannot enforce the others.

use serde::Serialize;

/// The control group version of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CgroupVersion {
    /// No control groups.
    None,
    /// Version 1: one hierarchy per controller.
    V1,
    /// Version 2: one hierarchy for all controllers.
    V2,
    /// Both versions are mounted.
    Hybrid,
}

/// Whether a control group can enforce one limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ControllerState {
    /// Name of the controller: `memory`, `cpu` or `pids`.
    pub name: String,
    /// Whether machines that this process starts get the controller.
    pub usable: bool,
    /// Why the controller is not usable.
    pub missing: Option<String>,
}

/// State of the host's control groups, as far as local machines can use them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CgroupState {
    /// The version that the host has mounted.
    pub version: CgroupVersion,
    /// The controllers for memory, processors and processes, in this order.
    pub controllers: Vec<ControllerState>,
    /// What to do if a controller is not usable.
    pub fix: Option<String>,
}

impl CgroupState {
    /// Why a control group cannot enforce this limit; `None` if it can.
    #[must_use]
    pub fn missing(&self, name: &str) -> Option<&str> {
        self.controllers.iter().find(|one| one.name == name)?.missing.as_deref()
    }
}

const FIX: &str = "start sandbar as root, or, on a host with control groups of version 2 and systemd, with \
                   `systemd-run --user --scope sandbar …`";

/// Reads the state of the host's control groups; changes nothing.
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
    fn the_version_is_read_from_the_mounts() {
        let one = "30 1 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
        let two = "31 1 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        assert_eq!(version(""), CgroupVersion::None);
        assert_eq!(version(one), CgroupVersion::V1);
        assert_eq!(version(two), CgroupVersion::V2);
        assert_eq!(version(&format!("{one}{two}")), CgroupVersion::Hybrid);
    }

    #[test]
    fn an_unusable_controller_says_why_and_what_to_do() {
        let state = cgroups();
        for one in &state.controllers {
            assert_eq!(one.usable, one.missing.is_none(), "{one:?}");
            assert_eq!(state.missing(&one.name).is_some(), !one.usable);
        }
        assert_eq!(state.controllers.len(), 3);
        assert_eq!(state.fix.is_some(), state.controllers.iter().any(|one| !one.usable));
    }
}
