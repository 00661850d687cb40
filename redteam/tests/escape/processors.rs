//! A cpu control group: its processes share the processors among themselves, whatever sessions they are in.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use crate::escape::rig::{SOON, token};

/// Removed when it is dropped, if its processes have ended.
pub(crate) struct CpuGroup(PathBuf);

impl CpuGroup {
    pub(crate) fn new() -> Self {
        let root = ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup"].map(Path::new).into_iter().find(|root| root.is_dir());
        let root = root.expect("control groups");
        // Only version 2 has this file, and it may be set already.
        let _version_one = fs::write(root.join("cgroup.subtree_control"), "+cpu");
        let group = root.join(format!("redteam-{}", token()));
        fs::create_dir(&group).expect("a control group");
        Self(group)
    }

    pub(crate) fn name(&self) -> String {
        self.0.file_name().expect("a name").to_string_lossy().into_owned()
    }

    /// Moves a process there; what it starts from then on is there, too.
    pub(crate) fn take(&self, pid: u32) {
        fs::write(self.0.join("cgroup.procs"), pid.to_string()).expect("it can be moved");
    }

    /// In the suite's process: waits until it is in the group that it was promised, if any.
    pub(crate) fn wait_until_taken() {
        let Ok(name) = std::env::var("REDTEAM_GROUP") else { return };
        let start = Instant::now();
        while !fs::read_to_string("/proc/self/cgroup").is_ok_and(|groups| groups.contains(&name)) {
            assert!(start.elapsed() < SOON, "nothing moved this process to {name}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for CpuGroup {
    fn drop(&mut self) {
        // Its processes may still be ending.
        for _ in 0..1000 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
