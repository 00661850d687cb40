//! Finds where this process can create control groups, or why it cannot, from what the kernel shows.
//!
//! In version 1 every controller has its own hierarchy, and a group is created below this process's own. In version 2 a
//! group that contains processes cannot limit groups below it, so the new group is created beside this process's own,
//! if the administrator (or the user's session, as set up by `systemd-run --user --scope`) allows it.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
};

use rustix::fs::{Access, AtFlags, CWD, accessat};

/// A resource that a control group can limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Controller {
    /// Memory of all processes together.
    Memory,
    /// Processor time of all processes together.
    Cpu,
    /// Processes and threads.
    Pids,
}

impl Controller {
    /// All controllers.
    pub const ALL: [Self; 3] = [Self::Memory, Self::Cpu, Self::Pids];

    /// The kernel's name of the controller.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Cpu => "cpu",
            Self::Pids => "pids",
        }
    }
}

impl fmt::Display for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Version of control groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// One hierarchy for each controller.
    One,
    /// One hierarchy for all.
    Two,
}

/// A cgroup directory in which a group for one controller can be created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CgroupDir {
    /// The controller.
    pub controller: Controller,
    /// The cgroup version, which decides the file names.
    pub version: Version,
    /// Directory in which the group is created.
    pub parent: PathBuf,
    /// Whether the controller is already enabled for groups in `parent`; if not, it must be enabled first.
    pub given: bool,
}

/// Access to the host's files.
trait Host {
    fn read(&self, path: &Path) -> Option<String>;
    fn may_write(&self, path: &Path) -> bool;
}

struct This;

impl Host for This {
    fn read(&self, path: &Path) -> Option<String> {
        fs::read_to_string(path).ok()
    }

    fn may_write(&self, path: &Path) -> bool {
        accessat(CWD, path, Access::WRITE_OK, AtFlags::EACCESS).is_ok()
    }
}

/// Finds where this process can create a group for a controller.
///
/// # Errors
/// Says why it cannot, as text for users.
pub fn place(controller: Controller) -> Result<CgroupDir, String> {
    let own = This.read(Path::new("/proc/self/cgroup")).unwrap_or_default();
    let mounts = This.read(Path::new("/proc/self/mountinfo")).unwrap_or_default();
    find(controller, &own, &mounts, &This)
}

fn find(controller: Controller, own: &str, mounts: &str, host: &impl Host) -> Result<CgroupDir, String> {
    for line in own.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(number), Some(list), Some(path)) = (fields.next(), fields.next(), fields.next()) else { continue };
        if number != "0" && list.split(',').any(|name| name == controller.name()) {
            return first(controller, path, mounts, host);
        }
    }
    match own.lines().find_map(|line| line.strip_prefix("0::")) {
        Some(path) => second(controller, path, mounts, host),
        None => Err("this kernel has no control groups".to_owned()),
    }
}

fn first(controller: Controller, path: &str, mounts: &str, host: &impl Host) -> Result<CgroupDir, String> {
    let is_its = |kind: &str, options: &str| kind == "cgroup" && options.split(',').any(|one| one == controller.name());
    let (_, own) = shown(path, mounts, is_its).ok_or_else(|| format!("the {controller} hierarchy is not mounted"))?;
    if !host.may_write(&own) {
        return Err(format!("this user may not write to {}", own.display()));
    }
    Ok(CgroupDir { controller, version: Version::One, parent: own, given: true })
}

fn second(controller: Controller, path: &str, mounts: &str, host: &impl Host) -> Result<CgroupDir, String> {
    let (top, own) = shown(path, mounts, |kind, _| kind == "cgroup2").ok_or("control groups are not mounted")?;
    // Only the root group of a host has no type.
    let parent = match (host.read(&own.join("cgroup.type")), own.parent()) {
        (None, _) => own.as_path(),
        (Some(_), Some(parent)) if own != top => parent,
        _ => {
            let what =
                "the group of this process is the topmost one it sees, and with processes in it cannot limit others";
            return Err(format!("{what}: {}", own.display()));
        }
    };
    let lists = |file: &str| {
        let text = host.read(&parent.join(file)).unwrap_or_default();
        text.split_whitespace().any(|name| name == controller.name())
    };
    if !lists("cgroup.controllers") {
        return Err(format!("{} has no {controller} controller to give", parent.display()));
    }
    for needed in ["", "cgroup.procs"] {
        let needed = if needed.is_empty() { parent.to_owned() } else { parent.join(needed) };
        if !host.may_write(&needed) {
            return Err(format!("this user may not write to {}", needed.display()));
        }
    }
    let given = lists("cgroup.subtree_control");
    let busy = parent != own && host.read(&parent.join("cgroup.procs")).is_some_and(|pids| !pids.trim().is_empty());
    if !given && (busy || !host.may_write(&parent.join("cgroup.subtree_control"))) {
        return Err(format!("{} does not give the {controller} controller to the groups in it", parent.display()));
    }
    Ok(CgroupDir { controller, version: Version::Two, parent: parent.to_owned(), given })
}

