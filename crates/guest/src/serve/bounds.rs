//! Limits that the guest enforces: memory if the kernel does not limit it, and disk usage. Checked only while something
//! runs.

mod descriptors;
mod memory;
pub(crate) mod usage;

use std::{
    os::fd::{AsFd, OwnedFd},
    path::Path,
    time::{Duration, Instant},
};

use rustix::fs::{Mode, OFlags};
use sandbar_guest::{
    cgroup::Controller,
    protocol::{ExitKind, FailKind, Launch, LimitStrengths, Strength},
};

use self::{
    descriptors::Descriptors,
    usage::{Count, Looker, Places},
};
use super::{
    channels::Channels,
    files::{Answer, Fail, access::FileAccess},
    process_trees::{ProcessTrees, signals},
};
use crate::{
    machine::group::{Hard, deaths, open_deaths},
    sys::{process::Ended, security::Token},
};

/// Interval between checks, and the shorter one when half of a limit is used up.
pub(super) const CALM: Duration = Duration::from_millis(100);
pub(super) const ALERT: Duration = Duration::from_millis(20);
/// How long one check may count before the server turns to its hosts again, and the pause before it goes on.
const TURN: Duration = Duration::from_millis(4);
const PAUSE: Duration = Duration::from_millis(10);
/// Longest count during which everything waits.
const STANDSTILL: Duration = Duration::from_secs(1);
/// How long the first count of a host directory may take.
const FIRST_COUNT: Duration = Duration::from_secs(5);
/// Bytes that a machine over its limit may gain before its commands are killed again.
const SLACK: u64 = 256 << 10;
/// Paths of a container's own control group, by cgroup version.
const CGROUPS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/memory"];
/// Exit codes of a shell whose command was killed by SIGKILL, or by SIGXFSZ for a file that grew too large.
const KILLED: i32 = 128 + libc::SIGKILL;
const TOO_LARGE: i32 = 128 + libc::SIGXFSZ;

/// The limits of a machine that need checking.
#[derive(Default)]
pub(crate) struct Bounds {
    /// Memory limit in bytes, if only the guest enforces it.
    memory: Option<u64>,
    /// File in which the kernel counts out-of-memory kills.
    deaths: Option<OwnedFd>,
    /// Makes the kernel prefer commands over the guest for out-of-memory kills.
    preference: Option<Preference>,
    disk: Option<Disk>,
    look_at: Option<Instant>,
    /// Memory and disk usage that only descriptors hold.
    pub(super) descriptors: Descriptors,
}

impl Bounds {
    /// Limits after those that the kernel enforces.
    pub(crate) fn new(launch: &Launch, hard: Hard, deaths: Option<OwnedFd>) -> Self {
        let by_kernel = hard.has(Controller::Memory);
        let deaths = deaths.filter(|_| by_kernel);
        let preference = deaths.as_ref().and_then(|_| Preference::open());
        Self { memory: launch.memory.filter(|_| !by_kernel), deaths, preference, ..Self::default() }
    }

    /// Without a memory limit, for levels where other processes cannot be inspected.
    pub(crate) fn without_memory(self) -> Self {
        Self { memory: None, descriptors: self.descriptors.without_memory(), ..self }
    }

    /// Limits in a container: the engine enforces what it can, and the guest the rest.
    pub(crate) fn in_container(launch: &Launch, token: Token, looker: Looker, places: &[&[u8]]) -> Self {
        let found =
            if launch.memory.is_none() { CGROUPS.iter().find_map(|dir| open_deaths(Path::new(dir))) } else { None };
        let preference = found.as_ref().and_then(|_| Preference::open());
        let bounds = Self { memory: launch.memory, deaths: found, preference, ..Self::default() };
        bounds.disk(launch, token, looker, places)
    }

