//! The control groups of this host, and which of them this user could limit a machine with.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde::Serialize;

/// Kinds of groups whose controllers a machine could be limited with.
const WANTED: [&str; 3] = ["memory", "pids", "cpu"];

/// How control groups are mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Layout {
    /// One tree for every controller.
    V2,
    /// A tree for each.
    V1,
    /// A tree for each, and one without controllers beside them.
    Hybrid,
    /// None to be seen.
    None,
}

/// The control groups of this host as this process sees them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cgroups {
    /// How they are mounted.
    pub layout: Layout,
    /// Controllers below whose group of this process this user can make groups of its own.
    pub writable: Vec<String>,
    /// Controllers that are there, and that this user cannot use.
    pub closed: Vec<String>,
}

impl Cgroups {
    /// Looks at them; nothing is changed.
    #[must_use]
    pub fn look() -> Self {
        let text = |path| fs::read_to_string(path).unwrap_or_default();
        Self::of(&text("/proc/self/mountinfo"), &text("/proc/self/cgroup"), &Disk)
    }

    fn of(mounts: &str, own: &str, host: &dyn Host) -> Self {
        let trees: Vec<Tree> = mounts.lines().filter_map(Tree::read).collect();
        let (unified, split): (Vec<&Tree>, Vec<&Tree>) = trees.iter().partition(|tree| tree.controllers.is_none());
        let layout = match (unified.is_empty(), split.is_empty()) {
            (true, true) => Layout::None,
            (false, true) => Layout::V2,
            (true, false) => Layout::V1,
            (false, false) => Layout::Hybrid,
        };
        let (mut writable, mut closed) = (Vec::new(), Vec::new());
        for tree in &trees {
            let Some(group) = tree.group(own, host) else { continue };
            let controllers = tree.controllers.clone().unwrap_or_else(|| host.controllers(&group));
            let place = if host.can_divide(&group) { &mut writable } else { &mut closed };
            place.extend(controllers.into_iter().filter(|name| WANTED.contains(&name.as_str())));
        }
        for names in [&mut writable, &mut closed] {
            names.sort_unstable();
            names.dedup();
        }
        closed.retain(|name| !writable.contains(name));
        Self { layout, writable, closed }
    }
}

/// One mounted tree of groups.
struct Tree {
    /// What of the tree is mounted, and where.
    root: String,
    at: PathBuf,
    /// Nothing for the one tree that has them all.
    controllers: Option<Vec<String>>,
}

impl Tree {
    /// Reads a line of `mountinfo`, if it is about one; those that only name processes have no controllers.
    fn read(line: &str) -> Option<Self> {
        let (before, after) = line.split_once(" - ")?;
        let mut before = before.split(' ').skip(3);
        let (root, at) = (before.next()?.to_owned(), PathBuf::from(before.next()?));
        let mut after = after.split(' ');
        let (kind, options) = (after.next()?, after.nth(1).unwrap_or_default());
        let controllers = match kind {
            "cgroup2" => None,
            "cgroup" if options.contains("name=") => return None,
            "cgroup" => {
                let names = options.split(',').filter(|name| !matches!(*name, "rw" | "ro"));
                Some(names.map(str::to_owned).collect())
            }
            _ => return None,
        };
        Some(Self { root, at, controllers })
    }

    /// The directory of this process's own group.
    fn group(&self, own: &str, host: &dyn Host) -> Option<PathBuf> {
        let path = own.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            let (names, path) = (parts.next()?, parts.next()?);
            let fits = match &self.controllers {
                None => names.is_empty(),
                Some(controllers) => names.split(',').any(|name| controllers.iter().any(|known| known == name)),
            };
            fits.then_some(path)
        })?;
        let below = path.strip_prefix(self.root.trim_end_matches('/')).unwrap_or(path);
        let group = self.at.join(below.trim_start_matches('/'));
        // A group outside of what is mounted here cannot be named.
        let is_inside = !Path::new(below).components().any(|part| part.as_os_str() == "..");
        Some(if is_inside && host.is_group(&group) { group } else { self.at.clone() })
    }
}

