//! The machine's own control groups: created before PID 1 starts anything, removed when it has ended, swept later if
//! its supervisor died.

use std::{
    ffi::OsStr,
    fs, io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use rustix::{
    fs::{AtFlags, Mode, OFlags},
    io::Errno,
};
use sandbar_guest::{
    cgroup::{CgroupDir, Controller, Version, place},
    protocol::{Launch, Level},
};

use crate::{handles::NEW_FILE, sys::process::signal};

/// File in a machine's directory that lists the machine's groups.
const RECORD: &str = "cgroups";
/// Prefix of a group's name, before the machine's id.
const PREFIX: &str = "sandbar-";
/// How often the removal of a group is tried, 1 ms apart: its last processes may take a while to exit.
const TRIES: u32 = 10_000;
/// Number of tries after which processes still in a group are killed.
const PATIENT_TRIES: u32 = 20;
const CGROUP: i64 = 0x27_e0eb;
const CGROUP2: i64 = 0x6367_7270;
/// Accounting period of processor shares in microseconds.
const PERIOD: u64 = 100_000;

/// Limits that the kernel enforces, as one byte for PID 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hard(u8);

impl Hard {
    /// Set in every encoded byte, so that no limits at all are not encoded as zero.
    const MARK: u8 = 0x40;

    fn bit(controller: Controller) -> u8 {
        match controller {
            Controller::Memory => 1,
            Controller::Cpu => 2,
            Controller::Pids => 4,
        }
    }

    pub(crate) fn has(self, controller: Controller) -> bool {
        self.0 & Self::bit(controller) != 0
    }

    pub(crate) fn byte(self) -> u8 {
        self.0 | Self::MARK
    }

    pub(crate) fn of(byte: u8) -> Self {
        Self(byte & !Self::MARK)
    }
}

/// A group, and the controllers it limits.
struct Made {
    dir: PathBuf,
    holds: Vec<Controller>,
}

/// The groups of one machine; empty if no limit needs them or the host offers none.
#[derive(Default)]
pub(crate) struct Groups {
    made: Vec<Made>,
    oom: Option<OwnedFd>,
}

impl Groups {
    /// Creates groups for the machine's limits, as far as this user may.
    pub(crate) fn make(launch: &Launch, state: BorrowedFd<'_>) -> Self {
        Self::make_at(wanted(launch).into_iter().filter_map(|one| place(one).ok()).collect(), launch, state)
    }

    fn make_at(places: Vec<CgroupDir>, launch: &Launch, state: BorrowedFd<'_>) -> Self {
        let mut groups = Self::default();
        let name = [PREFIX.as_bytes(), &launch.id].concat();
        let dirs: Vec<PathBuf> = places.iter().map(|place| place.parent.join(OsStr::from_bytes(&name))).collect();
        // Recorded before the first group is created, so that a sweep finds them after a power cut.
        if dirs.is_empty() || record(state, &dirs).is_err() {
            return groups;
        }
        for (place, dir) in places.iter().zip(dirs) {
            if !place.given {
                let _seen_below =
                    fs::write(place.parent.join("cgroup.subtree_control"), format!("+{}", place.controller));
            }
            let known = groups.made.iter().position(|made| made.dir == dir);
            if known.is_none() && fs::create_dir(&dir).is_err() {
                continue;
            }
            let holds = limit(launch, &dir, place.controller, place.version).is_ok();
            match known.and_then(|index| groups.made.get_mut(index)) {
                Some(made) => made.holds.extend(holds.then_some(place.controller)),
                None => {
                    groups.made.push(Made {
                        dir: dir.clone(),
                        holds: holds.then_some(place.controller).into_iter().collect(),
                    });
                }
            }
            if holds && place.controller == Controller::Memory {
                groups.oom = open_deaths(&dir);
            }
        }
        groups.drop_unless(|made| !made.holds.is_empty());
        groups
    }

    /// The file that counts out-of-memory kills; for PID 1 to keep open.
    pub(crate) fn take_deaths(&mut self) -> Option<OwnedFd> {
        self.oom.take()
    }

    /// Puts a process into all groups; groups where that fails are dropped.
    pub(crate) fn enter(&mut self, pid: i32) -> Hard {
        self.drop_unless(|made| fs::write(made.dir.join("cgroup.procs"), pid.to_string()).is_ok());
        let holds = self.made.iter().flat_map(|made| &made.holds);
        Hard(holds.fold(0, |all, controller| all | Hard::bit(*controller)))
    }

    fn drop_unless(&mut self, keep: impl Fn(&Made) -> bool) {
        self.made.retain(|made| {
            let kept = keep(made);
            if !kept {
                let _swept_later = fs::remove_dir(&made.dir);
            }
            kept
        });
    }

    /// Removes the groups, once no process of the machine is left.
    pub(crate) fn remove(&self) -> io::Result<()> {
        let removed: Vec<_> = self.made.iter().map(|made| remove(&made.dir)).collect();
        removed.into_iter().collect()
    }
}

/// Controllers that are needed. Processes are also counted per user by RLIMIT_NPROC: for a machine with one user and
/// its own namespace that is enough, and cheaper than a group.
fn wanted(launch: &Launch) -> Vec<Controller> {
    let limited = launch.memory.is_some() || launch.cpus.is_some();
    let pids = limited || launch.level != Level::Full || launch.accounts.need_many();
    let asked = [
        (Controller::Memory, launch.memory.is_some()),
        (Controller::Cpu, launch.cpus.is_some()),
        (Controller::Pids, pids),
    ];
    asked.into_iter().filter(|(_, wanted)| *wanted).map(|(controller, _)| controller).collect()
}

fn limit(launch: &Launch, dir: &Path, controller: Controller, version: Version) -> io::Result<()> {
    let set = |file: &str, value: String| fs::write(dir.join(file), value);
    match (controller, version) {
        (Controller::Memory, Version::One) => {
            let bytes = launch.memory.unwrap_or(u64::MAX).to_string();
            set("memory.limit_in_bytes", bytes.clone())?;
            // Not every kernel accounts swap.
            let _no_swap_counted = set("memory.memsw.limit_in_bytes", bytes);
            Ok(())
        }
        (Controller::Memory, Version::Two) => {
            set("memory.max", launch.memory.unwrap_or(u64::MAX).to_string())?;
            let _no_swap_counted = set("memory.swap.max", "0".to_owned());
            Ok(())
        }
        (Controller::Cpu, Version::One) => {
            set("cpu.cfs_period_us", PERIOD.to_string())?;
            set("cpu.cfs_quota_us", quota(launch).to_string())
        }
        (Controller::Cpu, Version::Two) => set("cpu.max", format!("{} {PERIOD}", quota(launch))),
        // The guest does not count as one of the machine's processes.
        (Controller::Pids, _) => set("pids.max", launch.pids.saturating_add(1).min(1 << 22).to_string()),
    }
}

fn quota(launch: &Launch) -> u64 {
    u64::from(launch.cpus.unwrap_or(u32::MAX)) * PERIOD / 1000
}

/// Opens the file that counts out-of-memory kills, whose name depends on the cgroup version.
pub(crate) fn open_deaths(dir: &Path) -> Option<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let names = ["memory.events", "memory.oom_control"];
    let opened = names.into_iter().find_map(|name| rustix::fs::open(dir.join(name), flags, Mode::empty()).ok())?;
    deaths(opened.as_fd()).is_some().then_some(opened)
}