    /// Adds the disk limit for these directories, of which the workspace is the last; a read-only workspace is not
    /// counted.
    pub(crate) fn disk(mut self, launch: &Launch, token: Token, looker: Looker, places: &[&[u8]]) -> Self {
        let places = match (&launch.workspace, places.split_last()) {
            (Some((_, false)), Some((_, others))) => others,
            _ => places,
        };
        self.disk = launch.disk.map(|limit| Disk::new(limit, token, looker, places));
        let devices = self.disk.as_ref().map(|disk| disk.places.devices()).unwrap_or_default();
        let names = self.disk.as_ref().map(|disk| disk.places.names()).unwrap_or_default();
        self.descriptors = Descriptors::new(devices, names, looker, launch.open_files);
        if self.memory.is_some() {
            self.descriptors = self.descriptors.with_memory();
        }
        self
    }

    /// Counts disk usage before anything runs; an error if it is above the limit or takes too long to count.
    pub(crate) fn first_count(&mut self) -> Result<(), String> {
        let Some(disk) = &mut self.disk else { return Ok(()) };
        let mut count = Count::new(&disk.places);
        let whole = count.go_on(&disk.places, Instant::now() + FIRST_COUNT);
        disk.used = count.sum;
        match whole {
            _ if count.sum > disk.limit => {
                Err(format!("the workspace already has {} bytes; its limit is {} bytes", count.sum, disk.limit))
            }
            true => Ok(()),
            false => Err("there are too many files in the workspace to watch its size".to_owned()),
        }
    }

    /// How strongly each limit is enforced.
    pub(crate) fn held(&self, hard: Hard) -> LimitStrengths {
        let by_kernel = |controller| if hard.has(controller) { Strength::Hard } else { Strength::None };
        let soft = |is_watched: bool| if is_watched { Strength::Soft } else { Strength::None };
        LimitStrengths {
            memory: if self.memory.is_some() { Strength::Soft } else { by_kernel(Controller::Memory) },
            cpu: by_kernel(Controller::Cpu),
            pids: by_kernel(Controller::Pids),
            disk: soft(self.disk.is_some()),
        }
    }

    /// Resource limit of each command, in addition to the machine's.
    pub(crate) fn rlimits(&self) -> Option<(u32, u64)> {
        // The kernel stops a single fast writer by itself.
        self.disk.as_ref().map(|disk| (libc::RLIMIT_FSIZE, disk.limit))
    }

    fn note_nameless(&mut self) {
        if let Some(disk) = &mut self.disk {
            disk.nameless = self.descriptors.disk();
        }
    }

    fn is_watched(&self) -> bool {
        self.memory.is_some() || self.disk.is_some()
    }

    /// Number of out-of-memory kills so far.
    pub(crate) fn deaths(&self) -> u64 {
        self.deaths.as_ref().and_then(|file| deaths(file.as_fd())).unwrap_or_default()
    }

    /// Which limit ended a command, from its exit code and the number of out-of-memory kills when it started.
    pub(crate) fn cause(&self, ended: &Ended, deaths_before: u64) -> Option<ExitKind> {
        match ended.code {
            KILLED if self.deaths() > deaths_before => Some(ExitKind::Memory),
            TOO_LARGE if self.disk.is_some() => Some(ExitKind::Disk),
            _ => None,
        }
    }

    /// Notes that a process ended which may have written to disk.
    pub(crate) fn changed(&mut self) {
        if let Some(disk) = &mut self.disk {
            (disk.stale, disk.unseen, disk.blurred) = (true, true, true);
        }
    }

    /// Runs `start`; the processes it starts are killed for lack of memory before the guest is.
    pub(crate) fn prefer<T>(&self, start: impl FnOnce() -> T) -> T {
        let Some(preference) = &self.preference else { return start() };
        preference.set(preference.commands);
        let started = start();
        preference.set(preference.own);
        started
    }
}

/// The kernel's `oom_score_adj` of this process, which children inherit.
struct Preference {
    file: OwnedFd,
    own: i32,
    commands: i32,
}