/// What has to be asked of the host.
trait Host {
    fn is_group(&self, group: &Path) -> bool;
    fn can_divide(&self, group: &Path) -> bool;
    fn controllers(&self, group: &Path) -> Vec<String>;
}

struct Disk;

impl Host for Disk {
    fn is_group(&self, group: &Path) -> bool {
        group.join("cgroup.procs").exists()
    }

    fn can_divide(&self, group: &Path) -> bool {
        [group, &group.join("cgroup.procs")].iter().all(|path| is_writable(path))
    }

    fn controllers(&self, group: &Path) -> Vec<String> {
        let text = fs::read_to_string(group.join("cgroup.controllers")).unwrap_or_default();
        text.split_whitespace().map(str::to_owned).collect()
    }
}

#[cfg(target_os = "linux")]
fn is_writable(path: &Path) -> bool {
    rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_ok()
}

#[cfg(not(target_os = "linux"))]
fn is_writable(_path: &Path) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A host on which some groups are this user's.
    struct Fake(&'static [&'static str]);

    impl Host for Fake {
        fn is_group(&self, group: &Path) -> bool {
            !group.ends_with("missing")
        }
        fn can_divide(&self, group: &Path) -> bool {
            self.0.iter().any(|path| Path::new(path) == group)
        }
        fn controllers(&self, _group: &Path) -> Vec<String> {
            ["cpuset", "cpu", "memory", "pids"].map(str::to_owned).to_vec()
        }
    }

    const V2: &str = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";
    const V1: &str = "\
        31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n\
        32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
        35 31 0:32 /mine /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
        40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd\n";
    const UNIFIED: &str = "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";

    #[test]
    fn a_layout_is_told_by_what_is_mounted() {
        let table = [
            (String::new(), Layout::None),
            ("garbage\n - cgroup2\n1 2 3 - cgroup x\n".to_owned(), Layout::None),
            (V2.to_owned(), Layout::V2),
            (V1.to_owned(), Layout::V1),
            ([V1, UNIFIED].concat(), Layout::Hybrid),
        ];
        for (mounts, layout) in table {
            assert_eq!(Cgroups::of(&mounts, "", &Fake(&[])).layout, layout, "{mounts}");
        }
    }

    #[test]
    fn a_controller_counts_as_writable_where_the_own_group_can_be_divided() {
        let seen = |mounts: &str, own: &str, mine: &'static [&'static str]| {
            let Cgroups { writable, closed, .. } = Cgroups::of(mounts, own, &Fake(mine));
            (writable.join(" "), closed.join(" "))
        };
        let is = |writable: &str, closed: &str| (writable.to_owned(), closed.to_owned());
        let own = "0::/user.slice/me\n";
        assert_eq!(seen(V2, own, &["/sys/fs/cgroup/user.slice/me"]), is("cpu memory pids", ""));
        assert_eq!(seen(V2, own, &["/sys/fs/cgroup"]), is("", "cpu memory pids"));
        // What is not shown here is as good as the nearest that is.
        assert_eq!(seen(V2, "0::/missing\n", &["/sys/fs/cgroup"]), is("cpu memory pids", ""));
        assert_eq!(seen(V2, "0::/../up\n", &["/sys/fs/cgroup"]), is("cpu memory pids", ""));
        let own = "4:memory:/mine/deep\n1:cpu,cpuacct:/\n0::/\n";
        assert_eq!(seen(V1, own, &["/sys/fs/cgroup/memory/deep"]), is("memory", "cpu"));
        assert_eq!(seen(V1, "", &["/sys/fs/cgroup/memory"]), is("", ""));
    }

    #[test]
    fn this_host_can_be_looked_at() {
        let here = Cgroups::look();
        assert!(here.writable.iter().all(|name| WANTED.contains(&name.as_str())), "{here:?}");
    }
}