/// Mount point of a hierarchy, and the path of a group below it.
fn shown(path: &str, mounts: &str, is_its: impl Fn(&str, &str) -> bool) -> Option<(PathBuf, PathBuf)> {
    mounts.lines().find_map(|line| {
        let (place, kind) = line.split_once(" - ")?;
        let mut kind = kind.split(' ');
        if !is_its(kind.next()?, kind.nth(1)?) {
            return None;
        }
        let mut place = place.split(' ').skip(3);
        let (root, top) = (place.next()?, Path::new(place.next()?));
        let below = Path::new(path).strip_prefix(root).ok()?;
        Some((top.to_owned(), if below.as_os_str().is_empty() { top.to_owned() } else { top.join(below) }))
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[derive(Default)]
    struct Fake {
        files: HashMap<PathBuf, String>,
        writable: Vec<PathBuf>,
    }

    impl Fake {
        fn file(mut self, path: &str, text: &str) -> Self {
            self.files.insert(path.into(), text.to_owned());
            self
        }

        fn writable(mut self, paths: &[&str]) -> Self {
            self.writable.extend(paths.iter().map(PathBuf::from));
            self
        }
    }

    impl Host for Fake {
        fn read(&self, path: &Path) -> Option<String> {
            self.files.get(path).cloned()
        }

        fn may_write(&self, path: &Path) -> bool {
            self.writable.iter().any(|known| known == path)
        }
    }

    const HYBRID: &str = "30 1 0:26 / /cg/memory rw - cgroup cgroup rw,memory\n\
                          31 1 0:27 / /cg/cpu rw - cgroup cgroup rw,cpu,cpuacct\n\
                          32 1 0:28 / /cg/unified rw - cgroup2 cgroup2 rw\n";
    const UNIFIED: &str = "30 1 0:26 / /cg rw - cgroup2 cgroup2 rw,nsdelegate\n";

    #[test]
    fn in_the_first_version_a_group_goes_below_ones_own() {
        let own = "4:memory:/jobs/a\n2:cpu,cpuacct:/\n0::/\n";
        let host = Fake::default().writable(&["/cg/memory/jobs/a"]);
        let found = find(Controller::Memory, own, HYBRID, &host).expect("a place");
        assert_eq!((found.version, found.parent), (Version::One, "/cg/memory/jobs/a".into()));
        let why = find(Controller::Cpu, own, HYBRID, &host).expect_err("not writable");
        assert!(why.contains("/cg/cpu"), "{why}");
        let why = find(Controller::Pids, own, HYBRID, &host).expect_err("nowhere");
        assert!(why.contains("pids"), "{why}");
    }

    #[test]
    fn a_container_that_sees_only_its_own_part_finds_it() {
        let mounts = "30 1 0:26 /docker/abc /cg/memory ro - cgroup cgroup rw,memory\n";
        let host = Fake::default().writable(&["/cg/memory"]);
        let found = find(Controller::Memory, "4:memory:/docker/abc\n", mounts, &host).expect("a place");
        assert_eq!(found.parent, Path::new("/cg/memory"));
    }

    fn delegated() -> Fake {
        Fake::default()
            .file("/cg/user/app/run.scope/cgroup.type", "domain\n")
            .file("/cg/user/app/cgroup.controllers", "memory pids\n")
            .file("/cg/user/app/cgroup.subtree_control", "memory\n")
            .file("/cg/user/app/cgroup.procs", "")
    }

    #[test]
    fn in_the_second_version_a_delegated_group_goes_beside_ones_own() {
        let own = "0::/user/app/run.scope\n";
        let ours = ["/cg/user/app", "/cg/user/app/cgroup.procs"];
        let host = delegated().writable(&ours);
        let found = find(Controller::Memory, own, UNIFIED, &host).expect("a place");
        assert_eq!((found.version, found.given), (Version::Two, true));
        assert_eq!(found.parent, Path::new("/cg/user/app"));
        let why = |controller, host: &Fake| find(controller, own, UNIFIED, host).expect_err("refused");
        assert!(why(Controller::Cpu, &host).contains("no cpu controller"), "not delegated");
        assert!(why(Controller::Pids, &host).contains("does not give"), "not switched on, and not ours to");
        assert!(why(Controller::Memory, &delegated()).contains("may not write"), "not writable");
        assert!(why(Controller::Memory, &delegated().writable(&ours[..1])).contains("cgroup.procs"));
        let host = delegated().writable(&ours).writable(&["/cg/user/app/cgroup.subtree_control"]);
        assert!(!find(Controller::Pids, own, UNIFIED, &host).expect("can be switched on").given);
        let host = host.file("/cg/user/app/cgroup.procs", "7\n");
        assert!(why(Controller::Pids, &host).contains("does not give"), "processes are in the way");
    }

    #[test]
    fn the_first_group_of_a_host_may_have_processes_and_a_containers_may_not() {
        let root = Fake::default()
            .file("/cg/cgroup.controllers", "cpu memory pids\n")
            .file("/cg/cgroup.subtree_control", "cpu memory pids\n")
            .file("/cg/cgroup.procs", "1\n2\n")
            .writable(&["/cg", "/cg/cgroup.procs"]);
        assert_eq!(find(Controller::Cpu, "0::/\n", UNIFIED, &root).expect("a place").parent, Path::new("/cg"));
        let container = root.file("/cg/cgroup.type", "domain\n");
        let why = find(Controller::Cpu, "0::/\n", UNIFIED, &container).expect_err("refused");
        assert!(why.contains("topmost"), "{why}");
    }

    #[test]
    fn malformed_files_give_an_error() {
        for (own, mounts) in [("", ""), ("0::/\n", ""), ("x\n::\n", "x - y\n"), ("0::/../x\n", UNIFIED)] {
            assert!(find(Controller::Memory, own, mounts, &Fake::default()).is_err(), "{own:?}");
        }
    }
}