impl Preference {
    fn open() -> Option<Self> {
        let file = rustix::fs::open("/proc/self/oom_score_adj", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).ok()?;
        let mut text = [0; 16];
        let length = rustix::io::read(&file, &mut text).ok()?;
        let own: i32 = std::str::from_utf8(text.get(..length)?).ok()?.trim().parse().ok()?;
        Some(Self { file, own, commands: own.saturating_add(300).min(1000) })
    }

    fn set(&self, value: i32) {
        let _stays_as_it_is = rustix::io::pwrite(&self.file, value.to_string().as_bytes(), 0);
    }
}

/// Disk usage and its limit.
struct Disk {
    limit: u64,
    places: Places,
    /// Paths of these directories.
    paths: Vec<Vec<u8>>,
    /// A count in progress.
    count: Option<Count>,
    /// Bytes of deleted files that are still open.
    nameless: u64,
    /// Whether a process ended since the current count began.
    unseen: bool,
    /// Whether a process ended during the last complete count. Then it is unknown whether that process or a running one wrote
    /// the bytes.
    blurred: bool,
    /// Result of the last complete count, plus bytes written for hosts since.
    used: u64,
    /// Whether the usage may be higher than `used`.
    stale: bool,
    /// The value that usage must not exceed: the limit, or the usage at the time it was exceeded, so that files can
    /// still be removed.
    ceiling: u64,
}

impl Disk {
    fn new(limit: u64, token: Token, looker: Looker, paths: &[&[u8]]) -> Self {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let open = |path: &[u8]| rustix::fs::open(path, flags, Mode::empty()).ok();
        let roots = paths.iter().filter_map(|path| open(path)).collect();
        let places = Places { roots, token, looker };
        let paths = paths.iter().map(|path| path.to_vec()).collect();
        let (count, nameless, used) = (None, 0, 0);
        Self {
            limit,
            places,
            paths,
            count,
            nameless,
            unseen: false,
            blurred: false,
            used,
            stale: false,
            ceiling: limit,
        }
    }

    /// Counts for one turn; returns whether the ceiling seems to be exceeded.
    fn look(&mut self) -> bool {
        let count = self.count.get_or_insert_with(|| {
            self.unseen = false;
            Count::new(&self.places)
        });
        let whole = count.go_on(&self.places, Instant::now() + TURN);
        let sum = count.sum.saturating_add(self.nameless);
        let over = sum > self.threshold();
        if whole {
            self.counted(sum);
        }
        over
    }

    /// Usage above which commands are killed.
    fn threshold(&self) -> u64 {
        if self.ceiling > self.limit { self.ceiling.saturating_add(SLACK) } else { self.limit }
    }

    fn counted(&mut self, sum: u64) {
        (self.used, self.stale, self.count) = (sum, false, None);
        self.blurred = self.unseen;
        self.ceiling = self.limit.max(self.ceiling.min(sum));
    }

    /// Counts everything from the start, until this time.
    fn count_until(&mut self, until: Instant) -> u64 {
        (self.count, self.unseen) = (None, false);
        let mut count = Count::new(&self.places);
        count.go_on(&self.places, until);
        let sum = count.sum.saturating_add(self.nameless);
        drop(count);
        self.counted(sum);
        sum
    }

    /// Bytes that may still be written, as far as known.
    fn room(&self) -> u64 {
        self.limit.saturating_sub(self.used)
    }

    fn full(&self) -> Fail {
        let limit = self.limit;
        Fail::of(
            FailKind::Full,
            format!("the workspace and the homes have nearly reached their limit of {limit} bytes; remove some files"),
        )
    }
}

impl Bounds {
    /// Starts the checks after a command was started.
    pub(super) fn watch(&mut self) {
        if self.is_watched() && self.look_at.is_none() {
            self.look_at = Some(Instant::now() + ALERT);
        }
    }