/// Number of out-of-memory kills so far.
pub(crate) fn deaths(file: BorrowedFd<'_>) -> Option<u64> {
    let mut text = [0; 512];
    let length = rustix::io::pread(file, &mut text, 0).ok()?;
    let text = std::str::from_utf8(text.get(..length)?).ok()?;
    text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

fn record(state: BorrowedFd<'_>, dirs: &[PathBuf]) -> io::Result<()> {
    let file = rustix::fs::openat(state, RECORD, NEW_FILE, Mode::from_raw_mode(0o600))?;
    let lines: Vec<&[u8]> = dirs.iter().map(|dir| dir.as_os_str().as_bytes()).collect();
    io::Write::write_all(&mut fs::File::from(file), &lines.join(&b'\n'))
}

/// Removes the groups of a machine that died without its supervisor, as recorded in its directory. An error if one is
/// left.
pub(crate) fn sweep(state: BorrowedFd<'_>, id: &[u8]) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = match rustix::fs::openat(state, RECORD, flags, Mode::empty()) {
        Ok(file) => fs::File::from(file),
        Err(Errno::NOENT) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    let mut text = Vec::new();
    io::Read::read_to_end(&mut io::Read::take(file, 64 * 1024), &mut text)?;
    let name = [PREFIX.as_bytes(), id].concat();
    for line in text.split(|byte| *byte == b'\n') {
        let dir = Path::new(OsStr::from_bytes(line));
        // The file may have been tampered with: only control groups with this machine's name are touched.
        if dir.file_name() == Some(OsStr::from_bytes(&name)) && is_group(dir) {
            remove(dir)?;
        }
    }
    Ok(())
}

fn is_group(dir: &Path) -> bool {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let kind = rustix::fs::open(dir, flags, Mode::empty()).and_then(|dir| rustix::fs::fstatfs(&dir));
    kind.is_ok_and(|found| matches!(found.f_type, CGROUP | CGROUP2))
}

fn remove(dir: &Path) -> io::Result<()> {
    for attempt in 0..TRIES {
        match rustix::fs::unlinkat(rustix::fs::CWD, dir, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            Err(Errno::BUSY) => {}
            Err(error) => return Err(error.into()),
        }
        if attempt >= PATIENT_TRIES {
            let pids = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
            for pid in pids.lines().filter_map(|line| line.parse::<i32>().ok()).filter(|pid| *pid > 1) {
                signal(pid, libc::SIGKILL);
            }
        }
        thread::sleep(Duration::from_millis(1));
    }
    Err(Errno::BUSY.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_that_asks_for_nothing_gets_no_groups() {
        assert_eq!(wanted(&Launch::default()), []);
        let memory = Launch { memory: Some(1), ..Launch::default() };
        assert_eq!(wanted(&memory), [Controller::Memory, Controller::Pids]);
        let weak = Launch { level: Level::Landlock, ..Launch::default() };
        assert_eq!(wanted(&weak), [Controller::Pids], "nothing else counts processes there");
        assert_eq!(quota(&Launch { cpus: Some(1500), ..Launch::default() }), 150_000);
    }

    #[test]
    fn what_holds_fits_a_byte_that_is_never_zero() {
        let hard = Hard(Hard::bit(Controller::Memory) | Hard::bit(Controller::Pids));
        assert_eq!(Hard::of(hard.byte()), hard);
        assert!(hard.has(Controller::Memory) && !hard.has(Controller::Cpu));
        assert_ne!(Hard::default().byte(), 0);
    }

    #[test]
    fn only_a_group_of_the_machines_own_name_is_swept() {
        let dir = std::env::temp_dir().join(format!("sandbar-groups-{}", std::process::id()));
        let kept = dir.join("sandbar-0123456789abcdef");
        fs::create_dir_all(&kept).unwrap();
        let state = rustix::fs::open(&dir, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
        sweep(state.as_fd(), b"0123456789abcdef").unwrap();
        record(state.as_fd(), &[kept.clone(), "/".into(), "relative".into()]).unwrap();
        sweep(state.as_fd(), b"0123456789abcdef").unwrap();
        assert!(kept.exists(), "it is no control group");
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn in_the_second_version_one_group_holds_everything() {
        let dir = std::env::temp_dir().join(format!("sandbar-second-{}", std::process::id()));
        let (state, parent) = (dir.join("state"), dir.join("parent"));
        fs::create_dir_all(&state).unwrap();
        fs::create_dir_all(&parent).unwrap();
        let launch = Launch {
            id: b"0123456789abcdef".to_vec(),
            memory: Some(1 << 30),
            cpus: Some(1500),
            pids: 64,
            ..Launch::default()
        };
        let place = |controller| CgroupDir {
            controller,
            version: Version::Two,
            parent: parent.clone(),
            given: controller != Controller::Cpu,
        };
        let places = Controller::ALL.map(place).to_vec();
        let held = rustix::fs::open(&state, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
        let mut groups = Groups::make_at(places, &launch, held.as_fd());
        let hard = groups.enter(42);
        assert!(Controller::ALL.into_iter().all(|controller| hard.has(controller)));
        let group = parent.join("sandbar-0123456789abcdef");
        let said = |file: &str| fs::read_to_string(group.join(file)).unwrap();
        assert_eq!(said("memory.max"), (1 << 30).to_string());
        assert_eq!(said("cpu.max"), "150000 100000");
        assert_eq!(said("pids.max"), "65");
        assert_eq!(said("cgroup.procs"), "42");
        assert_eq!(fs::read_to_string(parent.join("cgroup.subtree_control")).unwrap(), "+cpu");
        let recorded = fs::read_to_string(state.join(RECORD)).unwrap();
        assert!(recorded.lines().all(|line| Path::new(line) == group), "{recorded}");
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn deaths_are_read_from_either_version() {
        let path = std::env::temp_dir().join(format!("sandbar-deaths-{}", std::process::id()));
        for (text, found) in [
            ("low 0\nhigh 0\nmax 9\noom 4\noom_kill 3\noom_group_kill 0\n", Some(3)),
            ("oom_kill_disable 0\nunder_oom 0\noom_kill 12\n", Some(12)),
            ("nothing\n", None),
        ] {
            fs::write(&path, text).unwrap();
            assert_eq!(deaths(fs::File::open(&path).unwrap().as_fd()), found);
        }
        fs::remove_file(path).unwrap();
    }
}