    /// When usage is checked next, while something runs that has limits.
    pub(super) fn wakes_at(&self) -> Option<Instant> {
        self.look_at
    }

    /// Checks usage if it is time, and kills what exceeds a limit.
    pub(super) fn enforce(&mut self, trees: &mut ProcessTrees, channels: &mut Channels) {
        if self.look_at.is_none_or(|at| Instant::now() < at) {
            return;
        }
        let alive = channels.has_running() || trees.members().next().is_some();
        self.descriptors.look(trees, Instant::now() + TURN);
        self.note_nameless();
        let memory = self.memory.map(|limit| self.keep_memory(limit, trees, channels));
        let disk = self.disk.is_some().then(|| self.keep_disk(trees, channels));
        let looking = self.descriptors.is_looking().then_some(ALERT);
        let again = [memory, disk, looking].into_iter().flatten().min().unwrap_or(CALM);
        // Commands that ended meanwhile left files: count until those are included.
        let counting = self.disk.as_ref().is_some_and(|disk| disk.count.is_some() || disk.unseen);
        self.look_at = (alive || counting).then(|| Instant::now() + again);
    }

    /// Scans all descriptors now, within a time limit.
    pub(super) fn look_into_descriptors(&mut self, trees: &ProcessTrees) {
        self.descriptors.look_now(trees, Instant::now() + STANDSTILL / 2);
        self.note_nameless();
    }

    /// Continues the count; if usage seems too high, stops all commands until that is verified. Returns when to check
    /// again.
    fn keep_disk(&mut self, trees: &mut ProcessTrees, channels: &mut Channels) -> Duration {
        let began = Instant::now();
        let Some(disk) = &mut self.disk else { return CALM };
        let threshold = disk.threshold();
        // Spared only once: afterwards nothing may be added by any command.
        let spared = disk.blurred && disk.ceiling <= disk.limit;
        if disk.look() {
            let stopped = trees.stop_all();
            let passed = self.is_passed(threshold, trees);
            if passed && !spared {
                channels.note_cause(|_| true, ExitKind::Disk);
                trees.kill(|_| true);
            } else {
                signals::resume(&stopped);
            }
        }
        let Some(disk) = &self.disk else { return CALM };
        match &disk.count {
            Some(_) => PAUSE,
            None if disk.used > disk.limit / 2 => ALERT.max(began.elapsed() * 10),
            None => CALM.max(began.elapsed() * 10),
        }
    }

    /// Counts all disk usage now, deleted files included, within a time limit.
    fn count_now(&mut self, trees: &ProcessTrees) -> u64 {
        let until = Instant::now() + STANDSTILL;
        self.look_into_descriptors(trees);
        self.disk.as_mut().map_or(0, |disk| disk.count_until(until))
    }

    /// Counts, and remembers a usage above the threshold as the new ceiling; returns whether it is above.
    fn is_passed(&mut self, threshold: u64, trees: &ProcessTrees) -> bool {
        let found = self.count_now(trees);
        let passed = found > threshold;
        if let Some(disk) = self.disk.as_mut().filter(|_| passed) {
            disk.ceiling = found;
        }
        passed
    }

    /// Counts after a command ended on a machine above its limit: otherwise many short commands would never be noticed.
    pub(super) fn left_too_much(&mut self, trees: &ProcessTrees) -> bool {
        let Some(disk) = &self.disk else { return false };
        if disk.ceiling <= disk.limit {
            return false;
        }
        let threshold = disk.threshold();
        self.is_passed(threshold, trees)
    }

    /// Whether writes to a path count towards the limit.
    pub(super) fn is_counted(&self, path: &[u8]) -> bool {
        self.disk.as_ref().is_some_and(|disk| {
            let below =
                |place: &Vec<u8>| path.strip_prefix(place.as_slice()).is_some_and(|rest| rest.starts_with(b"/"));
            disk.paths.iter().any(below)
        })
    }

    /// Reserves bytes that are about to be written.
    pub(super) fn take_room(&mut self, bytes: u64, trees: &ProcessTrees, access: &FileAccess) -> Answer<()> {
        let Some(disk) = &self.disk else { return Ok(()) };
        if disk.stale || disk.room() < bytes {
            // Counting changes the file access identity itself.
            access.reset();
            self.count_now(trees);
        }
        let Some(disk) = &mut self.disk else { return Ok(()) };
        if disk.room() < bytes {
            return Err(disk.full());
        }
        disk.used = disk.used.saturating_add(bytes);
        Ok(())
    }

    /// Most bytes that a worker may write; `None` means no limit.
    pub(super) fn allowance(&mut self, path: &[u8], trees: &ProcessTrees, access: &FileAccess) -> Option<u64> {
        let counted = self.is_counted(&[path, b"/"].concat());
        let disk = self.disk.as_ref().filter(|_| counted)?;
        if disk.stale || disk.used > 0 {
            access.reset();
            self.count_now(trees);
        }
        self.disk.as_ref().map(Disk::room)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: u64 = 10 << 20;

    fn disk() -> Disk {
        Disk::new(LIMIT, Token([0; 2]), Looker::Own, &[])
    }

    #[test]
    fn a_machine_over_its_disk_limit_may_shrink_but_not_grow() {
        let mut disk = disk();
        assert_eq!((disk.threshold(), disk.room()), (LIMIT, LIMIT));
        disk.counted(LIMIT / 2);
        assert_eq!((disk.threshold(), disk.room()), (LIMIT, LIMIT / 2));
        // As after a kill: the usage at that time is the ceiling, and a little more is tolerated.
        disk.ceiling = 3 * LIMIT;
        disk.counted(3 * LIMIT);
        assert_eq!((disk.threshold(), disk.room()), (3 * LIMIT + SLACK, 0));
        disk.counted(2 * LIMIT);
        assert_eq!(disk.threshold(), 2 * LIMIT + SLACK, "the ceiling follows what was removed");
        disk.counted(4 * LIMIT);
        assert_eq!(disk.threshold(), 2 * LIMIT + SLACK, "and not what was added");
        disk.counted(LIMIT / 4);
        assert_eq!((disk.threshold(), disk.room()), (LIMIT, LIMIT / 4 * 3));
    }

    #[test]
    fn a_count_is_blurred_if_a_process_ended_during_it() {
        let mut bounds = Bounds { disk: Some(disk()), ..Bounds::default() };
        bounds.changed();
        let disk = bounds.disk.as_mut().unwrap();
        assert!(disk.stale && disk.blurred);
        disk.counted(0);
        assert!(!disk.stale && disk.blurred, "it ended before the count was complete");
        assert!(!disk.look(), "nothing is there to count");
        assert!(!disk.blurred && disk.count.is_none());
    }

    #[test]
    fn limits_that_the_kernel_enforces_are_not_watched() {
        let launch = Launch { memory: Some(1 << 30), disk: Some(LIMIT), ..Launch::default() };
        let by_kernel = Hard::of(0b001);
        let strengths = |hard| Bounds::new(&launch, hard, None).held(hard);
        assert_eq!((strengths(by_kernel).memory, strengths(Hard::of(0)).memory), (Strength::Hard, Strength::Soft));
        let bounds = Bounds::new(&launch, Hard::of(0), None);
        assert!(bounds.is_watched() && !Bounds::new(&launch, by_kernel, None).is_watched());
        assert!(!bounds.without_memory().is_watched());
        let with_disk = Bounds::new(&launch, by_kernel, None).disk(&launch, Token([0; 2]), Looker::Own, &[b"/w"]);
        assert_eq!(with_disk.rlimits(), Some((libc::RLIMIT_FSIZE, LIMIT)));
        assert!(with_disk.is_counted(b"/w/file") && !with_disk.is_counted(b"/wide") && !with_disk.is_counted(b"/"));
    }
}
